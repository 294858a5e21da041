/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/overlay/crew.h"

#include <errno.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

enum {
	TICK_US = 1000,	       /* nobody may read for so long before one is woken */
	IDLE_TICKS_MAX = 50,   /* without a request; then the watcher rests too */
	CALM_TICKS = 100,      /* without anyone held up; then one reader less will do */
};

struct crew {
	unsigned threads;
	_Atomic unsigned readers; /* in read(2), or about to be */
	_Atomic unsigned resting; /* that nobody has promised a wake-up */
	_Atomic unsigned wanted;  /* so many readers are enough; at least 1 */
	_Atomic uint64_t taken;	  /* requests */
	atomic_bool is_watched, is_stopped;
	sem_t wake, watch;
};

struct crew *crew_new(unsigned threads)
{
	struct crew *crew = calloc(1, sizeof(*crew));

	assert(threads > 0);
	if (!crew)
		return NULL;
	crew->threads = threads;
	atomic_init(&crew->wanted, 1);
	sem_init(&crew->wake, 0, 0);
	sem_init(&crew->watch, 0, 0);
	return crew;
}

struct crew *crew_free(struct crew *crew)
{
	if (!crew)
		return NULL;
	sem_destroy(&crew->watch);
	sem_destroy(&crew->wake);
	free(crew);
	return NULL;
}

static void wait_for(sem_t *semaphore)
{
	while (sem_wait(semaphore) < 0)
		assert(errno == EINTR);
}

/* Takes one out of those that rest: false if there is none. */
static bool claim(struct crew *crew)
{
	unsigned resting = atomic_load(&crew->resting);

	do {
		if (resting == 0)
			return false;
	} while (!atomic_compare_exchange_weak(&crew->resting, &resting, resting - 1));
	return true;
}

void crew_wake(struct crew *crew)
{
	if (claim(crew))
		sem_post(&crew->wake);
}

void crew_read_begin(struct crew *crew)
{
	atomic_fetch_add(&crew->readers, 1);
}

bool crew_read_end(struct crew *crew)
{
	unsigned left = atomic_fetch_sub(&crew->readers, 1) - 1;

	atomic_fetch_add(&crew->taken, 1);
	if (!atomic_load(&crew->is_watched) && !atomic_exchange(&crew->is_watched, true))
		sem_post(&crew->watch);
	return left == 0 && atomic_load(&crew->resting) > 0;
}

void crew_rest(struct crew *crew)
{
	if (atomic_load(&crew->readers) < atomic_load(&crew->wanted))
		return;
	atomic_fetch_add(&crew->resting, 1);
	/* Whoever stopped reading before that may not have seen us; nor may crew_stop(). If we
	 * have been claimed meanwhile, the wake-up is on its way. */
	if ((atomic_load(&crew->readers) == 0 || atomic_load(&crew->is_stopped)) && claim(crew))
		return;
	wait_for(&crew->wake);
}

/* ---- watching ------------------------------------------------------------ */

/* One tick; returns whether there was a request in it. */
static bool watch_tick(struct crew *crew, unsigned *calm_ticks)
{
	static const struct timespec tick = { .tv_nsec = TICK_US * 1000 };
	uint64_t taken = atomic_load(&crew->taken);
	unsigned wanted = atomic_load(&crew->wanted);

	(void)nanosleep(&tick, NULL); /* interrupted is as good */
	if (atomic_load(&crew->readers) == 0 && atomic_load(&crew->taken) == taken) {
		*calm_ticks = 0;
		if (wanted < crew->threads)
			atomic_store(&crew->wanted, wanted + 1);
		crew_wake(crew);
		return true;
	}
	if (++*calm_ticks >= CALM_TICKS) {
		*calm_ticks = 0;
		if (wanted > 1)
			atomic_store(&crew->wanted, wanted - 1);
	}
	return atomic_load(&crew->taken) != taken;
}

void crew_watch(struct crew *crew)
{
	unsigned idle_ticks = 0, calm_ticks = 0;

	while (!atomic_load(&crew->is_stopped)) {
		uint64_t taken = atomic_load(&crew->taken);

		if (watch_tick(crew, &calm_ticks))
			idle_ticks = 0;
		else
			idle_ticks++;
		if (idle_ticks < IDLE_TICKS_MAX)
			continue;
		idle_ticks = 0;
		atomic_store(&crew->is_watched, false);
		/* Whoever took a request before that does not call us. */
		if (atomic_load(&crew->taken) != taken || atomic_load(&crew->is_stopped))
			continue;
		wait_for(&crew->watch);
	}
}

void crew_stop(struct crew *crew)
{
	atomic_store(&crew->is_stopped, true);
	while (claim(crew))
		sem_post(&crew->wake);
	sem_post(&crew->watch);
}
