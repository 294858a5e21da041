/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One word holds both counts and both bars, so that "look whether it is open, and
 * be counted" is a single compare-and-swap. A closer sets its bar and then waits for
 * the count: whoever was counted before the bar is waited for, whoever comes after
 * sees it. Sequentially consistent throughout.
 *
 * The last one out of a barred gate takes the mutex to wake the closer; with the
 * gate open nobody does.
 */
#include "fs/overlay/gate.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "util/clock.h"

#define BAR_CHANGES (UINT64_C(1) << 63)
#define BAR_READS (UINT64_C(1) << 62)
#define BARS (BAR_CHANGES | BAR_READS)
#define ONE_CHANGE UINT64_C(1)
#define ONE_READ (UINT64_C(1) << 31)
#define CHANGES(word) ((word) & (ONE_READ - 1))
#define READS(word) (((word) & ~BARS) >> 31)

enum { EARLY_MAX = 64 }; /* interrupts that came before their request was parked */

struct gate {
	_Atomic uint64_t word;
	_Atomic uint64_t parked_count, parked_bytes;
	_Atomic uint64_t last_parked_ms;
	uint64_t parked_bytes_max;
	pthread_mutex_t lock;
	pthread_cond_t moved;	      /* a bar, a count that reached zero, or the queue changed */
	pthread_cond_t released;      /* for gate_next() */
	struct parked *first, **last; /* guarded by lock, as are those below */
	uint64_t early[EARLY_MAX];
	unsigned early_at;
	bool is_stopped;
};

struct gate *gate_new(uint64_t parked_bytes_max)
{
	struct gate *gate = calloc(1, sizeof(*gate));
	pthread_condattr_t monotonic;

	if (!gate)
		return NULL;
	gate->parked_bytes_max = parked_bytes_max;
	gate->last = &gate->first;
	pthread_mutex_init(&gate->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&gate->moved, &monotonic);
	pthread_cond_init(&gate->released, NULL);
	pthread_condattr_destroy(&monotonic);
	return gate;
}

struct gate *gate_free(struct gate *gate)
{
	if (!gate)
		return NULL;
	while (gate->first) {
		struct parked *parked = gate->first;

		gate->first = parked->next;
		free(parked);
	}
	pthread_cond_destroy(&gate->released);
	pthread_cond_destroy(&gate->moved);
	pthread_mutex_destroy(&gate->lock);
	free(gate);
	return NULL;
}

/* ---- through the gate ---------------------------------------------------- */

static bool pass(struct gate *gate, enum gate_kind kind)
{
	uint64_t one = kind == GATE_CHANGE ? ONE_CHANGE : ONE_READ;
	uint64_t bar = kind == GATE_CHANGE ? BAR_CHANGES : BAR_READS;
	uint64_t word = atomic_load(&gate->word);

	do {
		if (word & bar)
			return false;
	} while (!atomic_compare_exchange_weak(&gate->word, &word, word + one));
	return true;
}

int gate_enter(struct gate *gate, enum gate_kind kind)
{
	if (pass(gate, kind))
		return 0;
	if (kind == GATE_CHANGE)
		return GATE_E_CLOSED;

	pthread_mutex_lock(&gate->lock);
	while (!pass(gate, kind))
		pthread_cond_wait(&gate->moved, &gate->lock);
	pthread_mutex_unlock(&gate->lock);
	return 0;
}

void gate_leave(struct gate *gate, enum gate_kind kind)
{
	uint64_t one = kind == GATE_CHANGE ? ONE_CHANGE : ONE_READ;
	uint64_t word = atomic_fetch_sub(&gate->word, one) - one;

	if (!(word & BARS))
		return;
	if (kind == GATE_CHANGE ? CHANGES(word) : READS(word))
		return;
	pthread_mutex_lock(&gate->lock);
	pthread_cond_broadcast(&gate->moved);
	pthread_mutex_unlock(&gate->lock);
}

/* ---- the queue ----------------------------------------------------------- */

static bool take_early_locked(struct gate *gate, uint64_t unique)
{
	for (unsigned i = 0; i < EARLY_MAX; i++) {
		if (gate->early[i] == unique) {
			gate->early[i] = 0;
			return true;
		}
	}
	return false;
}

int gate_park(struct gate *gate, struct parked *parked)
{
	int r = 0;

	pthread_mutex_lock(&gate->lock);
	/* Bars change under the lock alone, so this cannot become wrong before the
	 * message is in the queue. */
	if (!(atomic_load(&gate->word) & BAR_CHANGES)) {
		r = GATE_E_OPEN;
	} else if (parked->unique && take_early_locked(gate, parked->unique)) {
		r = GATE_E_INTERRUPTED;
	} else {
		parked->next = NULL;
		*gate->last = parked;
		gate->last = &parked->next;
		atomic_fetch_add(&gate->parked_count, 1);
		atomic_fetch_add(&gate->parked_bytes, parked->size);
		if (gate_is_overfull(gate))
			pthread_cond_broadcast(&gate->moved);
	}
	pthread_mutex_unlock(&gate->lock);
	return r;
}

