/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/model/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "journal/keys.h"
#include "tests/model/memrocks.h"
#include "tests/model/memstore.h"
#include "tests/model/sched.h"
#include "tests/model/world.h"
#include "util/clock.h"

/* ---- the journal as it is on disk ----------------------------------------- */

enum { OBJECTS_MAX = 1024, MARKS_MAX = 2048, INTENTS_MAX = 256 };

struct known {
	uint64_t id;
	struct tree_ref ref[SIDE_MAX]; /* ino 0: not on that side */
};

/* A copy, filled anew by load(). */
static struct {
	struct known objects[OBJECTS_MAX];
	unsigned object_count;
	struct journal_mark marks[MARKS_MAX];
	unsigned mark_count;
	struct intent intents[INTENTS_MAX];
	unsigned intent_count;
	uint64_t id_by_ino[SIDE_MAX][TREE_INODES_MAX]; /* of living inodes; 0: not known */
	char why[512];
} j;

static bool flaw(const char *format, ...) PRINTF_LIKE(1, 2);

static bool flaw(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	(void)vsnprintf(j.why, sizeof(j.why), format, args); /* cut if long */
	va_end(args);
	return false;
}

static void load_object(void *context, const void *key, size_t key_length, const void *value,
			size_t value_length)
{
	struct known *known = &j.objects[j.object_count];
	struct object object;
	uint64_t id;

	(void)context;
	if (!decode_u64(key, key_length, &id) || !decode_object(value, value_length, id, &object))
		sched_fail("an object record cannot be read");
	assert(j.object_count < OBJECTS_MAX);
	*known = (struct known){ .id = id };
	for (enum side side = SIDE_A; side < SIDE_MAX; side++)
		if (!locator_is_null(&object.locator[side]))
			known->ref[side] = memstore_ref(&object.locator[side]);
	j.object_count++;
}

static void load_mark(void *context, const void *key, size_t key_length, const void *value,
		      size_t value_length)
{
	(void)context;
	assert(j.mark_count < MARKS_MAX);
	if (!decode_mark(key, key_length, value, value_length, &j.marks[j.mark_count++]))
		sched_fail("a mark's record cannot be read");
}

static void load_intent(void *context, const void *key, size_t key_length, const void *value,
			size_t value_length)
{
	(void)context;
	do {
		assert(j.intent_count < INTENTS_MAX);
		if (!decode_intent(key, key_length, &value, &value_length, &j.intents[j.intent_count++]))
			sched_fail("an intent's record cannot be read");
	} while (value_length > 0);
}

static void load(void)
{
	j.object_count = j.mark_count = j.intent_count = 0;
	memset(j.id_by_ino, 0, sizeof(j.id_by_ino));
	memrocks_each("object", load_object, NULL);
	memrocks_each("marks", load_mark, NULL);
	memrocks_each("intent", load_intent, NULL);
	for (unsigned i = 0; i < j.object_count; i++)
		for (enum side side = SIDE_A; side < SIDE_MAX; side++)
			if (tree_find(&world->tree[side], j.objects[i].ref[side]))
				j.id_by_ino[side][j.objects[i].ref[side].ino] = j.objects[i].id;
}

static bool has_name_mark(uint64_t dir, const char *name)
{
	for (unsigned i = 0; i < j.mark_count; i++) {
		const struct journal_mark *mark = &j.marks[i];

		if (mark->object != dir)
			continue;
		if (mark->kind == JOURNAL_MARK_SCAN ||
		    (mark->kind == JOURNAL_MARK_NAME && strcmp(mark->name, name) == 0))
			return true;
	}
	return false;
}

static bool has_attr_mark(uint64_t id)
{
	for (unsigned i = 0; i < j.mark_count; i++)
		if (j.marks[i].object == id &&
		    (j.marks[i].kind == JOURNAL_MARK_ATTR || j.marks[i].kind == JOURNAL_MARK_DATA))
			return true;
	return false;
}

static bool has_data_mark(uint64_t id, uint64_t offset)
{
	for (unsigned i = 0; i < j.mark_count; i++) {
		const struct journal_mark *mark = &j.marks[i];

		if (mark->object != id || mark->kind != JOURNAL_MARK_DATA)
			continue;
		if (mark->number == JOURNAL_TAIL ? mark->value <= offset
						 : mark->number == offset / MARKS_GROUP_BYTES)
			return true;
	}
	return false;
}

