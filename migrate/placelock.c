/* SPDX-License-Identifier: Apache-2.0 */
#include "migrate/migrate_internal.h"

/* A worker holds two ids, or a batch's: a walk over the few beats a table. */

void placelock_init(struct placelock *placelock)
{
	pthread_mutex_init(&placelock->lock, NULL);
	pthread_cond_init(&placelock->freed, NULL);
	placelock->count = 0;
}

void placelock_done(struct placelock *placelock)
{
	assert(placelock->count == 0);
	pthread_cond_destroy(&placelock->freed);
	pthread_mutex_destroy(&placelock->lock);
}

static int find_locked(const struct placelock *placelock, uint64_t id)
{
	for (unsigned i = 0; i < placelock->count; i++)
		if (placelock->ids[i] == id)
			return (int)i;
	return -1;
}

static void lock_one(struct placelock *placelock, uint64_t id)
{
	pthread_mutex_lock(&placelock->lock);
	while (find_locked(placelock, id) >= 0)
		pthread_cond_wait(&placelock->freed, &placelock->lock);
	assert(placelock->count < ARRAY_SIZE(placelock->ids));
	placelock->ids[placelock->count++] = id;
	pthread_mutex_unlock(&placelock->lock);
}

static void unlock_one(struct placelock *placelock, uint64_t id)
{
	int at;

	pthread_mutex_lock(&placelock->lock);
	at = find_locked(placelock, id);
	assert(at >= 0);
	placelock->ids[at] = placelock->ids[--placelock->count];
	pthread_cond_broadcast(&placelock->freed);
	pthread_mutex_unlock(&placelock->lock);
}

void placelock_lock(struct placelock *placelock, uint64_t a, uint64_t b)
{
	uint64_t low = a < b ? a : b, high = a < b ? b : a;

	if (low && low != high)
		lock_one(placelock, low);
	if (high)
		lock_one(placelock, high);
}

void placelock_unlock(struct placelock *placelock, uint64_t a, uint64_t b)
{
	if (a)
		unlock_one(placelock, a);
	if (b && b != a)
		unlock_one(placelock, b);
}
