/* SPDX-License-Identifier: Apache-2.0 */
/* The marks: life, the lock with its batches, counts. See marks_internal.h. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "journal/marks_internal.h"
#include "util/clock.h"
#include "util/log.h"

/* ---- time ---------------------------------------------------------------- */

static uint32_t tick_of(const struct marks *m, clockid_t clock)
{
	struct timespec now;
	uint64_t ms;

	clock_gettime(clock, &now);
	ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
	/* The coarse clock may lag behind the start. Tick 0 means "never". */
	return ms <= m->start_ms ? 1 : (uint32_t)((ms - m->start_ms) / TICK_MS) + 1;
}

uint32_t marks_tick(const struct marks *m)
{
	return tick_of(m, CLOCK_MONOTONIC_COARSE);
}

uint32_t marks_tick_exact(const struct marks *m)
{
	return tick_of(m, CLOCK_MONOTONIC);
}

/* ---- batches ------------------------------------------------------------- */

uint64_t marks_compose(struct marks *m)
{
	if (!m->is_composing) {
		journal_compose(m->journal);
		m->is_composing = true;
	}
	return m->batch;
}

void marks_submit(struct marks *m)
{
	if (!m->is_composing)
		return;
	m->last_seq = journal_submit(m->journal);
	m->batch_seq[m->batch % BATCH_RING] = m->last_seq;
	m->batch++;
	m->is_composing = false;
}

bool marks_batch_is_flushed(struct marks *m, uint64_t batch, uint64_t *ret_seq)
{
	uint64_t oldest = m->batch > BATCH_RING ? m->batch - BATCH_RING : 1, seq;

	assert(!m->is_composing);
	assert(batch < m->batch);
	if (batch <= m->batch_flushed)
		return true;

	/* Sequence numbers grow: of what the ring has forgotten, its oldest is a bound. */
	seq = m->batch_seq[(batch > oldest ? batch : oldest) % BATCH_RING];
	if (seq <= journal_flushed(m->journal)) {
		m->batch_flushed = batch;
		return true;
	}
	*ret_seq = seq;
	return false;
}

static void mark_set(struct journal_mark *mark, enum journal_mark_kind kind, uint64_t object,
		     uint64_t number, const struct name_entry *name, uint64_t value)
{
	mark->kind = kind;
	mark->object = object;
	mark->number = number;
	mark->value = value;
	mark->name[0] = '\0';
	if (name)
		memcpy(mark->name, name->name, name->length + 1u);
}

void marks_put(struct marks *m, enum journal_mark_kind kind, uint64_t object, uint64_t number,
	       const struct name_entry *name, uint64_t value)
{
	struct journal_mark mark;

	mark_set(&mark, kind, object, number, name, value);
	marks_compose(m);
	journal_put_mark(m->journal, &mark);
}

void marks_delete(struct marks *m, enum journal_mark_kind kind, uint64_t object, uint64_t number,
		  const struct name_entry *name)
{
	struct journal_mark mark;

	mark_set(&mark, kind, object, number, name, 0);
	marks_compose(m);
	journal_delete_mark(m->journal, &mark);
}

void marks_lose(struct marks *m, int error, const char *why)
{
	if (!__atomic_exchange_n(&m->is_lost, true, __ATOMIC_SEQ_CST))
		(void)log_error_errno(error, "marks are lost, everything has to be compared: %s",
				      why);
}

bool marks_is_lost(const struct marks *m)
{
	return MARKS_OFF || __atomic_load_n(&m->is_lost, __ATOMIC_SEQ_CST);
}

void marks_lock(struct marks *m)
{
	pthread_mutex_lock(&m->lock);
	marks_compose(m);
}

uint64_t marks_unlock(struct marks *m)
{
	uint64_t seq;

	marks_submit(m);
	seq = m->last_seq;
	pthread_mutex_unlock(&m->lock);
	return seq;
}

/* ---- life ---------------------------------------------------------------- */

static uint32_t ticks_up(uint64_t ms)
{
	uint64_t ticks = (ms + TICK_MS - 1) / TICK_MS;

	return ticks < INT32_MAX ? (uint32_t)ticks : INT32_MAX;
}