static bool is_place(const struct place *place, uint64_t dir, const char *name)
{
	return place->dir == dir && (!name || strcmp(place->name, name) == 0);
}

/* Whether an announced operation may be under way that changes the name, ... */
static bool has_name_intent(uint64_t dir, const char *name)
{
	for (unsigned i = 0; i < j.intent_count; i++)
		if (is_place(&j.intents[i].place, dir, name) ||
		    is_place(&j.intents[i].from, dir, name))
			return true;
	return false;
}

/* ... or the times of the object. */
static bool has_object_intent(uint64_t id)
{
	if (has_name_intent(id, NULL))
		return true;
	for (unsigned i = 0; i < j.intent_count; i++)
		if (j.intents[i].object == id)
			return true;
	return false;
}

/* ---- comparing ----------------------------------------------------------- */

static const char *attr_difference(const struct tree_inode *a, const struct tree_inode *b)
{
	if (a->mode != b->mode)
		return "mode";
	if (a->uid != b->uid || a->gid != b->gid)
		return "owner";
	if (!S_ISDIR(a->mode) && a->size != b->size)
		return "size";
	if (a->mtime != b->mtime)
		return "mtime";
	if (a->atime != b->atime)
		return "atime";
	if (a->xattr != b->xattr)
		return "xattr";
	if (a->rdev != b->rdev)
		return "device";
	if (strcmp(a->link_target, b->link_target) != 0)
		return "link target";
	return NULL;
}

/* The first block from @number on that either has and that differs; UINT64_MAX: none. */
static uint64_t block_difference(const struct tree_inode *a, const struct tree_inode *b,
				 uint64_t number)
{
	static const struct tree_block zero;
	const struct tree_inode *both[] = { a, b };
	uint64_t found = UINT64_MAX;

	for (unsigned n = 0; n < 2; n++)
		for (unsigned i = 0; i < both[n]->block_count; i++) {
			uint32_t at = both[n]->blocks[i].number;
			const struct tree_block *x = tree_block(a, at), *y = tree_block(b, at);

			if (at < number || at >= found)
				continue;
			if (memcmp((x ? x : &zero)->cells, (y ? y : &zero)->cells,
				   sizeof(zero.cells)) != 0)
				found = at;
		}
	return found;
}

/* ---- at any moment ------------------------------------------------------- */

static bool is_object_covered(const struct known *known)
{
	const struct tree_inode *a = tree_find(&world->tree[SIDE_A], known->ref[SIDE_A]);
	const struct tree_inode *b = tree_find(&world->tree[SIDE_B], known->ref[SIDE_B]);
	const char *what;

	/* Without a name it is a leftover or dead: check_equal() sees to it. */
	if (!a || a->nlink == 0 || known->ref[SIDE_B].ino == 0)
		return true;
	if (!b)
		return flaw(
			"object %llu is on the source, and was on the target, but is gone there",
			(unsigned long long)known->id);
	for (uint64_t n = block_difference(a, b, 0); n != UINT64_MAX;
	     n = block_difference(a, b, n + 1))
		if (!has_data_mark(known->id, n * BLOCK_BYTES))
			return flaw(
				"object %llu (source %u, target %u) differs in block %llu, and has no mark there",
				(unsigned long long)known->id, known->ref[SIDE_A].ino,
				known->ref[SIDE_B].ino, (unsigned long long)n);
	/* A start marks the root's whatever it finds: limbo may have been made by then. */
	what = known->id == JOURNAL_ROOT_ID ? NULL : attr_difference(a, b);
	if (what && !has_attr_mark(known->id) && !has_object_intent(known->id))
		return flaw("object %llu (source %u, target %u) differs in its %s, and has no mark",
			    (unsigned long long)known->id, known->ref[SIDE_A].ino,
			    known->ref[SIDE_B].ino, what);
	return true;
}

static uint64_t id_at(enum side side, uint32_t dir, const char *name, bool *ret_is_there)
{
	const struct tree *t = &world->tree[side];
	const struct tree_entry *entry;

	for (entry = tree_entry_next(t, dir, 0); entry;
	     entry = tree_entry_next(t, dir, (unsigned)(entry - t->entries) + 1))
		if (strcmp(entry->name, name) == 0) {
			*ret_is_there = true;
			return j.id_by_ino[side][entry->ino];
		}
	*ret_is_there = false;
	return 0;
}

