/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Marks that stand in the journal alone: forgotten when a table is over its limit, read
 * back when a queue runs low. A pass reads all records of a kind from a snapshot that
 * has all that was spilled before it; piece by piece, as there is room. When it comes to
 * the end and nothing was spilled meanwhile, memory knows everything again.
 */

#include <errno.h>
#include <stdlib.h>

#include "journal/marks_internal.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/log.h"

enum { READY_LOW = 64 }; /* fewer tasks ready than that: read on */

static size_t limit_of(const struct marks *m, enum marks_kind kind)
{
	switch (kind) {
	case MARKS_SCAN:
		return m->limits.scans_max;
	case MARKS_NAME:
		return m->limits.names_max;
	default:
		return m->limits.objects_max;
	}
}

/* What counts against the limit. Not what names hold, directories and their scans: they have
 * the names' limit, and if they took all the room, what those names wait for would have none. */
static size_t counted(const struct marks *m, enum marks_kind kind)
{
	switch (kind) {
	case MARKS_OBJECT:
		return m->count[kind] - m->dirs;
	case MARKS_SCAN:
		return m->count[kind] - m->held;
	default:
		return m->count[kind];
	}
}

bool marks_is_over(const struct marks *m, enum marks_kind kind)
{
	return counted(m, kind) > limit_of(m, kind);
}

void marks_spill_note(struct marks *m, enum marks_kind kind)
{
	m->spill[kind].is_active = true;
	m->spill[kind].generation++;
	m->spill[kind].count++;
}

bool marks_spill_out(struct marks *m, struct entry *e)
{
	if (!e->is_marked || e->is_claimed || e->writers > 0)
		return false;
	if (e->kind == MARKS_OBJECT) {
		if (object_of(e)->names > 0)
			return false;
		marks_data_drop(m, object_of(e), /* is_recorded= */ true);
	}
	marks_queue_remove(m, e);
	if (e->is_covered) {
		marks_simple_put(m, e);
		marks_uncover(m, e);
	}
	marks_set_marked(m, e, false);
	marks_spill_note(m, e->kind);
	marks_entry_free(m, e);
	return true;
}

/* ---- back into memory ---------------------------------------------------- */

/*
 * What is read back is put again: since the snapshot it may have been cleared. Not so at
 * the start (@is_sure), when there is nobody who could. What memory knows stays as it is:
 * all that came since the spill is newer than the record.
 */

static void insert_implied_attr(struct marks *m, struct object_entry *o, uint64_t batch)
{
	if (o->e.is_marked)
		return;
	marks_set_marked(m, &o->e, true);
	o->e.has_own = false;
	o->e.batch = batch;
}

static int insert_group(struct marks *m, struct object_entry *o, uint64_t number, bool is_sure)
{
	size_t i = marks_group_index(o, number);
	struct group *g = i < o->group_count ? o->groups[i] : NULL;

	if (g && g->number == number) {
		if (!g->is_own)
			marks_group_put(m, o, g); /* so that it is deleted with the group */
		return 0;
	}
	if (number >= o->tail) {
		marks_delete(m, JOURNAL_MARK_DATA, o->e.id, number, NULL);
		return 0;
	}
	g = marks_group_insert(o, i, number, 0);
	if (!g)
		return -ENOMEM;
	g->is_own = true;
	if (!is_sure)
		marks_group_put(m, o, g);
	marks_group_set_dirty(m, g, BITS_ALL);
	insert_implied_attr(m, o, g->batch);
	marks_groups_limit(m, o);
	return 0;
}

/* Whether the record could have got another value since the snapshot: it was changed in
 * memory, and spilled again. Our put must not take that back. */
static bool is_outdated(const struct marks *m, enum marks_kind kind)
{
	return m->spill[kind].generation != m->spill[kind].pass_generation;
}

static void insert_tail(struct marks *m, struct object_entry *o, uint64_t offset, bool is_sure)
{
	if (o->tail != TAIL_NONE || o->tail_persisted != TAIL_NONE)
		return;
	if (!is_sure && is_outdated(m, MARKS_OBJECT))
		offset = 0;
	marks_tail_set(m, o, offset / MARKS_GROUP_BYTES);
	o->tail_persisted = o->tail;
	if (!is_sure) {
		marks_put(m, JOURNAL_MARK_DATA, o->e.id, JOURNAL_TAIL, NULL,
			  o->tail * MARKS_GROUP_BYTES);
		o->tail_batch = m->batch;
	}
	insert_implied_attr(m, o, o->tail_batch);
	marks_data_settle(m, o, marks_group_index(o, o->tail), o->group_count);
}

