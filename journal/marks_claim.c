/* SPDX-License-Identifier: Apache-2.0 */
/* Claims of an object's data and attr: which blocks, and how they end. */

#include <errno.h>
#include <stdlib.h>

#include "journal/marks_internal.h"
#include "util/cleanup.h"

/* ---- ranges -------------------------------------------------------------- */

struct ranges {
	struct marks_range *items;
	uint32_t count, room;
};

static void ranges_done(struct ranges *r)
{
	free(r->items);
}

/* Appends [@offset, @end), to the last one where they meet and @is_joined. */
static bool ranges_add(struct ranges *r, uint64_t offset, uint64_t end, bool is_joined)
{
	if (offset == end)
		return true;
	if (is_joined && r->count > 0 && r->items[r->count - 1].end == offset) {
		r->items[r->count - 1].end = end;
		return true;
	}
	if (r->count == r->room) {
		uint32_t room = r->room ? r->room * 2 : 4;
		struct marks_range *items = realloc(r->items, room * sizeof(*items));

		if (!items)
			return false;
		r->items = items;
		r->room = room;
	}
	r->items[r->count++] = (struct marks_range){ offset, end };
	return true;
}

/* The first bit at or after @from that is @is_set, or MARKS_GROUP_BLOCKS. */
static unsigned bits_next(const struct bits *b, unsigned from, bool is_set)
{
	while (from < MARKS_GROUP_BLOCKS) {
		uint64_t word = is_set ? b->word[from / 64] : ~b->word[from / 64];

		word >>= from % 64;
		if (word)
			return from + (unsigned)__builtin_ctzll(word);
		from = (from / 64 + 1) * 64;
	}
	return MARKS_GROUP_BLOCKS;
}

static bool ranges_add_bits(struct ranges *r, uint64_t number, const struct bits *bits)
{
	uint64_t start = number * MARKS_GROUP_BYTES;
	unsigned from = bits_next(bits, 0, true);

	while (from < MARKS_GROUP_BLOCKS) {
		unsigned to = bits_next(bits, from, false);

		if (!ranges_add(r, start + (uint64_t)from * MARKS_BLOCK_BYTES,
				start + (uint64_t)to * MARKS_BLOCK_BYTES, true))
			return false;
		from = bits_next(bits, to, true);
	}
	return true;
}

/* ---- claims -------------------------------------------------------------- */

static struct claim *claim_new(struct object_entry *o, size_t parts_max)
{
	struct claim *claim = calloc(1, sizeof(*claim) + parts_max * sizeof(claim->parts[0]));

	if (claim)
		claim->object = o;
	return claim;
}

static void claim_add(struct claim *claim, struct group *g, struct bits claimed)
{
	claim->parts[claim->count++] =
		(struct part){ .group = g, .claim = claim, .claimed = claimed };
}

static void claim_publish(struct marks *m, struct claim *claim, struct ranges *ranges,
			  struct marks_task *task)
{
	struct object_entry *o = claim->object;

	for (uint32_t i = 0; i < claim->count; i++) {
		struct group *g = claim->parts[i].group;

		assert(!g->part);
		g->part = &claim->parts[i];
		g->first = g->last = 0;
	}
	o->e.is_claimed = true;
	o->e.is_paired = false;
	m->claimed++;

	task->object = o->e.id;
	task->ranges = TAKE_PTR(ranges->items);
	task->range_count = ranges->count;
	task->attempts = o->e.attempts;
	task->entry = &o->e;
	task->claim = claim;
}

uint64_t marks_claim_batch(const struct claim *claim)
{
	const struct object_entry *o = claim->object;
	uint64_t batch = o->e.batch;

	for (uint32_t i = 0; i < claim->count; i++)
		if (claim->parts[i].group->batch > batch)
			batch = claim->parts[i].group->batch;
	if (claim->has_tail && o->tail_batch > batch)
		batch = o->tail_batch;
	return batch;
}

/* Keeps finite changes in flight out of the tail that @claim takes: as dirty groups. */
static void tail_keep_out(struct marks *m, struct object_entry *o, struct claim *claim)
{
	for (const struct marks_item *w = o->writers; w; w = w->next) {
		uint64_t number = w->offset / MARKS_GROUP_BYTES, last;

		if (w->offset >= w->end)
			continue;
		last = (w->end - 1) / MARKS_GROUP_BYTES;
		if (number < claim->tail)
			number = claim->tail;
		for (; number <= last && number < claim->tail_end; number++) {
			size_t i = marks_group_index(o, number);
			struct group *g = i < o->group_count ? o->groups[i] : NULL;

			if (!g || g->number != number)
				g = marks_group_insert(o, i, number, o->tail_batch);
			if (!g) {
				claim->tail_end = number;
				break;
			}
			marks_group_set_dirty(m, g, marks_touched(number, w->offset, w->end));
		}
	}
	claim->has_tail = claim->tail_end > claim->tail;
}