static bool is_limbo_name(const struct known *dir, const char *name)
{
	return dir->id == JOURNAL_ROOT_ID && strncmp(name, ".ferryfs-limbo-", 15) == 0;
}

static bool is_name_covered(const struct known *dir, const char *name)
{
	bool is_on_a, is_on_b;
	uint64_t a, b;

	if (is_limbo_name(dir, name))
		return true;
	a = id_at(SIDE_A, dir->ref[SIDE_A].ino, name, &is_on_a);
	b = id_at(SIDE_B, dir->ref[SIDE_B].ino, name, &is_on_b);
	if (is_on_a == is_on_b && a == b && (a || !is_on_a))
		return true;
	if (has_name_mark(dir->id, name) || has_name_intent(dir->id, name))
		return true;
	return flaw(
		"name '%s' in directory %llu (source %u, target %u) is object %llu on the source and %llu on the target, and has no mark",
		name, (unsigned long long)dir->id, dir->ref[SIDE_A].ino, dir->ref[SIDE_B].ino,
		(unsigned long long)a, (unsigned long long)b);
}

static bool is_dir_covered(const struct known *known)
{
	const struct tree_inode *a = tree_find(&world->tree[SIDE_A], known->ref[SIDE_A]);
	const struct tree_inode *b = tree_find(&world->tree[SIDE_B], known->ref[SIDE_B]);

	if (!a || !b || !S_ISDIR(a->mode) || a->nlink == 0 || b->nlink == 0)
		return true;
	for (enum side side = SIDE_A; side < SIDE_MAX; side++) {
		const struct tree *t = &world->tree[side];
		const struct tree_entry *entry = tree_entry_next(t, known->ref[side].ino, 0);

		for (; entry; entry = tree_entry_next(t, known->ref[side].ino,
						      (unsigned)(entry - t->entries) + 1))
			if (!is_name_covered(known, entry->name))
				return false;
	}
	return true;
}

bool check_is_covered(const char **ret_why)
{
	load();
	*ret_why = j.why;
	for (unsigned i = 0; i < j.object_count; i++)
		if (!is_object_covered(&j.objects[i]) || !is_dir_covered(&j.objects[i]))
			return false;
	return true;
}

void check_dump(void)
{
	load();
	for (enum side side = SIDE_A; side < SIDE_MAX; side++) {
		const struct tree *t = &world->tree[side];

		fprintf(stderr, side == SIDE_A ? "  source:" : "\n  target:");
		for (unsigned i = 0; i < t->entry_count; i++)
			if (t->entries[i].dir)
				fprintf(stderr, " %llu/%s=%llu(%u)",
					(unsigned long long)j.id_by_ino[side][t->entries[i].dir],
					t->entries[i].name,
					(unsigned long long)j.id_by_ino[side][t->entries[i].ino],
					t->entries[i].ino);
	}
	fputc('\n', stderr);
}

static bool is_asked;

void check_ask(void)
{
	is_asked = true;
}

bool check_was_asked(void)
{
	bool was_asked = is_asked;

	is_asked = false;
	return was_asked;
}

/* ---- at each removal ------------------------------------------------------ */

void check_target_change(const struct op *op)
{
	const struct tree_inode *source;
	struct tree_ref ref;

	if ((op->kind != OP_UNLINK && op->kind != OP_RMDIR) || !memrocks_is_there())
		return;
	if (tree_lookup(&world->tree[SIDE_B], op->dir, op->name, &ref) < 0)
		return;
	if (op->kind == OP_UNLINK && world->tree[SIDE_B].inodes[ref.ino].nlink > 1)
		return;
	load();
	for (unsigned i = 0; i < j.object_count; i++) {
		const struct known *known = &j.objects[i];

		if (known->ref[SIDE_B].ino != ref.ino ||
		    known->ref[SIDE_B].generation != ref.generation)
			continue;
		source = tree_find(&world->tree[SIDE_A], known->ref[SIDE_A]);
		if (source && source->nlink > 0)
			sched_fail(
				"object %llu is removed from the target (%u/%s), but the source has it still",
				(unsigned long long)known->id, op->dir.ino, op->name);
	}
}

/* ---- in the end ---------------------------------------------------------- */

