/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of all entries: linear hashing, which grows by one bucket at a time, so
 * that no change ever waits for a million entries to be moved.
 */

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "journal/marks_internal.h"
#include "util/cleanup.h"

static uint32_t hash_of(enum marks_kind kind, uint64_t id, const char *name, size_t length)
{
	uint64_t h = (id * 4 + kind) * 0x9e3779b97f4a7c15u;

	if (kind == MARKS_NAME)
		h = XXH3_64bits_withSeed(name, length, h);
	h ^= h >> 32;
	return (uint32_t)(h * 0xd6e8feb9u >> 7);
}

/* The highest power of two that is not above @n. */
static size_t power_below(size_t n)
{
	return (size_t)1 << (63 - __builtin_clzll(n));
}

static struct entry **bucket_of(const struct marks *m, uint32_t hash)
{
	size_t low = power_below(m->bucket_count), b = hash & (low * 2 - 1);

	if (b >= m->bucket_count)
		b -= low;
	return &m->segments[b / SEGMENT_BUCKETS][b % SEGMENT_BUCKETS];
}

/* Room for bucket @b; false: no memory. */
static bool bucket_alloc(struct marks *m, size_t b)
{
	size_t segment = b / SEGMENT_BUCKETS;

	if (segment >= m->segment_room) {
		size_t room = m->segment_room ? m->segment_room * 2 : 8;
		struct entry ***segments = realloc(m->segments, room * sizeof(*segments));

		if (!segments)
			return false;
		memset(segments + m->segment_room, 0, (room - m->segment_room) * sizeof(*segments));
		m->segments = segments;
		m->segment_room = room;
	}
	if (!m->segments[segment])
		m->segments[segment] = calloc(SEGMENT_BUCKETS, sizeof(struct entry *));
	return m->segments[segment];
}

/* Adds a bucket and splits the one that it is taken from. Without memory the chains
 * only become longer. */
static void table_grow(struct marks *m)
{
	size_t b = m->bucket_count, from;
	struct entry **link, **to;

	if (b > UINT32_MAX / 2 || !bucket_alloc(m, b))
		return;
	m->bucket_count++;
	if (b == 0)
		return;
	from = b - power_below(b);
	link = &m->segments[from / SEGMENT_BUCKETS][from % SEGMENT_BUCKETS];
	to = &m->segments[b / SEGMENT_BUCKETS][b % SEGMENT_BUCKETS];
	while (*link) {
		struct entry *e = *link;

		if (bucket_of(m, e->hash) == to) {
			*link = e->hash_next;
			e->hash_next = *to;
			*to = e;
		} else {
			link = &e->hash_next;
		}
	}
}

static struct entry *find(const struct marks *m, enum marks_kind kind, uint64_t id,
			  const char *name, size_t length, uint32_t hash)
{
	struct entry *e;

	if (m->bucket_count == 0)
		return NULL;
	for (e = *bucket_of(m, hash); e; e = e->hash_next)
		if (e->hash == hash && e->id == id && e->kind == kind &&
		    (kind != MARKS_NAME ||
		     (name_of(e)->length == length && memcmp(name_of(e)->name, name, length) == 0)))
			return e;
	return NULL;
}

struct entry *marks_find(const struct marks *m, enum marks_kind kind, uint64_t id, const char *name)
{
	size_t length = kind == MARKS_NAME ? strlen(name) : 0;

	return find(m, kind, id, name, length, hash_of(kind, id, name, length));
}

static struct entry *object_new(void)
{
	struct object_entry *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	o->tail = o->tail_persisted = TAIL_NONE;
	return &o->e;
}

static struct entry *name_new(struct marks *m, uint64_t dir, const char *name, size_t length)
{
	_cleanup_free_ struct name_entry *n = calloc(1, sizeof(*n) + length + 1);
	struct entry *parent;

	if (!n)
		return NULL;
	parent = marks_get(m, MARKS_OBJECT, dir, NULL);
	if (!parent)
		return NULL;
	n->dir = object_of(parent);
	if (n->dir->names++ == 0)
		m->dirs++;
	n->length = (uint8_t)length;
	memcpy(n->name, name, length + 1);
	return &TAKE_PTR(n)->e;
}

struct entry *marks_get(struct marks *m, enum marks_kind kind, uint64_t id, const char *name)
{
	size_t length = kind == MARKS_NAME ? strlen(name) : 0;
	uint32_t hash = hash_of(kind, id, name, length);
	struct entry *e = find(m, kind, id, name, length, hash), **bucket;

	if (e)
		return e;
	assert(length <= JOURNAL_NAME_MAX);

	if (m->bucket_count == 0) {
		table_grow(m);
		if (m->bucket_count == 0)
			return NULL;
	}
	if (kind == MARKS_NAME)
		e = name_new(m, id, name, length);
	else if (kind == MARKS_OBJECT)
		e = object_new();
	else
		e = calloc(1, sizeof(*e));
	if (!e)
		return NULL;
	e->id = id;
	e->kind = kind;
	e->hash = hash;
	e->is_complete = !m->spill[kind].is_active;
	if (m->entry_count >= m->bucket_count)
		table_grow(m);
	bucket = bucket_of(m, hash);
	e->hash_next = *bucket;
	*bucket = e;
	m->entry_count++;
	m->count[kind]++;
	return e;
}

void marks_entry_free(struct marks *m, struct entry *e)
{
	struct entry **link = bucket_of(m, e->hash);
	struct object_entry *dir = NULL;

	assert(e->queue == QUEUE_NONE);
	assert(e->writers == 0);
	assert(!e->is_marked && !e->is_covered && !e->is_held);

	while (*link != e)
		link = &(*link)->hash_next;
	*link = e->hash_next;
	m->entry_count--;
	m->count[e->kind]--;
	marks_set_compare(m, e, false);

	if (e->kind == MARKS_NAME) {
		dir = name_of(e)->dir;
		assert(dir->names > 0);
		if (--dir->names == 0)
			m->dirs--;
	} else if (e->kind == MARKS_OBJECT) {
		struct object_entry *o = object_of(e);

		assert(o->names == 0);
		assert(!o->claim && o->data_claims == 0 && !o->writers);
		assert(o->group_count == 0 && o->tail == TAIL_NONE);
		free(o->groups);
	}
	free(e);
	if (dir)
		marks_settle(m, &dir->e);
}

void marks_table_each(struct marks *m, void (*call)(struct marks *m, struct entry *e))
{
	for (size_t b = 0; b < m->bucket_count; b++) {
		struct entry *e = m->segments[b / SEGMENT_BUCKETS][b % SEGMENT_BUCKETS];

		while (e) {
			struct entry *next = e->hash_next;

			call(m, e);
			e = next;
		}
	}
}

static void entry_end(struct marks *m, struct entry *e)
{
	(void)m;
	if (e->kind == MARKS_OBJECT) {
		struct object_entry *o = object_of(e);

		for (size_t i = 0; i < o->group_count; i++) {
			if (o->groups[i]->part && !o->claim)
				free(o->groups[i]->part->claim);
			free(o->groups[i]);
		}
		free(o->groups);
		free(o->claim);
	}
	free(e);
}

void marks_table_done(struct marks *m)
{
	marks_table_each(m, entry_end);
	for (size_t i = 0; i < m->segment_room; i++)
		free(m->segments[i]);
	free(m->segments);
}