static void insert_attr(struct marks *m, struct object_entry *o, bool is_sure)
{
	if (o->e.is_marked && o->e.has_own)
		return;
	if (!is_sure)
		marks_put(m, JOURNAL_MARK_ATTR, o->e.id, 0, NULL, 0);
	o->e.has_own = true;
	if (!o->e.is_marked)
		o->e.batch = is_sure ? 0 : m->batch;
	marks_set_marked(m, &o->e, true);
}

static void insert_simple(struct marks *m, struct entry *e, uint64_t value, bool is_sure)
{
	marks_set_marked(m, e, true);
	if (e->kind == MARKS_SCAN)
		marks_set_compare(m, e, value != 0 || (!is_sure && is_outdated(m, MARKS_SCAN)));
	e->is_of_before = e->kind == MARKS_SCAN;
	if (!is_sure)
		marks_simple_put(m, e);
}

static int insert(struct marks *m, const struct journal_mark *mark, bool is_sure)
{
	enum marks_kind kind = mark->kind == JOURNAL_MARK_NAME	 ? MARKS_NAME
			       : mark->kind == JOURNAL_MARK_SCAN ? MARKS_SCAN
								 : MARKS_OBJECT;
	struct entry *e = marks_find(m, kind, mark->object, mark->name);
	int r = 0;

	if (e && kind != MARKS_OBJECT)
		return 0;
	if (!e) {
		e = marks_get(m, kind, mark->object, mark->name);
		if (!e)
			return -ENOMEM;
		e->is_complete = false;
		if (m->spill[kind].count > 0)
			m->spill[kind].count--;
	}
	if (kind != MARKS_OBJECT)
		insert_simple(m, e, mark->value, is_sure);
	else if (mark->kind == JOURNAL_MARK_ATTR)
		insert_attr(m, object_of(e), is_sure);
	else if (mark->number == JOURNAL_TAIL)
		insert_tail(m, object_of(e), mark->value, is_sure);
	else
		r = insert_group(m, object_of(e), mark->number, is_sure);
	marks_settle(m, e);
	return r;
}

/* ---- passes -------------------------------------------------------------- */

static enum journal_mark_kind record_kind(enum marks_kind kind)
{
	switch (kind) {
	case MARKS_SCAN:
		return JOURNAL_MARK_SCAN;
	case MARKS_NAME:
		return JOURNAL_MARK_NAME;
	default:
		return JOURNAL_MARK_DATA;
	}
}

static int pass_open(struct marks *m, enum marks_kind kind)
{
	struct spill *s = &m->spill[kind];
	int r;

	r = journal_marks_open(m->journal, record_kind(kind), &s->cursor);
	if (r < 0)
		return r;
	if (kind != MARKS_OBJECT)
		return 0;
	r = journal_marks_open(m->journal, JOURNAL_MARK_ATTR, &s->cursor_next);
	if (r < 0)
		s->cursor = journal_cursor_close(s->cursor);
	return r;
}

/* Reads up to @count marks; 0: the end of the pass. */
static int pass_read(struct spill *s, struct journal_mark *marks, int count)
{
	int n = 0, r;

	while (n < count && s->cursor) {
		r = journal_marks_next(s->cursor, &marks[n]);
		if (r < 0)
			return r;
		if (r == 0) {
			n++;
			continue;
		}
		assert(r == JOURNAL_E_END);
		s->cursor = journal_cursor_close(s->cursor);
		s->cursor = TAKE_PTR(s->cursor_next);
	}
	return n;
}

/* Without the lock: what was spilled is flushed, a piece of the pass is read. */
static int piece_read(struct marks *m, enum marks_kind kind, uint64_t seq,
		      struct journal_mark *marks, int count)
{
	struct spill *s = &m->spill[kind];
	int r;

	if (!s->cursor) {
		r = journal_flush(m->journal, seq);
		if (r < 0)
			return r;
		r = pass_open(m, kind);
		if (r < 0)
			return r;
	}
	return pass_read(s, marks, count);
}

static void pass_end(struct marks *m, enum marks_kind kind)
{
	struct spill *s = &m->spill[kind];

	if (s->generation != s->pass_generation) {
		s->retry_ms = clock_ms() + SPILL_RETRY_MS;
		return; /* once more */
	}
	s->is_active = false;
	s->count = 0;
	marks_check_idle(m);
}