/* Unlinks what @link points at. */
static struct parked *unpark_locked(struct gate *gate, struct parked **link)
{
	struct parked *parked = *link;

	*link = parked->next;
	if (gate->last == &parked->next)
		gate->last = link;
	atomic_fetch_sub(&gate->parked_count, 1);
	atomic_fetch_sub(&gate->parked_bytes, parked->size);
	if (!gate->first)
		pthread_cond_broadcast(&gate->moved);
	return parked;
}

struct parked *gate_interrupt(struct gate *gate, uint64_t unique)
{
	struct parked *found = NULL, **link;

	assert(unique != 0);
	pthread_mutex_lock(&gate->lock);
	for (link = &gate->first; *link; link = &(*link)->next) {
		if ((*link)->unique == unique) {
			found = unpark_locked(gate, link);
			break;
		}
	}
	if (!found && atomic_load(&gate->word) & BAR_CHANGES)
		gate->early[gate->early_at++ % EARLY_MAX] = unique;
	pthread_mutex_unlock(&gate->lock);
	return found;
}

static void note_parked_ms(struct gate *gate, uint64_t ms)
{
	uint64_t longest = atomic_load(&gate->last_parked_ms);

	while (ms > longest && !atomic_compare_exchange_weak(&gate->last_parked_ms, &longest, ms))
		;
}

struct parked *gate_next(struct gate *gate)
{
	struct parked *parked = NULL;

	pthread_mutex_lock(&gate->lock);
	while (!gate->is_stopped) {
		if (gate->first && pass(gate, GATE_CHANGE)) {
			parked = unpark_locked(gate, &gate->first);
			break;
		}
		pthread_cond_wait(&gate->released, &gate->lock);
	}
	pthread_mutex_unlock(&gate->lock);
	if (parked)
		note_parked_ms(gate, clock_ms() - parked->since_ms);
	return parked;
}

void gate_stop(struct gate *gate)
{
	pthread_mutex_lock(&gate->lock);
	gate->is_stopped = true;
	pthread_cond_broadcast(&gate->released);
	pthread_mutex_unlock(&gate->lock);
}

/* ---- closing and opening ------------------------------------------------- */

static void open_locked(struct gate *gate)
{
	atomic_fetch_and(&gate->word, ~BARS);
	for (unsigned i = 0; i < EARLY_MAX; i++)
		gate->early[i] = 0; /* their requests have been let through */
	pthread_cond_broadcast(&gate->moved);
	pthread_cond_broadcast(&gate->released);
}

int gate_freeze(struct gate *gate, uint64_t deadline_ms)
{
	struct timespec deadline = clock_timespec(deadline_ms);
	int r = 0;

	pthread_mutex_lock(&gate->lock);
	assert(!(atomic_load(&gate->word) & BARS));
	while (gate->first && r == 0)
		r = -pthread_cond_timedwait(&gate->moved, &gate->lock, &deadline);
	if (r < 0)
		goto out;

	atomic_store(&gate->last_parked_ms, 0);
	atomic_fetch_or(&gate->word, BAR_CHANGES);
	while (CHANGES(atomic_load(&gate->word)) && r == 0) {
		if (gate_is_overfull(gate))
			r = -ENOBUFS;
		else
			r = -pthread_cond_timedwait(&gate->moved, &gate->lock, &deadline);
	}
	if (r < 0)
		open_locked(gate);
out:
	pthread_mutex_unlock(&gate->lock);
	return r;
}

int gate_close_reads(struct gate *gate, uint64_t deadline_ms)
{
	struct timespec deadline = clock_timespec(deadline_ms);
	int r = 0;

	pthread_mutex_lock(&gate->lock);
	assert(atomic_load(&gate->word) & BAR_CHANGES);
	atomic_fetch_or(&gate->word, BAR_READS);
	while (READS(atomic_load(&gate->word)) && r == 0)
		r = -pthread_cond_timedwait(&gate->moved, &gate->lock, &deadline);
	assert(CHANGES(atomic_load(&gate->word)) == 0);
	pthread_mutex_unlock(&gate->lock);
	return r;
}

void gate_open(struct gate *gate)
{
	pthread_mutex_lock(&gate->lock);
	assert(atomic_load(&gate->word) & BAR_CHANGES);
	open_locked(gate);
	pthread_mutex_unlock(&gate->lock);
}

bool gate_is_open(const struct gate *gate)
{
	return !(atomic_load(&gate->word) & BARS);
}

bool gate_is_overfull(const struct gate *gate)
{
	return atomic_load(&gate->parked_bytes) > gate->parked_bytes_max;
}

uint64_t gate_parked(const struct gate *gate)
{
	return atomic_load(&gate->parked_count);
}

uint64_t gate_last_parked_ms(const struct gate *gate)
{
	return atomic_load(&gate->last_parked_ms);
}