int marks_open(struct journal *journal, const struct marks_limits *limits, struct marks **ret_marks)
{
	struct marks *m;
	int r;

	assert(journal);
	assert(limits->objects_max > 0);
	assert(limits->names_max > 0);
	assert(limits->scans_max > 0);
	assert(limits->groups_per_object_max >= 2);

	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	m->journal = journal;
	m->limits = *limits;
	m->cool_ticks = ticks_up(limits->cool_ms);
	m->cool_ticks_max = ticks_up(limits->cool_ms_max);
	m->start_ms = clock_ms();
	m->batch = 1;
	pthread_mutex_init(&m->lock, NULL);
	pthread_condattr_init(&m->cond_attr);
	pthread_condattr_setclock(&m->cond_attr, CLOCK_MONOTONIC);
	pthread_cond_init(&m->idle, &m->cond_attr);
	pthread_cond_init(&m->room, &m->cond_attr);

	r = marks_queues_init(m);
	if (r < 0) {
		(void)marks_close(m);
		return r;
	}
	r = marks_spill_load(m);
	if (r < 0) {
		(void)marks_close(m);
		return r;
	}
	*ret_marks = m;
	return 0;
}

struct marks *marks_close(struct marks *m)
{
	if (!m)
		return NULL;
	assert(!m->is_composing);
	assert(!m->waiters.next || list_is_empty(&m->waiters));

	marks_spill_done(m);
	marks_table_done(m);
	marks_queues_done(m);
	pthread_cond_destroy(&m->room);
	pthread_cond_destroy(&m->idle);
	pthread_condattr_destroy(&m->cond_attr);
	pthread_mutex_destroy(&m->lock);
	free(m);
	return NULL;
}

/* ---- counts -------------------------------------------------------------- */

void marks_set_marked(struct marks *m, struct entry *e, bool is_marked)
{
	if (e->is_marked == is_marked)
		return;
	e->is_marked = is_marked;
	if (is_marked) {
		m->marked[e->kind]++;
	} else {
		assert(m->marked[e->kind] > 0);
		m->marked[e->kind]--;
		e->batch = 0;
		e->attempts = 0;
	}
}

bool marks_is_empty_locked(const struct marks *m)
{
	for (unsigned kind = 0; kind < MARKS_KIND_MAX; kind++)
		if (m->marked[kind] > 0 || m->spill[kind].is_active)
			return false;
	return m->claimed == 0;
}

void marks_check_idle(struct marks *m)
{
	if (m->idle_waiters > 0 && marks_is_empty_locked(m))
		pthread_cond_broadcast(&m->idle);
	if (m->room_waiters > 0 && m->count[MARKS_NAME] + m->room_wanted <= m->limits.names_max)
		pthread_cond_broadcast(&m->room);
}

bool marks_is_empty(struct marks *m)
{
	bool is_empty;

	pthread_mutex_lock(&m->lock);
	is_empty = marks_is_empty_locked(m);
	pthread_mutex_unlock(&m->lock);
	return is_empty;
}

int marks_wait_empty(struct marks *m, uint64_t deadline_ms)
{
	struct timespec until = clock_timespec(deadline_ms);
	bool is_empty;
	int r = 0;

	pthread_mutex_lock(&m->lock);
	m->idle_waiters++;
	while (!(is_empty = marks_is_empty_locked(m)) && r == 0)
		r = pthread_cond_timedwait(&m->idle, &m->lock, &until);
	m->idle_waiters--;
	pthread_mutex_unlock(&m->lock);
	assert(r == 0 || r == ETIMEDOUT);
	return is_empty ? 0 : -ETIMEDOUT;
}

bool marks_wait_names_room(struct marks *m, size_t count, uint64_t deadline_ms)
{
	struct timespec until = clock_timespec(deadline_ms);
	bool is_room;
	int r = 0;

	if (count > m->limits.names_max)
		count = m->limits.names_max; /* what would never fit passes alone */
	pthread_mutex_lock(&m->lock);
	if (m->room_waiters++ == 0 || count < m->room_wanted)
		m->room_wanted = count;
	while (!(is_room = m->count[MARKS_NAME] + count <= m->limits.names_max) && r == 0)
		r = pthread_cond_timedwait(&m->room, &m->lock, &until);
	m->room_waiters--;
	pthread_mutex_unlock(&m->lock);
	assert(r == 0 || r == ETIMEDOUT);
	return is_room;
}

