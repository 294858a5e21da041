/* SPDX-License-Identifier: Apache-2.0 */
/* Dirty data of one object: groups, tail, and their records. See marks_internal.h. */

#include <stdlib.h>
#include <string.h>

#include "journal/marks_internal.h"

/* ---- bits ---------------------------------------------------------------- */

struct bits bits_range(unsigned from, unsigned to)
{
	struct bits b = { { 0 } };

	assert(from <= to);
	assert(to <= MARKS_GROUP_BLOCKS);
	for (unsigned i = from / 64; i * 64 < to; i++) {
		unsigned low = from > i * 64 ? from - i * 64 : 0;
		unsigned high = to - i * 64 < 64 ? to - i * 64 : 64;

		b.word[i] = (~0ull >> (64 - high + low)) << low;
	}
	return b;
}

unsigned bits_count(const struct bits *b)
{
	unsigned n = 0;

	for (unsigned i = 0; i < 4; i++)
		n += (unsigned)__builtin_popcountll(b->word[i]);
	return n;
}

struct bits marks_touched(uint64_t number, uint64_t offset, uint64_t end)
{
	uint64_t start = number * MARKS_GROUP_BYTES;
	unsigned from = 0, to = MARKS_GROUP_BLOCKS;

	if (end <= start || offset >= start + MARKS_GROUP_BYTES)
		return (struct bits){ { 0 } };
	if (offset > start)
		from = (unsigned)((offset - start) / MARKS_BLOCK_BYTES);
	if (end - start < MARKS_GROUP_BYTES)
		to = (unsigned)((end - start + MARKS_BLOCK_BYTES - 1) / MARKS_BLOCK_BYTES);
	return bits_range(from, to);
}

/* ---- groups -------------------------------------------------------------- */

