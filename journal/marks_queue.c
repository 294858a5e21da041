/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where entries wait for their time: queues of what is ready, a timer wheel, what rests;
 * and the threads that wait for them. A thread that waits says of which kinds; an entry
 * that becomes ready wakes one of them. Whoever leaves with a task wakes another one
 * where there is more, since the woken may have taken something else than what it was
 * woken for. One waiter at least sleeps no longer than the wheel's next entry.
 */

#include <errno.h>
#include <stdlib.h>

#include "journal/marks_internal.h"
#include "util/clock.h"

int marks_queues_init(struct marks *m)
{
	m->wheel = calloc(WHEEL_SLOTS, sizeof(*m->wheel));
	if (!m->wheel)
		return -ENOMEM;
	for (unsigned i = 0; i < WHEEL_SLOTS; i++)
		list_init(&m->wheel[i]);
	for (unsigned kind = 0; kind < MARKS_KIND_MAX; kind++) {
		list_init(&m->ready[kind]);
		list_init(&m->resting[kind]);
		list_init(&m->rested[kind]);
	}
	list_init(&m->waiters);
	m->wheel_tick = marks_tick_exact(m);
	m->armed_tick = TICK_NEVER;
	return 0;
}

void marks_queues_done(struct marks *m)
{
	free(m->wheel);
}

/* ---- waiters ------------------------------------------------------------- */

static void wake(struct waiter *w)
{
	list_remove(&w->link);
	w->is_woken = true;
	pthread_cond_signal(&w->cond);
}

void marks_wake_kind(struct marks *m, enum marks_kind kind)
{
	for (struct list *l = m->waiters.next; l != &m->waiters; l = l->next) {
		struct waiter *w = CONTAINER_OF(l, struct waiter, link);

		if (w->kinds & 1u << kind) {
			wake(w);
			return;
		}
	}
}

void marks_wake_any(struct marks *m)
{
	if (!list_is_empty(&m->waiters))
		wake(CONTAINER_OF(m->waiters.next, struct waiter, link));
}

static uint32_t wheel_next(struct marks *m);

void marks_wake_others(struct marks *m)
{
	if (list_is_empty(&m->waiters))
		return;
	for (unsigned kind = 0; kind < MARKS_KIND_MAX; kind++)
		if (!list_is_empty(&m->ready[kind]) || !list_is_empty(&m->rested[kind]))
			marks_wake_kind(m, kind);
	if (m->armed_tick == TICK_NEVER && wheel_next(m) != TICK_NEVER)
		marks_wake_any(m);
}

void marks_wake(struct marks *m)
{
	pthread_mutex_lock(&m->lock);
	m->wakes++;
	while (!list_is_empty(&m->waiters))
		marks_wake_any(m);
	pthread_mutex_unlock(&m->lock);
}

void marks_wait(struct marks *m, unsigned kinds, uint64_t deadline_ms)
{
	struct waiter w = { .kinds = kinds };
	uint32_t due = wheel_next(m), armed = TICK_NEVER;
	struct timespec until;
	int r = 0;

	if (due < m->armed_tick) {
		uint64_t due_ms = m->start_ms + (uint64_t)(due - 1) * TICK_MS;

		m->armed_tick = armed = due;
		if (due_ms < deadline_ms)
			deadline_ms = due_ms;
	}
	until = clock_timespec(deadline_ms);
	pthread_cond_init(&w.cond, &m->cond_attr);
	list_append(&m->waiters, &w.link);
	while (!w.is_woken && r == 0)
		r = pthread_cond_timedwait(&w.cond, &m->lock, &until);
	assert(r == 0 || r == ETIMEDOUT);
	if (!w.is_woken)
		list_remove(&w.link);
	pthread_cond_destroy(&w.cond);
	if (armed != TICK_NEVER && m->armed_tick == armed)
		m->armed_tick = TICK_NEVER;
}

/* ---- queues -------------------------------------------------------------- */

void marks_queue_remove(struct marks *m, struct entry *e)
{
	if (e->queue == QUEUE_NONE)
		return;
	if (e->queue == QUEUE_READY)
		m->ready_count[e->queue_kind]--;
	if (e->queue == QUEUE_RESTING)
		m->resting_count--;
	list_remove(&e->queued);
	e->queue = QUEUE_NONE;
}

void marks_make_ready(struct marks *m, struct entry *e, enum marks_kind kind)
{
	assert(e->queue == QUEUE_NONE);
	e->queue = QUEUE_READY;
	e->queue_kind = kind;
	m->ready_count[kind]++;
	list_append(&m->ready[kind], &e->queued);
	marks_wake_kind(m, kind);
}

void marks_make_resting(struct marks *m, struct entry *e, enum marks_kind kind, bool is_due)
{
	assert(e->queue == QUEUE_NONE);
	e->queue = QUEUE_RESTING;
	e->queue_kind = kind;
	m->resting_count++;
	list_append(is_due ? &m->rested[kind] : &m->resting[kind], &e->queued);
	if (is_due)
		marks_wake_kind(m, kind);
}

void marks_stop_resting(struct marks *m, struct entry *e)
{
	if (e->queue == QUEUE_RESTING)
		marks_queue_remove(m, e);
}

uint32_t marks_cool_due(const struct marks *m, uint32_t first, uint32_t last)
{
	uint32_t due, due_max;

	if (last == 0 || m->cool_ticks == 0 || m->is_draining)
		return 0;
	due = last + m->cool_ticks;
	due_max = first + m->cool_ticks_max;
	return due < due_max ? due : due_max;
}

