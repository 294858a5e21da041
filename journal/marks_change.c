/* SPDX-License-Identifier: Apache-2.0 */
/* Changes on the active side: registered, marked, durable before they happen. And the
 * marks that a worker puts. */

#include <errno.h>
#include <string.h>

#include "journal/marks_internal.h"

/* ---- building ------------------------------------------------------------ */

static struct marks_item *item_add(struct marks_change *change)
{
	assert(change->count < MARKS_CHANGE_ITEMS_MAX);
	return &change->items[change->count++];
}

void marks_change_add_name(struct marks_change *change, uint64_t dir, const char *name)
{
	*item_add(change) = (struct marks_item){ .kind = MARKS_NAME, .object = dir, .name = name };
}

void marks_change_add_data(struct marks_change *change, uint64_t object, uint64_t offset,
			   uint64_t end)
{
	*item_add(change) = (struct marks_item){
		.kind = MARKS_DATA, .object = object, .offset = offset, .end = end
	};
}

void marks_change_add_attr(struct marks_change *change, uint64_t object)
{
	*item_add(change) = (struct marks_item){ .kind = MARKS_OBJECT, .object = object };
}

/* ---- changes ------------------------------------------------------------- */

void marks_simple_put(struct marks *m, struct entry *e)
{
	if (e->kind == MARKS_NAME)
		marks_put(m, JOURNAL_MARK_NAME, e->id, 0, name_of(e), 0);
	else
		marks_put(m, JOURNAL_MARK_SCAN, e->id, 0, NULL, e->is_compare);
	e->batch = m->batch;
}

/* Marks a name or scan, and redirties its claim; the batch that covers it. */
static uint64_t simple_mark(struct marks *m, struct entry *e)
{
	if (e->is_claimed)
		e->is_redirtied = true;
	if (e->is_marked)
		return e->batch;
	marks_set_marked(m, e, true);
	marks_release_scan(m, e);
	marks_simple_put(m, e);
	return e->batch;
}

static void data_register(struct object_entry *o, struct marks_item *item)
{
	item->next = o->writers;
	item->link = &o->writers;
	if (o->writers)
		o->writers->link = &item->next;
	o->writers = item;
}

static void data_unregister(struct marks_item *item)
{
	*item->link = item->next;
	if (item->next)
		item->next->link = item->link;
}

/* The batch to wait for. */
static uint64_t item_begin(struct marks *m, struct marks_item *item)
{
	struct entry *e = marks_get(m, item->kind == MARKS_NAME ? MARKS_NAME : MARKS_OBJECT,
				    item->object, item->name);
	uint64_t batch;

	item->entry = e;
	if (!e) {
		marks_lose(m, -ENOMEM, "no memory to register a change");
		return 0;
	}
	if (item->kind == MARKS_NAME) {
		batch = simple_mark(m, e);
	} else if (item->kind == MARKS_OBJECT) {
		batch = marks_attr_mark(m, object_of(e));
	} else {
		struct object_entry *o = object_of(e);

		assert(item->kind == MARKS_DATA);
		batch = marks_data_mark(m, o, item->offset, item->end);
		if (item->end != MARKS_INFINITY && item->end > o->size_hint) {
			uint64_t before = m->tail_bytes;

			marks_size_hint(m, o, item->end);
			m->dirtied_bytes += m->tail_bytes - before; /* a dirty tail grew */
		}
		data_register(o, item);
	}
	e->writers++;
	return batch;
}

static void item_end(struct marks *m, struct marks_item *item)
{
	struct entry *e = item->entry;

	if (!e)
		return;
	item->entry = NULL;
	assert(e->writers > 0);
	e->writers--;
	if (item->kind == MARKS_DATA) {
		struct object_entry *o = object_of(e);

		data_unregister(item);
		if (o->claim || o->data_claims > 0)
			marks_data_redirty(o, item->offset, item->end);
	} else if (item->kind == MARKS_OBJECT) {
		marks_data_redirty(object_of(e), 0, 0);
		/* It may have died without a pair, which nobody but a worker finds out. */
		e->is_unpaired = false;
	} else if (e->is_claimed) {
		e->is_redirtied = true;
	}

	e->last = marks_tick(m);
	if (e->first == 0)
		e->first = e->last;
	if (e->queue == QUEUE_RESTING)
		marks_stop_resting(m, e);
	if (e->queue == QUEUE_NONE)
		marks_settle(m, e);
}

/* Unlocks, when what stands in @batch and before it is in the journal. */
static void flush_and_unlock(struct marks *m, uint64_t batch)
{
	uint64_t seq = 0;
	bool is_flushed = marks_batch_is_flushed(m, batch, &seq);
	int r;

	pthread_mutex_unlock(&m->lock);
	if (is_flushed)
		return;
	r = journal_flush(m->journal, seq);
	if (r < 0)
		marks_lose(m, r, "cannot write to the journal");
}