/* One piece. The lock is dropped and taken again. */
static void piece(struct marks *m, enum marks_kind kind, size_t room)
{
	int count = room < SPILL_READ ? (int)room : SPILL_READ, n;
	_cleanup_free_ struct journal_mark *marks = calloc((size_t)count, sizeof(*marks));
	struct spill *s = &m->spill[kind];
	uint64_t seq;

	assert(room > 0);
	assert(!s->is_reading);
	s->is_reading = true;
	if (!s->cursor)
		s->pass_generation = s->generation;
	marks_submit(m);
	seq = m->last_seq;
	pthread_mutex_unlock(&m->lock);
	n = marks ? piece_read(m, kind, seq, marks, count) : -ENOMEM;
	pthread_mutex_lock(&m->lock);
	s->is_reading = false;

	for (int i = 0; i < n; i++)
		if (insert(m, &marks[i], /* is_sure= */ false) < 0)
			s->generation++; /* not this time: another pass */
	if (n < 0) {
		(void)log_warning_errno(n, "cannot read marks back, retrying");
		s->cursor = journal_cursor_close(s->cursor);
		s->cursor_next = journal_cursor_close(s->cursor_next);
		s->generation++;
		s->retry_ms = clock_ms() + SPILL_RETRY_MS;
	} else if (!s->cursor) {
		pass_end(m, kind);
	}
}

/* Makes room by forgetting what rests: it may rest for what is spilled. */
static void spill_resting(struct marks *m, enum marks_kind kind)
{
	struct list *lists[] = { &m->resting[kind], &m->rested[kind] };

	for (unsigned i = 0, done = 0; i < 2; i++) {
		while (!list_is_empty(lists[i]) && done < SPILL_READ) {
			struct entry *e = CONTAINER_OF(lists[i]->next, struct entry, queued);

			if (!marks_spill_out(m, e))
				break;
			done++;
		}
	}
}

static bool is_wanted(const struct marks *m, enum marks_kind kind, unsigned kinds)
{
	if (kind == MARKS_OBJECT && kinds & 1u << MARKS_DATA)
		kinds |= 1u << MARKS_OBJECT;
	return m->spill[kind].is_active && kinds & 1u << kind;
}

bool marks_spill_refill(struct marks *m, unsigned kinds)
{
	for (enum marks_kind kind = 0; kind < MARKS_KIND_MAX; kind++) {
		const struct spill *s = &m->spill[kind];
		size_t ready = m->ready_count[kind], limit = limit_of(m, kind);

		if (!is_wanted(m, kind, kinds) || s->is_reading)
			continue;
		if (kind == MARKS_OBJECT)
			ready += m->ready_count[MARKS_DATA];
		if (ready >= READY_LOW || s->retry_ms > clock_ms())
			continue;
		if (counted(m, kind) >= limit && ready == 0)
			spill_resting(m, kind);
		if (counted(m, kind) >= limit) {
			m->spill[kind].retry_ms = clock_ms() + SPILL_RETRY_MS;
			continue;
		}
		piece(m, kind, limit - counted(m, kind));
		return true;
	}
	return false;
}

uint64_t marks_spill_due(const struct marks *m, unsigned kinds)
{
	for (enum marks_kind kind = 0; kind < MARKS_KIND_MAX; kind++)
		if (is_wanted(m, kind, kinds))
			return clock_ms() + SPILL_RETRY_MS;
	return UINT64_MAX;
}

/* ---- at start and end ---------------------------------------------------- */

static void set_complete(struct marks *m, struct entry *e)
{
	(void)m;
	e->is_complete = true;
}

static int load(struct marks *m, enum marks_kind kind)
{
	struct spill *s = &m->spill[kind];
	struct journal_mark mark;
	int r;

	r = pass_open(m, kind);
	if (r < 0)
		return r;
	s->is_active = true;
	s->pass_generation = s->generation;
	while (counted(m, kind) < limit_of(m, kind)) {
		r = pass_read(s, &mark, 1);
		if (r < 0)
			return r;
		if (r == 0) {
			s->is_active = false;
			break;
		}
		r = insert(m, &mark, /* is_sure= */ true);
		if (r < 0)
			return r;
	}
	if (s->is_active)
		log_info("more marks in the journal than may be in memory, the rest follows");
	return 0;
}

int marks_spill_load(struct marks *m)
{
	static const enum marks_kind kinds[] = { MARKS_SCAN, MARKS_OBJECT, MARKS_NAME };
	int r = 0;

	pthread_mutex_lock(&m->lock);
	for (unsigned i = 0; i < ARRAY_SIZE(kinds) && r == 0; i++)
		r = load(m, kinds[i]);
	marks_submit(m);
	if (!m->spill[MARKS_SCAN].is_active && !m->spill[MARKS_OBJECT].is_active &&
	    !m->spill[MARKS_NAME].is_active)
		marks_table_each(m, set_complete);
	pthread_mutex_unlock(&m->lock);
	return r;
}

void marks_spill_done(struct marks *m)
{
	for (unsigned kind = 0; kind < MARKS_KIND_MAX; kind++) {
		m->spill[kind].cursor = journal_cursor_close(m->spill[kind].cursor);
		m->spill[kind].cursor_next = journal_cursor_close(m->spill[kind].cursor_next);
	}
}
