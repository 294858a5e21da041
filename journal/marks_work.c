/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks: how a worker gets them and gives them back. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "journal/marks_internal.h"
#include "util/clock.h"

/* ---- out ----------------------------------------------------------------- */

static int take_simple(struct marks *m, struct entry *e, struct marks_task *task)
{
	if (!e->is_marked || e->is_claimed || e->writers > 0)
		return 0;
	e->is_claimed = true;
	e->is_redirtied = false;
	e->first = e->last = 0;
	m->claimed++;

	*task = MARKS_TASK_NULL;
	task->kind = e->kind;
	task->object = e->id;
	task->is_compare = e->is_compare;
	task->is_of_before = e->is_of_before;
	task->attempts = e->attempts;
	task->entry = e;
	if (e->kind == MARKS_NAME)
		memcpy(task->name, name_of(e)->name, name_of(e)->length + 1u);
	return 1;
}

/* An object in bulk: one group of it; when none can be had, what it waits for. */
static int take_data(struct marks *m, struct entry *e, struct marks_task *task, uint32_t now)
{
	struct object_entry *o = object_of(e);
	uint32_t due;
	int r;

	r = marks_claim_data(m, o, task, now, &due);
	if (r != 0)
		marks_make_ready(m, e, MARKS_DATA); /* there may be more of it */
	else if (due != TICK_NEVER)
		marks_make_timed(m, e, QUEUE_COOLING, due);
	else if (marks_object_is_claimable(m, o))
		marks_make_ready(m, e, MARKS_OBJECT);
	return r;
}

/* Tries the first entry of @queue, which leaves it. What cannot be claimed now is
 * queued again by the event that it waits for. */
static int take_entry(struct marks *m, struct list *queue, enum marks_kind kind,
		      struct marks_task *task, uint32_t now)
{
	struct entry *e = CONTAINER_OF(queue->next, struct entry, queued);
	uint32_t due;
	int r;

	assert(e->queue_kind == kind);
	marks_queue_remove(m, e);
	if (kind == MARKS_DATA)
		return take_data(m, e, task, now);

	due = marks_cool_due(m, e->first, e->last);
	if (due > now) {
		marks_make_timed(m, e, QUEUE_COOLING, due);
		return 0;
	}
	if (kind != MARKS_OBJECT)
		return take_simple(m, e, task);
	r = marks_claim_object(m, object_of(e), task);
	if (r < 0)
		marks_make_ready(m, e, kind);
	return r;
}

static int take_kind(struct marks *m, enum marks_kind kind, struct marks_task *task, uint32_t now)
{
	int r = 0;

	while (r == 0 && !list_is_empty(&m->ready[kind]))
		r = take_entry(m, &m->ready[kind], kind, task, now);
	while (r == 0 && !list_is_empty(&m->rested[kind]))
		r = take_entry(m, &m->rested[kind], kind, task, now);
	return r;
}

static int take(struct marks *m, unsigned kinds, struct marks_task *task, uint32_t now)
{
	for (unsigned i = 0; i < MARKS_KIND_MAX; i++) {
		enum marks_kind kind = (m->turn + i) % MARKS_KIND_MAX;
		int r;

		if (!(kinds & 1u << kind))
			continue;
		r = take_kind(m, kind, task, now);
		if (r == 0 && kind == MARKS_DATA && kinds & 1u << MARKS_OBJECT) {
			kind = MARKS_OBJECT; /* what is no work for DATA any more */
			r = take_kind(m, kind, task, now);
		}
		if (r != 0) {
			m->turn = kind + 1;
			return r;
		}
	}
	return 0;
}