/* Puts @e, an entry of no queue, where it belongs now; nowhere if it waits for an event. */
static void place(struct marks *m, struct entry *e)
{
	enum marks_kind kind = e->kind;
	uint32_t due;

	if (!e->is_marked)
		return;
	if (kind == MARKS_OBJECT) {
		const struct object_entry *o = object_of(e);

		if (o->claim || e->is_unpaired)
			return;
		if (o->bulk_end > 0)
			kind = MARKS_DATA; /* cools by group, see marks_claim_data() */
		else if (!marks_object_is_claimable(m, o))
			return;
	} else if (e->is_claimed || e->writers > 0) {
		return;
	}
	due = kind == MARKS_DATA ? 0 : marks_cool_due(m, e->first, e->last);
	if (due > marks_tick(m))
		marks_make_timed(m, e, QUEUE_COOLING, due);
	else
		marks_make_ready(m, e, kind);
}

void marks_settle(struct marks *m, struct entry *e)
{
	bool is_held = e->is_marked || e->writers > 0 || e->is_claimed || e->is_held;

	if (e->kind == MARKS_OBJECT)
		is_held |= object_of(e)->names > 0;
	if (!is_held) {
		marks_queue_remove(m, e);
		marks_entry_free(m, e);
		marks_check_idle(m);
		return;
	}
	if (e->queue == QUEUE_NONE && !(marks_is_over(m, e->kind) && marks_spill_out(m, e)))
		place(m, e);
}

/* ---- wheel --------------------------------------------------------------- */

static void wheel_insert(struct marks *m, struct entry *e)
{
	uint32_t at = e->due;

	assert(e->due > m->wheel_tick);
	if (at - m->wheel_tick >= WHEEL_SLOTS)
		at = m->wheel_tick + WHEEL_SLOTS - 1;
	at %= WHEEL_SLOTS;
	list_append(&m->wheel[at], &e->queued);
	m->wheel_used[at / 64] |= 1ull << (at % 64);
}

void marks_make_timed(struct marks *m, struct entry *e, enum queue queue, uint32_t due)
{
	assert(e->queue == QUEUE_NONE);
	assert(queue == QUEUE_COOLING || queue == QUEUE_LATER);
	e->queue = queue;
	e->due = due > m->wheel_tick ? due : m->wheel_tick + 1;
	wheel_insert(m, e);
	if (e->due < m->armed_tick)
		marks_wake_any(m); /* and it will sleep for less */
}

/* Due now: to the end of its queue, or for longer if it was changed since. */
static void wheel_expire(struct marks *m, struct entry *e, uint32_t now)
{
	bool is_cooling = e->queue == QUEUE_COOLING;

	if (is_cooling && e->kind == MARKS_OBJECT && object_of(e)->bulk_end > 0)
		is_cooling = false;
	if (is_cooling)
		e->due = marks_cool_due(m, e->first, e->last);
	if (e->due > now) {
		wheel_insert(m, e);
		return;
	}
	e->queue = QUEUE_NONE;
	marks_settle(m, e);
}

/* The first used slot's tick after wheel_tick. */
static uint32_t wheel_next(struct marks *m)
{
	for (uint32_t ahead = 1; ahead < WHEEL_SLOTS;) {
		uint32_t at = (m->wheel_tick + ahead) % WHEEL_SLOTS;
		uint64_t word = m->wheel_used[at / 64] >> (at % 64);

		if (word == 0) {
			ahead += 64 - at % 64;
			continue;
		}
		ahead += (uint32_t)__builtin_ctzll(word);
		at = (m->wheel_tick + ahead) % WHEEL_SLOTS;
		if (ahead >= WHEEL_SLOTS)
			break;
		if (!list_is_empty(&m->wheel[at]))
			return m->wheel_tick + ahead;
		m->wheel_used[at / 64] &= ~(1ull << (at % 64)); /* emptied by removals */
	}
	return TICK_NEVER;
}

void marks_wheel_advance(struct marks *m, uint32_t now)
{
	uint32_t next;

	while (m->wheel_tick < now && (next = wheel_next(m)) <= now) {
		struct list *slot = &m->wheel[next % WHEEL_SLOTS], due;

		/* Taken out whole: what stays goes to other slots, or round to this one. */
		due = *slot;
		due.next->prev = due.prev->next = &due;
		list_init(slot);
		m->wheel_used[next % WHEEL_SLOTS / 64] &= ~(1ull << (next % 64));
		m->wheel_tick = next;
		while (!list_is_empty(&due)) {
			struct entry *e = CONTAINER_OF(due.next, struct entry, queued);

			list_remove(&e->queued);
			wheel_expire(m, e, now > next ? now : next);
		}
	}
	if (m->wheel_tick < now)
		m->wheel_tick = now;
}

void marks_wheel_end_cooling(struct marks *m)
{
	for (unsigned i = 0; i < WHEEL_SLOTS; i++) {
		struct list *l = m->wheel[i].next;

		while (l != &m->wheel[i]) {
			struct entry *e = CONTAINER_OF(l, struct entry, queued);

			l = l->next;
			if (e->queue == QUEUE_COOLING) {
				marks_queue_remove(m, e);
				marks_settle(m, e);
			}
		}
	}
}