void marks_change_begin(struct marks *m, struct marks_change *change)
{
	uint64_t batch = 0;

	assert(change->count <= MARKS_CHANGE_ITEMS_MAX);
	if (MARKS_OFF)
		return;
	pthread_mutex_lock(&m->lock);
	for (unsigned i = 0; i < change->count; i++) {
		uint64_t b = item_begin(m, &change->items[i]);

		if (b > batch)
			batch = b;
	}
	marks_submit(m);
	flush_and_unlock(m, batch); /* also the puts of others that we rely on */
}

void marks_change_end(struct marks *m, struct marks_change *change)
{
	if (MARKS_OFF)
		return;
	pthread_mutex_lock(&m->lock);
	for (unsigned i = 0; i < change->count; i++)
		item_end(m, &change->items[i]);
	marks_submit(m);
	pthread_mutex_unlock(&m->lock);
}

/* ---- puts ---------------------------------------------------------------- */

static void put_done(struct marks *m, struct entry *e)
{
	marks_stop_resting(m, e);
	marks_settle(m, e);
}

/* There is no memory for the entry: the mark stands in the journal alone. */
static void put_blind(struct marks *m, enum marks_kind kind, const struct journal_mark *mark)
{
	marks_compose(m);
	journal_put_mark(m->journal, mark);
	marks_spill_note(m, kind);
}

void marks_put_name_locked(struct marks *m, uint64_t dir, const char *name)
{
	struct entry *e = marks_get(m, MARKS_NAME, dir, name);

	assert(m->is_composing);
	if (!e) {
		struct journal_mark mark = { .kind = JOURNAL_MARK_NAME, .object = dir };

		memcpy(mark.name, name, strlen(name) + 1);
		put_blind(m, MARKS_NAME, &mark);
		return;
	}
	(void)simple_mark(m, e);
	put_done(m, e);
}

void marks_put_scan_locked(struct marks *m, uint64_t dir, bool is_compare)
{
	struct entry *e = marks_get(m, MARKS_SCAN, dir, NULL);

	assert(m->is_composing);
	if (!e) {
		struct journal_mark mark = { .kind = JOURNAL_MARK_SCAN, .object = dir, .value = 1 };

		put_blind(m, MARKS_SCAN, &mark);
		return;
	}
	/* Our put must not take back a comparison that is spilled. */
	is_compare |= !e->is_complete && m->spill[MARKS_SCAN].is_active;
	if (is_compare && !e->is_compare) {
		marks_set_compare(m, e, true);
		if (e->is_marked)
			marks_simple_put(m, e);
	}
	(void)simple_mark(m, e);
	put_done(m, e);
}

void marks_put_attr_locked(struct marks *m, uint64_t object)
{
	struct entry *e = marks_get(m, MARKS_OBJECT, object, NULL);

	assert(m->is_composing);
	if (!e) {
		struct journal_mark mark = { .kind = JOURNAL_MARK_ATTR, .object = object };

		put_blind(m, MARKS_OBJECT, &mark);
		return;
	}
	(void)marks_attr_mark(m, object_of(e));
	put_done(m, e);
}

/* Returns the batch that the mark stands in. */
static uint64_t put_whole(struct marks *m, uint64_t object, uint64_t size, bool is_virgin,
			  bool is_cooling)
{
	uint64_t batch;
	struct entry *e = marks_get(m, MARKS_OBJECT, object, NULL);
	struct object_entry *o;

	if (!e) {
		struct journal_mark mark = { .kind = JOURNAL_MARK_DATA,
					     .object = object,
					     .number = JOURNAL_TAIL };

		put_blind(m, MARKS_OBJECT, &mark);
		return m->batch;
	}
	o = object_of(e);
	if (size > o->size_hint)
		marks_size_hint(m, o, size);
	batch = marks_data_mark(m, o, 0, MARKS_INFINITY);
	e->is_virgin = is_virgin && o->group_count == 0 && !e->is_claimed;
	if (is_cooling) {
		e->last = marks_tick(m);
		if (e->first == 0)
			e->first = e->last;
	}
	put_done(m, e);
	return batch;
}

void marks_put_whole_locked(struct marks *m, uint64_t object, uint64_t size, bool is_virgin)
{
	assert(m->is_composing);
	(void)put_whole(m, object, size, is_virgin, /* is_cooling= */ false); /* flushed by the caller */
}

void marks_put_whole(struct marks *m, uint64_t object, uint64_t size)
{
	uint64_t batch;

	if (MARKS_OFF)
		return;
	pthread_mutex_lock(&m->lock);
	batch = put_whole(m, object, size, /* is_virgin= */ false, /* is_cooling= */ true);
	marks_submit(m);
	flush_and_unlock(m, batch);
}