struct equality {
	struct journal *journal;
	const char *limbo_name;
	uint32_t partner[SIDE_MAX][TREE_INODES_MAX]; /* the inode over there; 0: none yet */
	uint64_t id[TREE_INODES_MAX];		     /* of the target's inodes */
	struct tree_ref dirs[TREE_INODES_MAX][SIDE_MAX];
	unsigned dir_count;
	unsigned names; /* on the target, seen */
};

static void expect_same_inode(struct equality *e, struct tree_ref a, struct tree_ref b,
			      const char *name)
{
	const struct tree_inode *x = tree_find(&world->tree[SIDE_A], a);
	const struct tree_inode *y = tree_find(&world->tree[SIDE_B], b);
	struct locator locator_a, locator_b;
	uint64_t id_a = 0, id_b = 0, block;
	struct synced synced;
	const char *what;

	if (!x || !y)
		sched_fail("'%s': an entry without an inode", name);
	if (e->partner[SIDE_A][a.ino] || e->partner[SIDE_B][b.ino]) {
		if (e->partner[SIDE_A][a.ino] != b.ino || e->partner[SIDE_B][b.ino] != a.ino)
			sched_fail(
				"'%s': the names of source %u and target %u are not linked alike",
				name, a.ino, b.ino);
		return;
	}
	e->partner[SIDE_A][a.ino] = b.ino;
	e->partner[SIDE_B][b.ino] = a.ino;
	what = attr_difference(x, y);
	if (what)
		sched_fail("'%s' (source %u, target %u): %s differs", name, a.ino, b.ino, what);
	block = block_difference(x, y, 0);
	if (block != UINT64_MAX)
		sched_fail("'%s' (source %u, target %u): block %llu differs", name, a.ino, b.ino,
			   (unsigned long long)block);

	memstore_locator(SIDE_A, a, &locator_a);
	memstore_locator(SIDE_B, b, &locator_b);
	if (journal_object_find(e->journal, SIDE_A, &locator_a, &id_a) != 0 ||
	    journal_object_find(e->journal, SIDE_B, &locator_b, &id_b) != 0 || id_a != id_b)
		sched_fail("'%s' (source %u, target %u): objects %llu and %llu in the journal",
			   name, a.ino, b.ino, (unsigned long long)id_a, (unsigned long long)id_b);
	e->id[b.ino] = id_b;
	if (journal_synced_get(e->journal, id_a, &synced) != 0 || synced.mode != x->mode ||
	    timespec_cmp(synced.mtime, tree_time(x->mtime)) != 0 ||
	    (S_ISREG(x->mode) && synced.size != x->size))
		sched_fail(
			"'%s' (object %llu): what the journal has as synced is not what is there",
			name, (unsigned long long)id_a);
	if (S_ISDIR(x->mode)) {
		e->dirs[e->dir_count][SIDE_A] = a;
		e->dirs[e->dir_count++][SIDE_B] = b;
	}
}

static void expect_shadow(struct equality *e, uint64_t dir, const char *name, uint64_t id)
{
	uint64_t shadow = 0;

	if (journal_shadow_get(e->journal, dir, name, &shadow) != 0 || shadow != id)
		sched_fail("shadow (%llu, '%s') is %llu, but the target has %llu",
			   (unsigned long long)dir, name, (unsigned long long)shadow,
			   (unsigned long long)id);
	e->names++;
}

static void expect_same_dir(struct equality *e, struct tree_ref a, struct tree_ref b)
{
	const struct tree *s = &world->tree[SIDE_A], *t = &world->tree[SIDE_B];
	const struct tree_entry *entry;
	struct tree_ref other;

	for (entry = tree_entry_next(s, a.ino, 0); entry;
	     entry = tree_entry_next(s, a.ino, (unsigned)(entry - s->entries) + 1)) {
		if (tree_lookup(&world->tree[SIDE_B], b, entry->name, &other) < 0)
			sched_fail("'%s' in source %u is missing in target %u", entry->name, a.ino,
				   b.ino);
		expect_same_inode(e, tree_ref_of(s, entry->ino), other, entry->name);
		expect_shadow(e, e->id[b.ino], entry->name, e->id[other.ino]);
	}
	for (entry = tree_entry_next(t, b.ino, 0); entry;
	     entry = tree_entry_next(t, b.ino, (unsigned)(entry - t->entries) + 1)) {
		if (b.ino == t->root && strcmp(entry->name, e->limbo_name) == 0)
			continue;
		if (tree_lookup(&world->tree[SIDE_A], a, entry->name, &other) < 0)
			sched_fail("'%s' in target %u should not be there", entry->name, b.ino);
	}
}