size_t marks_group_index(const struct object_entry *o, uint64_t number)
{
	size_t low = 0, high = o->group_count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (o->groups[middle]->number < number)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct group *marks_group_insert(struct object_entry *o, size_t index, uint64_t number,
				 uint64_t batch)
{
	struct group *g;

	if (o->group_count == o->group_room) {
		uint32_t room = o->group_room ? o->group_room * 2 : 2;
		struct group **groups = realloc(o->groups, room * sizeof(*groups));

		if (!groups)
			return NULL;
		o->groups = groups;
		o->group_room = room;
	}
	g = calloc(1, sizeof(*g));
	if (!g)
		return NULL;
	g->number = number;
	g->batch = batch;
	memmove(o->groups + index + 1, o->groups + index,
		(o->group_count - index) * sizeof(*o->groups));
	o->groups[index] = g;
	o->group_count++;
	return g;
}

void marks_group_put(struct marks *m, const struct object_entry *o, struct group *g)
{
	marks_put(m, JOURNAL_MARK_DATA, o->e.id, g->number, NULL, 0);
	g->is_own = true;
	g->batch = m->batch;
}

void marks_group_set_dirty(struct marks *m, struct group *g, struct bits bits)
{
	struct bits fresh = bits_and_not(bits, g->dirty);

	if (bits_is_empty(&fresh))
		return;
	m->dirty_blocks += bits_count(&fresh);
	g->dirty = bits_or(g->dirty, fresh);
}

/* Ends group @g, of no claim; its record goes too. */
static void group_end(struct marks *m, struct object_entry *o, struct group *g)
{
	assert(!g->part);
	m->dirty_blocks -= bits_count(&g->dirty);
	if (g->is_own)
		marks_delete(m, JOURNAL_MARK_DATA, o->e.id, g->number, NULL);
	free(g);
}

bool marks_has_data(const struct object_entry *o)
{
	return o->group_count > 0 || o->tail != TAIL_NONE;
}

/* ---- changes in flight --------------------------------------------------- */

/* More groups than that are not worth to be told apart. */
static bool is_endless(const struct marks *m, uint64_t offset, uint64_t end)
{
	return end == MARKS_INFINITY ||
	       (end - 1) / MARKS_GROUP_BYTES - offset / MARKS_GROUP_BYTES >=
		       m->limits.groups_per_object_max;
}

struct bits marks_in_flight(const struct object_entry *o, uint64_t number)
{
	struct bits bits = { { 0 } };

	for (const struct marks_item *w = o->writers; w; w = w->next)
		if (w->offset < w->end)
			bits = bits_or(bits, marks_touched(number, w->offset, w->end));
	return bits;
}

uint64_t marks_in_flight_from(const struct marks *m, const struct object_entry *o, uint64_t from)
{
	uint64_t lowest = TAIL_NONE;

	for (const struct marks_item *w = o->writers; w; w = w->next) {
		uint64_t number = w->offset / MARKS_GROUP_BYTES;

		if (w->offset >= w->end || !is_endless(m, w->offset, w->end) ||
		    (w->end - 1) / MARKS_GROUP_BYTES < from)
			continue;
		if (number < from)
			number = from;
		if (number < lowest)
			lowest = number;
	}
	return lowest;
}

bool marks_object_is_claimable(const struct marks *m, const struct object_entry *o)
{
	if (!o->e.is_marked || o->claim || o->data_claims > 0 || o->names > 0 || o->e.is_unpaired)
		return false;
	if (o->e.writers == 0)
		return true;
	/* Only with idle data: attr alone would be worked off in vain, again and again. */
	for (size_t i = 0; i < o->group_count; i++) {
		const struct group *g = o->groups[i];
		struct bits idle = bits_and_not(g->dirty, marks_in_flight(o, g->number));

		if (!bits_is_empty(&idle))
			return true;
	}
	return o->tail != TAIL_NONE && marks_in_flight_from(m, o, o->tail) > o->tail;
}

/* ---- tail ---------------------------------------------------------------- */

static uint64_t tail_bytes(const struct object_entry *o)
{
	uint64_t offset;

	if (o->tail == TAIL_NONE)
		return 0;
	offset = o->tail * MARKS_GROUP_BYTES;
	return o->size_hint > offset ? o->size_hint - offset : 0;
}

void marks_tail_set(struct marks *m, struct object_entry *o, uint64_t tail)
{
	m->tail_bytes -= tail_bytes(o);
	o->tail = tail;
	m->tail_bytes += tail_bytes(o);
}

void marks_size_hint(struct marks *m, struct object_entry *o, uint64_t size)
{
	m->tail_bytes -= tail_bytes(o);
	o->size_hint = size;
	m->tail_bytes += tail_bytes(o);
}

/* Whether the journal may have marks of @o that memory does not know. */
static bool is_partial(const struct marks *m, const struct object_entry *o)
{
	return m->spill[MARKS_OBJECT].is_active && !o->e.is_complete;
}

void marks_tail_lower(struct marks *m, struct object_entry *o, uint64_t tail)
{
	uint64_t before = m->tail_bytes + m->dirty_blocks * MARKS_BLOCK_BYTES, after;
	size_t i, keep;

	/* Our record would replace one that may begin anywhere. */
	if (o->tail == TAIL_NONE && is_partial(m, o))
		tail = 0;
	if (tail >= o->tail)
		return;
	marks_tail_set(m, o, tail);
	o->e.is_virgin = false;
	if (o->claim)
		o->claim->has_tail = false; /* all from here on stays dirty */

	i = keep = marks_group_index(o, tail);
	for (; i < o->group_count; i++) {
		struct group *g = o->groups[i];

		if (g->part) {
			marks_group_set_dirty(m, g, BITS_ALL);
			o->groups[keep++] = g;
		} else {
			group_end(m, o, g);
		}
	}
	o->group_count = (uint32_t)keep;

	if (tail < o->tail_persisted) {
		marks_put(m, JOURNAL_MARK_DATA, o->e.id, JOURNAL_TAIL, NULL,
			  tail * MARKS_GROUP_BYTES);
		o->tail_persisted = tail;
		o->tail_batch = m->batch;
	}
	after = m->tail_bytes + m->dirty_blocks * MARKS_BLOCK_BYTES;
	if (after > before)
		m->dirtied_bytes += after - before;
}

/* ---- marking ------------------------------------------------------------- */

void marks_data_redirty(struct object_entry *o, uint64_t offset, uint64_t end)
{
	uint64_t last;

	if (o->claim) {
		o->claim->attr_redirtied = true;
		o->claim->is_redirtied = true;
	}
	if (offset >= end)
		return;
	last = (end - 1) / MARKS_GROUP_BYTES;
	for (size_t i = marks_group_index(o, offset / MARKS_GROUP_BYTES);
	     i < o->group_count && o->groups[i]->number <= last; i++) {
		struct part *part = o->groups[i]->part;
		struct bits bits;

		if (!part)
			continue;
		bits = bits_and(marks_touched(o->groups[i]->number, offset, end), part->claimed);
		if (!bits_is_empty(&bits))
			part->claim->is_redirtied = true;
		part->redirty = bits_or(part->redirty, bits);
	}
}

/* Marks group @number for [@offset, @end); false: no memory. */
static bool group_mark(struct marks *m, struct object_entry *o, uint64_t number, uint64_t offset,
		       uint64_t end, uint64_t *ret_batch)
{
	size_t i = marks_group_index(o, number);
	struct bits bits = marks_touched(number, offset, end), fresh;
	struct group *g = i < o->group_count ? o->groups[i] : NULL;

	if (!g || g->number != number) {
		/* Past the tail: written during a claim of it, whose record covers this. */
		bool is_own = number < o->tail;

		g = marks_group_insert(o, i, number, o->tail_batch);
		if (!g)
			return false;
		if (is_own)
			marks_group_put(m, o, g);
		if (is_partial(m, o))
			bits = BITS_ALL;
	}
	fresh = bits_and_not(bits, g->dirty);
	if (!bits_is_empty(&fresh)) {
		m->dirtied_bytes += (uint64_t)bits_count(&fresh) * MARKS_BLOCK_BYTES;
		marks_group_set_dirty(m, g, fresh);
	}
	if (o->bulk_end > 0) {
		g->last = marks_tick(m);
		if (g->first == 0)
			g->first = g->last;
	}
	*ret_batch = g->batch;
	return true;
}

/* [@offset, infinity). */
static uint64_t tail_mark(struct marks *m, struct object_entry *o, uint64_t offset)
{
	uint64_t number = offset / MARKS_GROUP_BYTES;
	struct claim *claim = o->claim;

	if (number < o->tail) {
		marks_tail_lower(m, o, number);
	} else if (claim && claim->has_tail && number < claim->tail_end) {
		claim->tail_end = number;
		if (number == claim->tail) {
			claim->has_tail = false;
			o->e.is_virgin = false; /* its worker may have written */
		}
	}
	return o->tail_batch;
}

/* Too many groups: the upper half of them becomes tail, or stays tail after the claim
 * of it that they were written during. */
void marks_groups_limit(struct marks *m, struct object_entry *o)
{
	uint64_t number;
	size_t i, keep;

	if (o->group_count <= m->limits.groups_per_object_max)
		return;
	number = o->groups[o->group_count / 2]->number;
	if (number < o->tail) {
		marks_tail_lower(m, o, number);
		return;
	}
	if (!o->claim || !o->claim->has_tail)
		return;
	(void)tail_mark(m, o, number * MARKS_GROUP_BYTES);
	keep = marks_group_index(o, number);
	for (i = keep; i < o->group_count; i++)
		group_end(m, o, o->groups[i]);
	o->group_count = (uint32_t)keep;
}

static uint64_t ranges_mark(struct marks *m, struct object_entry *o, uint64_t offset, uint64_t end)
{
	uint64_t last = (end - 1) / MARKS_GROUP_BYTES, batch = 0, b;

	for (uint64_t number = offset / MARKS_GROUP_BYTES; number <= last; number++) {
		/* What of the tail is not claimed is dirty already. */
		uint64_t free_from = o->claim && o->claim->has_tail ? o->claim->tail_end : o->tail;

		if (number >= free_from || !group_mark(m, o, number, offset, end, &b)) {
			b = tail_mark(m, o, number * MARKS_GROUP_BYTES);
			return b > batch ? b : batch;
		}
		if (b > batch)
			batch = b;
	}
	if (o->group_count > m->limits.groups_per_object_max) {
		marks_groups_limit(m, o);
		if (o->tail_batch > batch)
			batch = o->tail_batch;
	}
	return batch;
}

uint64_t marks_data_mark(struct marks *m, struct object_entry *o, uint64_t offset, uint64_t end)
{
	uint64_t batch;

	if (offset >= end)
		return marks_attr_mark(m, o);
	if (o->claim || o->data_claims > 0)
		marks_data_redirty(o, offset, end);
	if (is_endless(m, offset, end))
		batch = tail_mark(m, o, offset);
	else
		batch = ranges_mark(m, o, offset, end);

	/* Attr is implied by what was put just now, or was marked before. */
	if (!o->e.is_marked) {
		marks_set_marked(m, &o->e, true);
		o->e.has_own = false;
		o->e.batch = batch;
	}
	return batch > o->e.batch ? batch : o->e.batch;
}

uint64_t marks_attr_mark(struct marks *m, struct object_entry *o)
{
	if (o->claim) {
		o->claim->attr_redirtied = true;
		o->claim->is_redirtied = true;
	}
	if (!o->e.is_marked) {
		marks_set_marked(m, &o->e, true);
		marks_put(m, JOURNAL_MARK_ATTR, o->e.id, 0, NULL, 0);
		o->e.has_own = true;
		o->e.batch = m->batch;
	}
	return o->e.batch;
}

/* ---- after a claim ------------------------------------------------------- */

/* Where the tail's record has to begin: it also covers groups that were born from it. */
static uint64_t tail_lowest(const struct object_entry *o)
{
	size_t i;

	if (o->tail_persisted == TAIL_NONE)
		return o->tail;
	for (i = marks_group_index(o, o->tail_persisted); i < o->group_count; i++)
		if (!o->groups[i]->is_own)
			return o->groups[i]->number < o->tail ? o->groups[i]->number : o->tail;
	return o->tail;
}

/* Moves the tail's record up to what only it covers. */
static void tail_record_settle(struct marks *m, struct object_entry *o)
{
	uint64_t lowest;

	if (o->tail_persisted == TAIL_NONE)
		return;
	lowest = tail_lowest(o);
	assert(lowest >= o->tail_persisted);
	if (lowest == o->tail_persisted)
		return;
	o->tail_persisted = lowest;
	if (lowest == TAIL_NONE) {
		marks_delete(m, JOURNAL_MARK_DATA, o->e.id, JOURNAL_TAIL, NULL);
		o->tail_batch = 0;
	} else {
		marks_put(m, JOURNAL_MARK_DATA, o->e.id, JOURNAL_TAIL, NULL,
			  lowest * MARKS_GROUP_BYTES);
	}
}

void marks_data_settle(struct marks *m, struct object_entry *o, size_t from, size_t to)
{
	size_t keep = from;

	assert(to <= o->group_count);
	for (size_t i = from; i < to; i++) {
		struct group *g = o->groups[i];

		if (!g->part && (bits_is_empty(&g->dirty) || g->number >= o->tail)) {
			group_end(m, o, g);
			continue;
		}
		o->groups[keep++] = g;
		if (!g->part && !g->is_own) {
			/* So that it does not hold the tail's record back. It has been
			 * covered all the time. */
			uint64_t batch = g->batch;

			marks_group_put(m, o, g);
			g->batch = batch;
		}
	}
	if (keep < to)
		memmove(o->groups + keep, o->groups + to,
			(o->group_count - to) * sizeof(*o->groups));
	o->group_count -= (uint32_t)(to - keep);
	tail_record_settle(m, o);
	if (o->group_count == 0) {
		free(o->groups);
		o->groups = NULL;
		o->group_room = 0;
	}
}

void marks_attr_settle(struct marks *m, struct object_entry *o)
{
	bool is_implied = o->group_count > 0 || o->tail_persisted != TAIL_NONE;

	if (!o->e.is_marked || o->e.has_own || is_implied)
		return;
	marks_put(m, JOURNAL_MARK_ATTR, o->e.id, 0, NULL, 0);
	o->e.has_own = true;
}

void marks_data_drop(struct marks *m, struct object_entry *o, bool is_recorded)
{
	for (size_t i = 0; i < o->group_count; i++) {
		struct group *g = o->groups[i];

		if (g->part)
			g->part->group = NULL;
		g->part = NULL;
		if (is_recorded)
			g->is_own = false; /* the record stays */
		group_end(m, o, g);
	}
	free(o->groups);
	o->groups = NULL;
	o->group_count = o->group_room = 0;
	marks_tail_set(m, o, TAIL_NONE);
	if (o->claim)
		o->claim->has_tail = false;
	if (!is_recorded && o->tail_persisted != TAIL_NONE)
		marks_delete(m, JOURNAL_MARK_DATA, o->e.id, JOURNAL_TAIL, NULL);
	o->tail_persisted = TAIL_NONE;
	o->tail_batch = 0;
	o->e.is_virgin = false;
}
