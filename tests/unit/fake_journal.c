/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_journal.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "journal/marks.h"

struct op {
	struct journal_mark mark;
	bool is_put;
};

struct batch {
	struct batch *next;
	uint64_t seq;
	size_t count, room;
	struct op *ops;
};

struct journal {
	pthread_mutex_t lock;	   /* of what follows */
	pthread_mutex_t composing; /* from compose to submit */
	struct fake_marks committed;
	struct batch *first, **last; /* submitted, not flushed */
	struct batch *open;
	uint64_t seq, flushed, puts, deletes;
	int error;
};

struct journal_cursor {
	struct fake_marks marks;
	size_t next;
	enum journal_mark_kind kind;
};

/* Not by calloc() and realloc(), which tests of the marks let fail. */
static void *grow(void *old, size_t count, size_t size)
{
	void *p = reallocarray(old, count, size);

	if (!p)
		abort();
	return p;
}

static void *zeroed(size_t size)
{
	return memset(grow(NULL, 1, size), 0, size);
}

/* ---- sets ---------------------------------------------------------------- */

static int mark_cmp(const struct journal_mark *a, const struct journal_mark *b)
{
	if (a->kind != b->kind)
		return a->kind < b->kind ? -1 : 1;
	if (a->object != b->object)
		return a->object < b->object ? -1 : 1;
	if (a->number != b->number)
		return a->number < b->number ? -1 : 1;
	return strcmp(a->name, b->name);
}