int marks_next(struct marks *m, unsigned kinds, uint64_t deadline_ms, struct marks_task *ret_task)
{
	struct marks_task task;
	uint64_t wakes, seq = 0;
	bool is_flushed = true;
	int r;

	assert(kinds != 0 && kinds < 1u << MARKS_KIND_MAX);
	pthread_mutex_lock(&m->lock);
	wakes = m->wakes;
	for (;;) {
		uint32_t now = marks_tick_exact(m);
		uint64_t until_ms;

		marks_wheel_advance(m, now);
		if (m->wakes == wakes && marks_spill_refill(m, kinds))
			continue;
		r = take(m, kinds, &task, now);
		if (r != 0 || m->wakes != wakes || clock_ms() >= deadline_ms)
			break;
		until_ms = marks_spill_due(m, kinds);
		marks_submit(m);
		marks_wait(m, kinds, until_ms < deadline_ms ? until_ms : deadline_ms);
	}
	if (r > 0) {
		task.changes_before = m->target_changes;
		*ret_task = task;
	}
	marks_wake_others(m);
	marks_submit(m);
	if (r > 0)
		is_flushed =
			marks_batch_is_flushed(m,
					       task.claim
						       ? marks_claim_batch(task.claim)
						       : ((const struct entry *)task.entry)->batch,
					       &seq);
	pthread_mutex_unlock(&m->lock);

	if (!is_flushed) {
		int error = journal_flush(m->journal, seq);

		if (error < 0)
			marks_lose(m, error, "cannot write to the journal");
	}
	return r;
}

int marks_take_object_locked(struct marks *m, uint64_t object, struct marks_task *ret_task)
{
	struct entry *e = marks_find(m, MARKS_OBJECT, object, NULL);
	int r;

	assert(m->is_composing);
	if (!e || e->queue != QUEUE_READY || e->queue_kind != MARKS_OBJECT)
		return 0;
	marks_queue_remove(m, e);
	r = marks_claim_object(m, object_of(e), ret_task);
	if (r < 0)
		marks_make_ready(m, e, MARKS_OBJECT);
	if (r <= 0)
		return 0;
	ret_task->changes_before = m->target_changes;
	return 1;
}

/* ---- back ---------------------------------------------------------------- */

static void task_done(struct marks_task *task)
{
	free(task->ranges);
	task->ranges = NULL;
	task->range_count = 0;
	task->entry = task->claim = NULL;
	task->kind = MARKS_KIND_MAX;
}

/* Ends the claim of a name or scan: whether it was cleared. */
static bool simple_end(struct marks *m, struct entry *e, bool is_clear)
{
	assert(e->is_claimed);
	assert(m->claimed > 0);
	e->is_claimed = false;
	m->claimed--;
	/* A change in flight began after the claim, and redirtied it. */
	assert(e->writers == 0 || e->is_redirtied || !e->is_marked);
	if (e->is_redirtied && e->is_covered) {
		/* Who changes it again and again must not keep the scan's record. It has been
		 * covered all the time, so its batch stays. */
		marks_put(m, JOURNAL_MARK_NAME, e->id, 0, name_of(e), 0);
		marks_uncover(m, e);
	}
	if (!is_clear || e->is_redirtied)
		return false;
	if (e->is_marked && e->kind == MARKS_SCAN) {
		marks_end_scan(m, e);
	} else if (e->is_marked) {
		if (e->is_covered)
			marks_uncover(m, e);
		else
			marks_delete(m, JOURNAL_MARK_NAME, e->id, 0, name_of(e));
		m->cleared_names++;
	}
	marks_set_marked(m, e, false);
	return true;
}

static bool task_end(struct marks *m, struct marks_task *task, enum claim_end how,
		     uint64_t source_end)
{
	if (task->claim)
		return marks_claim_end(m, task->claim, how, source_end);
	return simple_end(m, task->entry, how == CLAIM_CLEAR);
}

static bool is_redirtied(const struct marks_task *task)
{
	if (task->claim)
		return ((const struct claim *)task->claim)->is_redirtied;
	return ((const struct entry *)task->entry)->is_redirtied;
}

bool marks_is_redirtied(struct marks *m, const struct marks_task *task)
{
	bool is;

	assert(task->entry);
	pthread_mutex_lock(&m->lock);
	is = is_redirtied(task);
	pthread_mutex_unlock(&m->lock);
	return is;
}

bool marks_clear_locked(struct marks *m, struct marks_task *task, uint64_t source_end)
{
	struct entry *e = task->entry;
	bool is_all;

	assert(e);
	assert(m->is_composing);
	is_all = task_end(m, task, CLAIM_CLEAR, source_end);
	e->attempts = 0;
	marks_settle(m, e);
	marks_check_idle(m);
	task_done(task);
	return is_all;
}