static bool tail_ranges(struct object_entry *o, const struct claim *claim, struct ranges *ranges)
{
	uint64_t offset = claim->tail * MARKS_GROUP_BYTES;
	bool is_joined = !o->e.is_virgin;

	for (size_t i = marks_group_index(o, claim->tail);
	     i < o->group_count && o->groups[i]->number < claim->tail_end; i++) {
		const struct group *g = o->groups[i];
		struct bits free_bits = bits_and_not(BITS_ALL, g->dirty);

		if (!ranges_add(ranges, offset, g->number * MARKS_GROUP_BYTES, is_joined) ||
		    !ranges_add_bits(ranges, g->number, &free_bits))
			return false;
		offset = (g->number + 1) * MARKS_GROUP_BYTES;
		is_joined = true;
	}
	return ranges_add(ranges, offset,
			  claim->tail_end == TAIL_NONE ? MARKS_INFINITY
						       : claim->tail_end * MARKS_GROUP_BYTES,
			  is_joined);
}

int marks_claim_object(struct marks *m, struct object_entry *o, struct marks_task *task)
{
	_cleanup_free_ struct claim *claim = NULL;
	_cleanup_(ranges_done) struct ranges ranges = { 0 };
	bool is_ok = true;

	if (!marks_object_is_claimable(m, o))
		return 0;
	claim = claim_new(o, o->group_count);
	if (!claim)
		return -ENOMEM;
	claim->is_object = true;
	claim->attr_redirtied = o->e.writers > 0;

	for (size_t i = 0; i < o->group_count && is_ok; i++) {
		struct group *g = o->groups[i];
		struct bits idle = bits_and_not(g->dirty, marks_in_flight(o, g->number));

		assert(g->number < o->tail);
		if (bits_is_empty(&idle))
			continue;
		claim_add(claim, g, idle);
		is_ok = ranges_add_bits(&ranges, g->number, &idle);
	}
	if (is_ok && o->tail != TAIL_NONE) {
		claim->tail = o->tail;
		claim->tail_end = marks_in_flight_from(m, o, o->tail);
		tail_keep_out(m, o, claim);
		if (claim->has_tail)
			is_ok = tail_ranges(o, claim, &ranges);
	}
	if (!is_ok || !claim->has_tail) {
		/* What was kept out of a tail that is not claimed goes back into it. */
		size_t from = marks_group_index(o, o->tail);

		marks_data_settle(m, o, from, o->group_count);
	}
	if (!is_ok)
		return -ENOMEM;

	*task = MARKS_TASK_NULL;
	task->kind = MARKS_OBJECT;
	task->virgin_from =
		claim->has_tail && o->e.is_virgin ? o->tail * MARKS_GROUP_BYTES : MARKS_INFINITY;
	task->is_tail_virgin =
		ranges.count > 0 && ranges.items[ranges.count - 1].offset >= task->virgin_from;
	o->claim = claim;
	o->bulk_end = 0;
	o->e.first = o->e.last = 0;
	claim_publish(m, TAKE_PTR(claim), &ranges, task);
	return 1;
}

/* The first group below the bulk's end that may be claimed. */
static struct group *data_find(struct marks *m, struct object_entry *o, uint32_t now,
			       uint32_t *ret_due)
{
	for (size_t i = 0; i < o->group_count; i++) {
		struct group *g = o->groups[i];
		struct bits idle;
		uint32_t due;

		if (g->number * MARKS_GROUP_BYTES >= o->bulk_end)
			break;
		if (g->part)
			continue;
		idle = bits_and_not(g->dirty, marks_in_flight(o, g->number));
		if (bits_is_empty(&idle))
			continue;
		due = marks_cool_due(m, g->first, g->last);
		if (due <= now)
			return g;
		if (due < *ret_due)
			*ret_due = due;
	}
	return NULL;
}

/* Makes the tail's first group one of its own; NULL: there is none now. The tail's
 * record goes on to cover it. */
static struct group *data_from_tail(struct marks *m, struct object_entry *o,
				    bool *ret_is_memory_short)
{
	*ret_is_memory_short = false;
	while (o->tail != TAIL_NONE && o->tail * MARKS_GROUP_BYTES < o->bulk_end) {
		size_t i = marks_group_index(o, o->tail);
		struct bits idle = bits_and_not(BITS_ALL, marks_in_flight(o, o->tail));
		struct group *g;

		if (i < o->group_count && o->groups[i]->number == o->tail) {
			/* Claimed when the tail came down over it: pass it by. */
			assert(o->groups[i]->part);
			marks_group_set_dirty(m, o->groups[i], BITS_ALL);
			marks_tail_set(m, o, o->tail + 1);
			continue;
		}
		if (bits_is_empty(&idle))
			return NULL;
		g = marks_group_insert(o, i, o->tail, o->tail_batch);
		if (!g) {
			*ret_is_memory_short = true;
			return NULL;
		}
		marks_group_set_dirty(m, g, BITS_ALL);
		marks_tail_set(m, o, o->tail + 1);
		return g;
	}
	return NULL;
}