static size_t marks_index(const struct fake_marks *marks, const struct journal_mark *mark)
{
	size_t low = 0, high = marks->count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (mark_cmp(&marks->items[middle], mark) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void marks_apply(struct fake_marks *marks, const struct op *op)
{
	size_t i = marks_index(marks, &op->mark);
	bool is_there = i < marks->count && mark_cmp(&marks->items[i], &op->mark) == 0;

	if (op->is_put && !is_there) {
		if (marks->count == marks->room) {
			marks->room = marks->room ? marks->room * 2 : 16;
			marks->items = grow(marks->items, marks->room, sizeof(*marks->items));
		}
		memmove(marks->items + i + 1, marks->items + i,
			(marks->count - i) * sizeof(*marks->items));
		marks->count++;
	}
	if (op->is_put) {
		marks->items[i] = op->mark;
	} else if (is_there) {
		marks->count--;
		memmove(marks->items + i, marks->items + i + 1,
			(marks->count - i) * sizeof(*marks->items));
	}
}

static void batch_apply(struct fake_marks *marks, const struct batch *batch)
{
	for (size_t i = 0; i < batch->count; i++)
		marks_apply(marks, &batch->ops[i]);
}

static void marks_copy(const struct fake_marks *from, struct fake_marks *ret_marks)
{
	*ret_marks = (struct fake_marks){ .count = from->count, .room = from->count };
	if (from->count == 0)
		return;
	ret_marks->items = grow(NULL, from->count, sizeof(*from->items));
	memcpy(ret_marks->items, from->items, from->count * sizeof(*from->items));
}

void fake_marks_done(struct fake_marks *marks)
{
	free(marks->items);
	*marks = (struct fake_marks){ 0 };
}

bool fake_marks_has(const struct fake_marks *marks, enum journal_mark_kind kind, uint64_t object,
		    uint64_t number, const char *name)
{
	struct journal_mark mark = { .kind = kind, .object = object, .number = number };
	size_t i;

	if (name)
		memcpy(mark.name, name, strlen(name) + 1);
	i = marks_index(marks, &mark);
	return i < marks->count && mark_cmp(&marks->items[i], &mark) == 0;
}

bool fake_marks_covers(const struct fake_marks *marks, uint64_t object, uint64_t offset)
{
	struct journal_mark tail = { .kind = JOURNAL_MARK_DATA,
				     .object = object,
				     .number = JOURNAL_TAIL };
	size_t i = marks_index(marks, &tail);

	if (i < marks->count && mark_cmp(&marks->items[i], &tail) == 0 &&
	    marks->items[i].value <= offset)
		return true;
	return fake_marks_has(marks, JOURNAL_MARK_DATA, object, offset / MARKS_GROUP_BYTES, NULL);
}

/* ---- control ------------------------------------------------------------- */

struct journal *fake_journal_new(void)
{
	struct journal *j = zeroed(sizeof(*j));

	pthread_mutex_init(&j->lock, NULL);
	pthread_mutex_init(&j->composing, NULL);
	j->last = &j->first;
	return j;
}

/* Commits or drops the oldest batch. */
static void batch_end(struct journal *j, bool is_kept)
{
	struct batch *batch = j->first;

	if (is_kept)
		batch_apply(&j->committed, batch);
	j->first = batch->next;
	if (!j->first)
		j->last = &j->first;
	free(batch->ops);
	free(batch);
}

void fake_journal_crash(struct journal *j, size_t kept)
{
	pthread_mutex_lock(&j->lock);
	while (j->first) {
		batch_end(j, kept > 0);
		if (kept > 0)
			kept--;
	}
	j->flushed = j->seq;
	pthread_mutex_unlock(&j->lock);
}

struct journal *fake_journal_free(struct journal *j)
{
	fake_journal_crash(j, 0);
	fake_marks_done(&j->committed);
	pthread_mutex_destroy(&j->lock);
	pthread_mutex_destroy(&j->composing);
	free(j);
	return NULL;
}

size_t fake_journal_unflushed(struct journal *j)
{
	size_t n = 0;

	pthread_mutex_lock(&j->lock);
	for (const struct batch *b = j->first; b; b = b->next)
		n++;
	pthread_mutex_unlock(&j->lock);
	return n;
}

static void flush_to(struct journal *j, uint64_t seq)
{
	while (j->first && j->first->seq <= seq)
		batch_end(j, true);
	if (seq > j->flushed)
		__atomic_store_n(&j->flushed, seq, __ATOMIC_SEQ_CST);
}

void fake_journal_flush_all(struct journal *j)
{
	pthread_mutex_lock(&j->lock);
	flush_to(j, j->seq);
	pthread_mutex_unlock(&j->lock);
}

void fake_journal_fail(struct journal *j, int error)
{
	pthread_mutex_lock(&j->lock);
	j->error = error;
	pthread_mutex_unlock(&j->lock);
}

void fake_journal_get(struct journal *j, size_t kept, struct fake_marks *ret_marks)
{
	pthread_mutex_lock(&j->lock);
	marks_copy(&j->committed, ret_marks);
	for (const struct batch *b = j->first; b && kept > 0; b = b->next, kept--)
		batch_apply(ret_marks, b);
	pthread_mutex_unlock(&j->lock);
}

uint64_t fake_journal_puts(struct journal *j)
{
	return __atomic_load_n(&j->puts, __ATOMIC_SEQ_CST);
}

uint64_t fake_journal_deletes(struct journal *j)
{
	return __atomic_load_n(&j->deletes, __ATOMIC_SEQ_CST);
}

/* ---- what marks.c calls -------------------------------------------------- */

void journal_compose(struct journal *j)
{
	pthread_mutex_lock(&j->composing);
	j->open = zeroed(sizeof(*j->open));
}

static void op_add(struct journal *j, const struct journal_mark *mark, bool is_put)
{
	struct batch *b = j->open;
	struct op *op;

	if (!b)
		abort();
	if (b->count == b->room) {
		b->room = b->room ? b->room * 2 : 4;
		b->ops = grow(b->ops, b->room, sizeof(*b->ops));
	}
	op = &b->ops[b->count++];
	memset(op, 0, sizeof(*op));
	op->is_put = is_put;
	op->mark.kind = mark->kind;
	op->mark.object = mark->object;
	op->mark.number = mark->kind == JOURNAL_MARK_DATA ? mark->number : 0;
	op->mark.value = mark->value;
	if (mark->kind == JOURNAL_MARK_NAME)
		memcpy(op->mark.name, mark->name, strlen(mark->name) + 1);
}

void journal_put_mark(struct journal *j, const struct journal_mark *mark)
{
	op_add(j, mark, true);
	__atomic_fetch_add(&j->puts, 1, __ATOMIC_SEQ_CST);
}

void journal_delete_mark(struct journal *j, const struct journal_mark *mark)
{
	op_add(j, mark, false);
	__atomic_fetch_add(&j->deletes, 1, __ATOMIC_SEQ_CST);
}

uint64_t journal_submit(struct journal *j)
{
	struct batch *b = j->open;
	uint64_t seq;

	pthread_mutex_lock(&j->lock);
	b->seq = seq = ++j->seq;
	*j->last = b;
	j->last = &b->next;
	j->open = NULL;
	pthread_mutex_unlock(&j->lock);
	pthread_mutex_unlock(&j->composing);
	return seq;
}

int journal_flush(struct journal *j, uint64_t seq)
{
	int error;

	pthread_mutex_lock(&j->lock);
	error = j->error;
	if (error == 0)
		flush_to(j, seq);
	pthread_mutex_unlock(&j->lock);
	return error;
}

uint64_t journal_flushed(const struct journal *j)
{
	return __atomic_load_n(&j->flushed, __ATOMIC_SEQ_CST);
}

int journal_marks_open(struct journal *j, enum journal_mark_kind kind,
		       struct journal_cursor **ret_cursor)
{
	struct journal_cursor *cursor = zeroed(sizeof(*cursor));

	cursor->kind = kind;
	fake_journal_get(j, 0, &cursor->marks);
	*ret_cursor = cursor;
	return 0;
}

int journal_marks_next(struct journal_cursor *cursor, struct journal_mark *ret_mark)
{
	while (cursor->next < cursor->marks.count) {
		const struct journal_mark *mark = &cursor->marks.items[cursor->next++];

		if (mark->kind == cursor->kind) {
			*ret_mark = *mark;
			return 0;
		}
	}
	return JOURNAL_E_END;
}

struct journal_cursor *journal_cursor_close(struct journal_cursor *cursor)
{
	if (cursor)
		fake_marks_done(&cursor->marks);
	free(cursor);
	return NULL;
}
