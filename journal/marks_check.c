/* SPDX-License-Identifier: Apache-2.0 */
/* The invariants of marks_internal.h, asserted over the whole of memory. */

#include "journal/marks_internal.h"

static uint64_t dirty_blocks, tail_bytes;
static size_t marked[MARKS_KIND_MAX], count[MARKS_KIND_MAX], dirs, held, covered, covered_of_dirs;

static void check_group(const struct object_entry *o, const struct group *g)
{
	struct bits stray;

	dirty_blocks += bits_count(&g->dirty);
	assert(!bits_is_empty(&g->dirty));
	if (g->number >= o->tail)
		assert(g->part || o->claim);
	/* Each dirty block has a record: the group's, or the tail's. */
	if (!g->is_own)
		assert(g->number >= o->tail_persisted);
	if (g->part) {
		assert(g->part->group == g);
		assert(g->part->claim->object == o);
		stray = bits_and_not(g->part->claimed, g->dirty);
		assert(bits_is_empty(&stray));
		stray = bits_and_not(g->part->redirty, g->part->claimed);
		assert(bits_is_empty(&stray));
	}
}

/* No block that a change in flight touches is claimed and to be cleared. */
static void check_writers(const struct object_entry *o)
{
	size_t writers = 0;

	for (const struct marks_item *w = o->writers; w; w = w->next)
		writers++;
	assert(writers <= o->e.writers);
	if (writers == 0)
		return;
	for (size_t i = 0; i < o->group_count; i++) {
		const struct group *g = o->groups[i];
		struct bits touched = marks_in_flight(o, g->number), at_risk;

		if (!g->part)
			continue;
		at_risk = bits_and(touched, bits_and_not(g->part->claimed, g->part->redirty));
		assert(bits_is_empty(&at_risk));
	}
	if (o->claim)
		assert(o->claim->attr_redirtied);
}

static void check_object(struct object_entry *o)
{
	uint64_t offset = o->tail * MARKS_GROUP_BYTES;
	bool is_implied = o->group_count > 0 || o->tail_persisted != TAIL_NONE;

	for (size_t i = 0; i < o->group_count; i++) {
		assert(i == 0 || o->groups[i - 1]->number < o->groups[i]->number);
		check_group(o, o->groups[i]);
	}
	if (o->tail != TAIL_NONE) {
		assert(o->tail_persisted <= o->tail);
		if (o->size_hint > offset)
			tail_bytes += o->size_hint - offset;
	}
	if (marks_has_data(o))
		assert(o->e.is_marked);
	if (o->e.is_marked)
		assert(o->e.has_own || is_implied);
	if (o->claim && o->claim->has_tail) {
		assert(o->claim->tail == o->tail);
		assert(o->claim->tail_end > o->claim->tail);
	}
	assert(!o->claim || o->data_claims == 0);
	assert(o->e.is_claimed == (o->claim || o->data_claims > 0));
	check_writers(o);
}

/* The scan of the name's directory has a record, or is spilled. */
static void check_covered(struct marks *m, const struct entry *e)
{
	const struct entry *s = marks_find(m, MARKS_SCAN, e->id, NULL);

	assert(e->is_marked);
	assert(name_of((struct entry *)e)->dir->covered > 0);
	assert(s ? s->is_marked || s->is_held : m->spill[MARKS_SCAN].is_active);
}

static void check_entry(struct marks *m, struct entry *e)
{
	count[e->kind]++;
	if (e->is_marked)
		marked[e->kind]++;
	assert(e->is_marked || e->queue == QUEUE_NONE);
	if (e->is_marked && !e->is_claimed && e->writers == 0 && e->queue == QUEUE_NONE)
		assert(e->kind == MARKS_OBJECT &&
		       (e->is_unpaired || object_of(e)->names > 0)); /* else who wakes it? */
	if (e->kind == MARKS_OBJECT) {
		dirs += object_of(e)->names > 0;
		covered_of_dirs += object_of(e)->covered;
		assert(object_of(e)->covered <= object_of(e)->names);
		check_object(object_of(e));
		assert(e->is_marked || e->writers > 0 || e->is_claimed || object_of(e)->names > 0);
		return;
	}
	assert(e->is_marked || e->is_claimed || e->writers > 0 || e->is_held);
	if (e->is_held) {
		held++;
		assert(e->kind == MARKS_SCAN && !e->is_marked);
		assert(object_of(marks_find(m, MARKS_OBJECT, e->id, NULL))->covered > 0);
	}
	if (e->is_covered) {
		covered++;
		check_covered(m, e);
	}
	if (e->is_claimed)
		assert(e->writers == 0 || e->is_redirtied);
	if (e->kind == MARKS_NAME)
		assert(&name_of(e)->dir->e == marks_find(m, MARKS_OBJECT, e->id, NULL));
}

void marks_check(struct marks *m)
{
	pthread_mutex_lock(&m->lock);
	dirty_blocks = tail_bytes = 0;
	dirs = held = covered = covered_of_dirs = 0;
	for (unsigned kind = 0; kind < MARKS_KIND_MAX; kind++)
		marked[kind] = count[kind] = 0;
	marks_table_each(m, check_entry);
	for (unsigned kind = 0; kind < MARKS_KIND_MAX; kind++) {
		assert(marked[kind] == m->marked[kind]);
		assert(count[kind] == m->count[kind]);
	}
	assert(dirs == m->dirs);
	assert(held == m->held);
	assert(covered == m->covered && covered == covered_of_dirs);
	assert(dirty_blocks == m->dirty_blocks);
	assert(tail_bytes == m->tail_bytes);
	pthread_mutex_unlock(&m->lock);
}