int marks_claim_data(struct marks *m, struct object_entry *o, struct marks_task *task, uint32_t now,
		     uint32_t *ret_due)
{
	_cleanup_free_ struct claim *claim = NULL;
	_cleanup_(ranges_done) struct ranges ranges = { 0 };
	bool is_from_tail = false, is_memory_short;
	struct group *g;
	struct bits idle;

	*ret_due = TICK_NEVER;
	if (o->claim || !o->e.is_marked || o->e.is_unpaired || o->bulk_end == 0)
		return 0;
	g = data_find(m, o, now, ret_due);
	if (!g) {
		g = data_from_tail(m, o, &is_memory_short);
		if (!g)
			return is_memory_short ? -ENOMEM : 0;
		is_from_tail = true;
	}
	idle = bits_and_not(g->dirty, marks_in_flight(o, g->number));
	claim = claim_new(o, 1);
	if (!claim || !ranges_add_bits(&ranges, g->number, &idle))
		return -ENOMEM;
	claim_add(claim, g, idle);

	*task = MARKS_TASK_NULL;
	task->kind = MARKS_DATA;
	task->is_tail_virgin = is_from_tail && o->e.is_virgin;
	task->virgin_from = task->is_tail_virgin ? g->number * MARKS_GROUP_BYTES : MARKS_INFINITY;
	o->data_claims++;
	claim_publish(m, TAKE_PTR(claim), &ranges, task);
	return 1;
}

/* ---- ends ---------------------------------------------------------------- */

/* Clears @bits of @g; not in the tail, which came down over it and stays. */
static bool group_clear(struct marks *m, const struct object_entry *o, struct group *g,
			struct bits bits)
{
	if (g->number >= o->tail)
		return false;
	bits = bits_and(bits, g->dirty);
	m->dirty_blocks -= bits_count(&bits);
	m->cleared_bytes += (uint64_t)bits_count(&bits) * MARKS_BLOCK_BYTES;
	g->dirty = bits_and_not(g->dirty, bits);
	return true;
}

static bool data_claim_end(struct marks *m, struct claim *claim, bool is_clear, uint64_t source_end)
{
	struct object_entry *o = claim->object;
	struct part *part = &claim->parts[0];
	struct group *g = part->group;
	struct bits below = { { 0 } }, bits, left;
	bool is_all = false;
	size_t i;

	assert(o->data_claims > 0);
	o->data_claims--;
	if (!g)
		return false;
	g->part = NULL;
	if (is_clear) {
		if (source_end > 0)
			below = marks_touched(g->number, 0, source_end);
		left = bits_and_not(part->claimed, below);
		if (!bits_is_empty(&left))
			o->bulk_end = 0; /* the end is OBJECT's work */
		bits = bits_and(bits_and_not(part->claimed, part->redirty), below);
		left = bits_and_not(part->claimed, bits);
		is_all = group_clear(m, o, g, bits) && bits_is_empty(&left);
	}
	i = marks_group_index(o, g->number);
	assert(o->groups[i] == g);
	marks_data_settle(m, o, i, i + 1);
	/* The copy spoiled the times. */
	marks_attr_settle(m, o);
	return is_all;
}

static bool object_claim_end(struct marks *m, struct claim *claim, enum claim_end how)
{
	struct object_entry *o = claim->object;
	bool is_clear = how == CLAIM_CLEAR;

	assert(o->claim == claim);
	assert(o->data_claims == 0);
	o->claim = NULL;
	for (uint32_t i = 0; i < claim->count; i++) {
		struct part *part = &claim->parts[i];

		if (!part->group)
			continue;
		part->group->part = NULL;
		if (is_clear)
			(void)group_clear(m, o, part->group,
					  bits_and_not(part->claimed, part->redirty));
	}
	if (claim->has_tail && is_clear) {
		uint64_t before = m->tail_bytes;

		assert(o->tail == claim->tail);
		marks_tail_set(m, o, claim->tail_end);
		m->cleared_bytes += before - m->tail_bytes;
	}
	if (claim->has_tail && how != CLAIM_UNTOUCHED)
		o->e.is_virgin = false;
	marks_data_settle(m, o, 0, o->group_count);

	if (is_clear && !claim->attr_redirtied && !marks_has_data(o) && o->e.is_marked) {
		if (o->e.has_own)
			marks_delete(m, JOURNAL_MARK_ATTR, o->e.id, 0, NULL);
		o->e.has_own = false;
		marks_set_marked(m, &o->e, false);
		m->cleared_objects++;
	} else {
		marks_attr_settle(m, o);
	}
	return is_clear && !o->e.is_marked;
}

bool marks_claim_end(struct marks *m, struct claim *claim, enum claim_end how, uint64_t source_end)
{
	struct object_entry *o = claim->object;
	bool is_all;

	assert(m->claimed > 0);
	m->claimed--;
	is_all = claim->is_object ? object_claim_end(m, claim, how)
				  : data_claim_end(m, claim, how == CLAIM_CLEAR, source_end);
	o->e.is_claimed = o->claim || o->data_claims > 0;
	free(claim);
	return is_all;
}