void marks_set_draining(struct marks *m, bool is_draining)
{
	pthread_mutex_lock(&m->lock);
	m->is_draining = is_draining;
	if (is_draining)
		marks_wheel_end_cooling(m);
	pthread_mutex_unlock(&m->lock);
}

void marks_count_target_change_locked(struct marks *m)
{
	__atomic_store_n(&m->target_changes, m->target_changes + 1, __ATOMIC_SEQ_CST);
	for (unsigned kind = 0; kind < MARKS_KIND_MAX; kind++) {
		struct list *from = &m->resting[kind], *to = &m->rested[kind];

		if (list_is_empty(from))
			continue;
		to->prev->next = from->next;
		from->next->prev = to->prev;
		from->prev->next = to;
		to->prev = from->prev;
		list_init(from);
		marks_wake_kind(m, kind);
	}
}

void marks_set_compare(struct marks *m, struct entry *e, bool is_compare)
{
	if (e->is_compare == is_compare)
		return;
	assert(is_compare || m->compare_count > 0);
	e->is_compare = is_compare;
	m->compare_count = is_compare ? m->compare_count + 1 : m->compare_count - 1;
}

uint64_t marks_target_changes(const struct marks *m)
{
	return __atomic_load_n(&m->target_changes, __ATOMIC_SEQ_CST);
}

void marks_get_stats(struct marks *m, struct marks_stats *ret_stats)
{
	pthread_mutex_lock(&m->lock);
	*ret_stats = (struct marks_stats){
		.objects = m->marked[MARKS_OBJECT] + m->spill[MARKS_OBJECT].count,
		.names = m->marked[MARKS_NAME] + m->spill[MARKS_NAME].count,
		.scans = m->marked[MARKS_SCAN] + m->spill[MARKS_SCAN].count,
		.listed_names = m->covered,
		.compares = m->compare_count + m->spill[MARKS_SCAN].count,
		.bytes = m->dirty_blocks * MARKS_BLOCK_BYTES + m->tail_bytes,
		.dirtied_bytes = m->dirtied_bytes,
		.cleared_bytes = m->cleared_bytes,
		.cleared_objects = m->cleared_objects,
		.cleared_names = m->cleared_names,
		.claimed = m->claimed,
		.resting = m->resting_count,
	};
	for (unsigned kind = 0; kind < MARKS_KIND_MAX; kind++)
		ret_stats->is_spilled |= m->spill[kind].is_active;
	pthread_mutex_unlock(&m->lock);
}

void marks_explain_object(struct marks *m, uint64_t object, struct marks_explanation *ret)
{
	const struct entry *e;

	*ret = (struct marks_explanation){ .tail_offset = MARKS_INFINITY };
	pthread_mutex_lock(&m->lock);
	e = marks_find(m, MARKS_OBJECT, object, NULL);
	if (e) {
		const struct object_entry *o = object_of((struct entry *)e);

		ret->has_attr = e->is_marked;
		ret->is_claimed = o->claim || o->data_claims > 0;
		ret->is_changing = e->writers > 0;
		ret->is_resting = e->queue == QUEUE_RESTING;
		ret->has_tail = o->tail != TAIL_NONE;
		if (ret->has_tail)
			ret->tail_offset = o->tail * MARKS_GROUP_BYTES;
		ret->groups = o->group_count;
		for (size_t i = 0; i < o->group_count; i++)
			ret->dirty_bytes +=
				(uint64_t)bits_count(&o->groups[i]->dirty) * MARKS_BLOCK_BYTES;
		if (ret->has_tail && o->size_hint > ret->tail_offset)
			ret->dirty_bytes += o->size_hint - ret->tail_offset;
	}
	pthread_mutex_unlock(&m->lock);
}

static bool has_mark(struct marks *m, enum marks_kind kind, uint64_t id, const char *name)
{
	const struct entry *e;
	bool is_marked;

	pthread_mutex_lock(&m->lock);
	e = marks_find(m, kind, id, name);
	is_marked = e && e->is_marked;
	pthread_mutex_unlock(&m->lock);
	return is_marked;
}

bool marks_has_name(struct marks *m, uint64_t dir, const char *name)
{
	return has_mark(m, MARKS_NAME, dir, name);
}

bool marks_has_scan(struct marks *m, uint64_t dir)
{
	return has_mark(m, MARKS_SCAN, dir, NULL);
}