static uint32_t tick_after(const struct marks *m, uint64_t delay_ms)
{
	uint64_t ticks = (delay_ms + TICK_MS - 1) / TICK_MS + 1;

	return marks_tick_exact(m) + (ticks < INT32_MAX ? (uint32_t)ticks : INT32_MAX);
}

void marks_keep_locked(struct marks *m, struct marks_task *task, enum marks_why why, uint64_t value)
{
	struct entry *e = task->entry;
	bool was_redirtied, is_untouched = why == MARKS_BULK || why == MARKS_UNPAIRED;

	assert(e);
	assert(m->is_composing);
	was_redirtied = is_redirtied(task);
	(void)task_end(m, task, is_untouched ? CLAIM_UNTOUCHED : CLAIM_KEEP, 0);
	if (!is_untouched && e->attempts < UINT16_MAX)
		e->attempts++;

	/* Of several claims of one object the longest delay counts: it may be a hold-down. */
	if (e->queue == QUEUE_LATER) {
		if (why == MARKS_LATER && tick_after(m, value) > e->due) {
			marks_queue_remove(m, e);
			marks_make_timed(m, e, QUEUE_LATER, tick_after(m, value));
		}
	} else if (e->is_marked && why == MARKS_REST && !was_redirtied) {
		marks_queue_remove(m, e);
		marks_make_resting(m, e, task->kind, task->changes_before != m->target_changes);
	} else if (e->is_marked && why == MARKS_LATER) {
		marks_queue_remove(m, e);
		marks_make_timed(m, e, QUEUE_LATER, tick_after(m, value));
	} else if (why == MARKS_BULK) {
		assert(task->kind == MARKS_OBJECT);
		object_of(e)->bulk_end = value;
		marks_size_hint(m, object_of(e), value);
	} else if (why == MARKS_UNPAIRED && !e->is_paired && !was_redirtied) {
		/* Redirtied: it may have died since it was looked at. */
		assert(e->kind == MARKS_OBJECT);
		marks_queue_remove(m, e);
		e->is_unpaired = true;
	}
	marks_settle(m, e);
	marks_check_idle(m);
	task_done(task);
}

void marks_set_paired_locked(struct marks *m, uint64_t object)
{
	struct entry *e = marks_find(m, MARKS_OBJECT, object, NULL);

	if (!e)
		return;
	e->is_unpaired = false;
	e->is_paired = true; /* who looked before this must not park it now */
	marks_settle(m, e);
}

void marks_drop_object_locked(struct marks *m, uint64_t object)
{
	struct entry *e = marks_find(m, MARKS_OBJECT, object, NULL);

	assert(m->is_composing);
	if (e) {
		struct object_entry *o = object_of(e);

		marks_data_drop(m, o, false);
		o->bulk_end = 0;
		e->is_unpaired = false;
	}
	if (e ? e->has_own || !e->is_complete : m->spill[MARKS_OBJECT].is_active)
		marks_delete(m, JOURNAL_MARK_ATTR, object, 0, NULL);
	/* Groups that are spilled come back as marks of nothing, and are dropped then. */
	if ((!e || !e->is_complete) && m->spill[MARKS_OBJECT].is_active)
		marks_delete(m, JOURNAL_MARK_DATA, object, JOURNAL_TAIL, NULL);
	if (e) {
		e->has_own = false;
		marks_set_marked(m, e, false);
		marks_queue_remove(m, e);
		marks_settle(m, e);
	}

	e = marks_find(m, MARKS_SCAN, object, NULL);
	if (!e && m->spill[MARKS_SCAN].is_active && !marks_covers_names(m, object))
		marks_delete(m, JOURNAL_MARK_SCAN, object, 0, NULL);
	if (e) {
		marks_end_scan(m, e);
		marks_set_marked(m, e, false);
		marks_queue_remove(m, e);
		marks_settle(m, e);
	}
	marks_check_idle(m);
}
