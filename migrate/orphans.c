/* SPDX-License-Identifier: Apache-2.0 */
#include "migrate/orphans.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A sorted array: there are few, and each change of it costs a system call anyway. */
struct orphans {
	pthread_mutex_t lock;
	uint64_t *ids; /* guarded by lock, as are the others */
	unsigned count, room;
};

struct orphans *orphans_new(void)
{
	struct orphans *orphans = calloc(1, sizeof(*orphans));

	if (orphans)
		pthread_mutex_init(&orphans->lock, NULL);
	return orphans;
}

struct orphans *orphans_free(struct orphans *orphans)
{
	if (!orphans)
		return NULL;
	pthread_mutex_destroy(&orphans->lock);
	free(orphans->ids);
	free(orphans);
	return NULL;
}

/* The index of the first id that is not below @id. */
static unsigned find_locked(const struct orphans *orphans, uint64_t id)
{
	unsigned low = 0, high = orphans->count;

	while (low < high) {
		unsigned middle = low + (high - low) / 2;

		if (orphans->ids[middle] < id)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool has_locked(const struct orphans *orphans, unsigned at, uint64_t id)
{
	return at < orphans->count && orphans->ids[at] == id;
}

int orphans_add(struct orphans *orphans, uint64_t id)
{
	unsigned at;
	int r = 0;

	assert(id != 0);
	pthread_mutex_lock(&orphans->lock);
	at = find_locked(orphans, id);
	if (has_locked(orphans, at, id))
		goto out;
	if (orphans->count == orphans->room) {
		unsigned room = orphans->room ? 2 * orphans->room : 16;
		uint64_t *ids = realloc(orphans->ids, room * sizeof(*ids));

		if (!ids) {
			r = -ENOMEM;
			goto out;
		}
		orphans->ids = ids;
		orphans->room = room;
	}
	memmove(&orphans->ids[at + 1], &orphans->ids[at], (orphans->count - at) * sizeof(*orphans->ids));
	orphans->ids[at] = id;
	orphans->count++;
out:
	pthread_mutex_unlock(&orphans->lock);
	return r;
}

void orphans_remove(struct orphans *orphans, uint64_t id)
{
	unsigned at;

	pthread_mutex_lock(&orphans->lock);
	at = find_locked(orphans, id);
	if (has_locked(orphans, at, id)) {
		orphans->count--;
		memmove(&orphans->ids[at], &orphans->ids[at + 1],
			(orphans->count - at) * sizeof(*orphans->ids));
	}
	pthread_mutex_unlock(&orphans->lock);
}

bool orphans_has(struct orphans *orphans, uint64_t id)
{
	bool is_there;

	pthread_mutex_lock(&orphans->lock);
	is_there = has_locked(orphans, find_locked(orphans, id), id);
	pthread_mutex_unlock(&orphans->lock);
	return is_there;
}

int orphans_list(struct orphans *orphans, uint64_t **ret_ids, unsigned *ret_count)
{
	uint64_t *ids;
	int r = 0;

	pthread_mutex_lock(&orphans->lock);
	ids = malloc((orphans->count + 1) * sizeof(*ids)); /* never of size 0 */
	if (!ids) {
		r = -ENOMEM;
	} else {
		if (orphans->count)
			memcpy(ids, orphans->ids, orphans->count * sizeof(*ids));
		*ret_ids = ids;
		*ret_count = orphans->count;
	}
	pthread_mutex_unlock(&orphans->lock);
	return r;
}

void orphan_name(uint64_t id, char ret_name[static ORPHAN_NAME_BYTES])
{
	(void)snprintf(ret_name, ORPHAN_NAME_BYTES, "%016llx", (unsigned long long)id); /* always fits */
}

uint64_t orphan_id(const char *name)
{
	if (strlen(name) != ORPHAN_NAME_BYTES - 1 || strspn(name, "0123456789abcdef") != ORPHAN_NAME_BYTES - 1)
		return 0;
	return strtoull(name, NULL, 16);
}