static void expect_limbo(struct equality *e, const struct tree_ref *leftovers,
			 unsigned leftover_count)
{
	struct tree *t = &world->tree[SIDE_B];
	const struct tree_entry *entry;
	struct tree_ref limbo, other;
	char name[ORPHAN_NAME_BYTES];
	struct locator locator;
	unsigned count = 0;
	uint64_t id;

	if (tree_lookup(t, tree_ref_of(t, t->root), e->limbo_name, &limbo) < 0) {
		if (leftover_count > 0)
			sched_fail("there is no limbo, but %u leftovers", leftover_count);
		return;
	}
	for (entry = tree_entry_next(t, limbo.ino, 0); entry;
	     entry = tree_entry_next(t, limbo.ino, (unsigned)(entry - t->entries) + 1))
		count++;
	for (unsigned i = 0; i < leftover_count; i++) {
		memstore_locator(SIDE_A, leftovers[i], &locator);
		if (journal_object_find(e->journal, SIDE_A, &locator, &id) != 0)
			sched_fail("a leftover (source %u) is not known", leftovers[i].ino);
		orphan_name(id, name);
		if (tree_lookup(t, limbo, name, &other) < 0)
			sched_fail("leftover %llu (source %u) is not in limbo",
				   (unsigned long long)id, leftovers[i].ino);
		expect_same_inode(e, leftovers[i], other, name);
		expect_shadow(e, JOURNAL_LIMBO_ID, name, id);
	}
	if (count != leftover_count)
		sched_fail("limbo (target %u) has %u names, but there are %u leftovers", limbo.ino,
			   count, leftover_count);
}

static void count_shadow(struct journal *journal, uint64_t dir, unsigned *count)
{
	char name[JOURNAL_NAME_MAX + 1];
	struct journal_cursor *cursor;
	uint64_t id;

	if (journal_shadow_open(journal, dir, &cursor) < 0)
		sched_fail("cannot read the shadow");
	while (journal_shadow_next(cursor, name, &id) == 0)
		(*count)++;
	cursor = journal_cursor_close(cursor);
}

static int refuse_intent(void *context, const struct intent *intent)
{
	(void)context;
	sched_fail("intent %llu is left", (unsigned long long)intent->number);
}

static void expect_no_marks(struct journal *journal)
{
	static const enum journal_mark_kind kinds[] = {
		JOURNAL_MARK_SCAN,
		JOURNAL_MARK_NAME,
		JOURNAL_MARK_DATA,
		JOURNAL_MARK_ATTR,
	};
	struct journal_cursor *cursor;
	struct journal_mark mark;
	int r;

	for (unsigned i = 0; i < ARRAY_SIZE(kinds); i++) {
		r = journal_marks_open(journal, kinds[i], &cursor);
		if (r == 0)
			r = journal_marks_next(cursor, &mark);
		if (r == 0)
			sched_fail(
				"the journal has a mark left: kind %c, object %llu, name '%s', number %lld",
				mark.kind, (unsigned long long)mark.object, mark.name,
				(long long)mark.number);
		cursor = journal_cursor_close(cursor);
	}
	r = journal_settle_intents(journal, refuse_intent, NULL);
	if (r != 0)
		sched_fail("cannot read the intents");
}

void check_equal(struct journal *journal, const char *limbo_name, const struct tree_ref *leftovers,
		 unsigned leftover_count)
{
	static struct equality e;
	unsigned shadows = 0;

	e = (struct equality){ .journal = journal, .limbo_name = limbo_name };
	expect_no_marks(journal);
	expect_same_inode(&e, tree_ref_of(&world->tree[SIDE_A], world->tree[SIDE_A].root),
			  tree_ref_of(&world->tree[SIDE_B], world->tree[SIDE_B].root), "/");
	for (unsigned i = 0; i < e.dir_count; i++) {
		expect_same_dir(&e, e.dirs[i][SIDE_A], e.dirs[i][SIDE_B]);
		count_shadow(journal, e.id[e.dirs[i][SIDE_B].ino], &shadows);
	}
	expect_limbo(&e, leftovers, leftover_count);
	count_shadow(journal, JOURNAL_LIMBO_ID, &shadows);
	if (shadows != e.names)
		sched_fail("the shadow has %u names, the target %u", shadows, e.names);
}
