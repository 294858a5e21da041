/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whatever clients, workers and crashes do, a block, attribute or name that
 * differs has a mark in the journal, in every state that a crash could leave; and what
 * is drained is equal. Method: a model of both sides in memory, one thread that takes
 * random steps of many operations under way at the same time, checks after each. Time
 * is the test's own.
 * A failure prints its seed; run it alone with: test_marks_random <seed>.
 */

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fake_journal.h"
#include "journal/marks_internal.h"
#include "util/clock.h"
#include "util/log.h"

enum {
	FILES = 4,
	GROUPS = 5,
	BLOCKS = GROUPS * MARKS_GROUP_BLOCKS,
	NAMES = 6,
	CHANGES = 4,
	TASKS = 4,
	STEPS = 2500,
	UNFLUSHED_MAX = 12, /* batches: each is a state to look at */
	FIRST_ID = 100,
	DIR_ID = 50,
};

/* Blocks at or past the size are 0. */
struct file {
	uint32_t blocks[BLOCKS];
	unsigned size; /* blocks */
	uint32_t attr;
};

struct side_state {
	struct file files[FILES];
	uint32_t names[NAMES];
};

enum change_kind { CHANGE_WRITE, CHANGE_TRUNCATE, CHANGE_ATTR, CHANGE_NAME, CHANGE_KINDS };

struct change {
	bool is_used, is_landed;
	enum change_kind kind;
	unsigned file, from, to, name;
	char name_text[8];
	struct marks_change change;
};

struct task {
	bool is_used;
	struct marks_task task;
	unsigned step; /* index of the next range; then the end */
	unsigned size; /* of the source, under the claim */
	uint32_t attr, name;
	bool was_bulk_before;
};

struct world {
	uint64_t rng;
	bool is_memory_short; /* now and then there is none */
	struct journal *journal;
	struct marks *marks;
	struct marks_limits limits;
	struct side_state source, target;
	struct change changes[CHANGES];
	struct task tasks[TASKS];
	bool is_unpaired[FILES];
	uint32_t version;
	unsigned crashes, clears;
};

static uint64_t seed_now;
static struct world *short_world; /* whose allocations may fail now */
static uint64_t now_ms;

/* Time goes on by the test's steps alone, so that a seed says everything. */
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_now)
{
	(void)clock;
	*ret_now = clock_timespec(now_ms);
	return 0;
}

static unsigned dice(struct world *w, unsigned n)
{
	w->rng ^= w->rng << 13;
	w->rng ^= w->rng >> 7;
	w->rng ^= w->rng << 17;
	return (unsigned)((w->rng >> 11) % n);
}

static bool fault(void)
{
	return short_world && dice(short_world, 12) == 0;
}

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size)
{
	return fault() ? NULL : __real_calloc(count, size);
}

void *__real_realloc(void *p, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_realloc(void *p, size_t size)
{
	return fault() ? NULL : __real_realloc(p, size);
}

#define CHECK(cond)                                                                     \
	do {                                                                            \
		if (!(cond))                                                            \
			fail_msg("seed %llu: %s", (unsigned long long)seed_now, #cond); \
	} while (0)

static const char *name_text(unsigned name)
{
	static const char *const texts[NAMES] = { "a", "b", "c", "d", "e", "f" };

	return texts[name];
}

/* ---- clients ------------------------------------------------------------- */

static void change_start(struct world *w)
{
	struct change *c = &w->changes[dice(w, CHANGES)];
	uint64_t offset, end;

	if (c->is_used)
		return;
	c->is_used = true;
	c->is_landed = false;
	c->kind = dice(w, 10) < 6 ? CHANGE_WRITE : dice(w, CHANGE_KINDS);
	c->file = dice(w, FILES);
	c->name = dice(w, NAMES);
	c->from = dice(w, dice(w, 2) ? BLOCKS : 300);
	c->to = c->from + 1 + dice(w, dice(w, 8) ? 40 : 600);
	if (c->to > BLOCKS)
		c->to = BLOCKS;
	c->change = MARKS_CHANGE_NULL;
	offset = (uint64_t)c->from * MARKS_BLOCK_BYTES;
	end = (uint64_t)c->to * MARKS_BLOCK_BYTES;
	switch (c->kind) {
	case CHANGE_WRITE:
		/* Not at block boundaries; also some that write nothing. */
		if (dice(w, 20) == 0) {
			c->to = c->from;
			end = offset;
		} else {
			offset += dice(w, 3) ? 0 : dice(w, MARKS_BLOCK_BYTES - 1);
			end -= dice(w, 3) ? 0 : dice(w, 100);
			if (end <= offset)
				end = offset + 1;
		}
		marks_change_add_data(&w->changes[c - w->changes].change, FIRST_ID + c->file,
				      offset, end);
		break;
	case CHANGE_TRUNCATE:
		marks_change_add_data(&c->change, FIRST_ID + c->file, offset, MARKS_INFINITY);
		break;
	case CHANGE_ATTR:
		marks_change_add_attr(&c->change, FIRST_ID + c->file);
		break;
	default:
		marks_change_add_name(&c->change, DIR_ID, name_text(c->name));
		marks_change_add_attr(&c->change, DIR_ID);
		break;
	}
	marks_change_begin(w->marks, &c->change);
}

static void change_land(struct world *w, struct change *c)
{
	struct file *f = &w->source.files[c->file];

	c->is_landed = true;
	w->version++;
	switch (c->kind) {
	case CHANGE_WRITE:
		for (unsigned b = c->from; b < c->to; b++)
			f->blocks[b] = w->version;
		if (c->to > f->size && c->to > c->from)
			f->size = c->to;
		f->attr = w->version;
		break;
	case CHANGE_TRUNCATE:
		for (unsigned b = c->from; b < BLOCKS; b++)
			f->blocks[b] = 0;
		f->size = c->from;
		f->attr = w->version;
		break;
	case CHANGE_ATTR:
		f->attr = w->version;
		break;
	default:
		w->source.names[c->name] = w->version;
		break;
	}
}

static void change_step(struct world *w, struct change *c)
{
	if (!c->is_used)
		return;
	if (!c->is_landed) {
		change_land(w, c);
		return;
	}
	marks_change_end(w->marks, &c->change);
	c->is_used = false;
}

/* ---- workers ------------------------------------------------------------- */

static void task_start(struct world *w)
{
	struct task *t = &w->tasks[dice(w, TASKS)];
	unsigned kinds = 1 + dice(w, (1 << MARKS_KIND_MAX) - 1);
	int r;

	if (t->is_used)
		return;
	t->task = MARKS_TASK_NULL;
	r = marks_next(w->marks, kinds, 0, &t->task);
	CHECK(r >= 0 || (r == -ENOMEM && w->is_memory_short));
	if (r <= 0)
		return;
	CHECK(kinds & 1u << t->task.kind);
	t->is_used = true;
	t->step = 0;
	if (t->task.kind == MARKS_NAME) {
		unsigned name = (unsigned)(t->task.name[0] - 'a');

		CHECK(t->task.object == DIR_ID);
		t->name = w->source.names[name];
	} else if (t->task.object != DIR_ID) {
		struct file *f = &w->source.files[t->task.object - FIRST_ID];

		t->size = f->size;
		t->attr = f->attr;
		for (unsigned i = 0; i < t->task.range_count; i++) {
			const struct marks_range *range = &t->task.ranges[i];

			CHECK(range->offset < range->end);
			CHECK(i == 0 || range[-1].end <= range->offset);
			CHECK(range->offset % MARKS_BLOCK_BYTES == 0);
		}
		if (t->task.kind == MARKS_DATA)
			CHECK(t->task.range_count > 0);
	}
}

/* What is virgin must be zero on the target. */
static void check_virgin(struct world *w, const struct task *t, const struct file *target)
{
	const struct marks_task *task = &t->task;

	for (unsigned i = 0; i < task->range_count; i++) {
		bool is_virgin = task->ranges[i].offset >= task->virgin_from;

		if (i == task->range_count - 1)
			CHECK(task->is_tail_virgin == is_virgin);
		if (!is_virgin)
			continue;
		for (unsigned b = (unsigned)(task->ranges[i].offset / MARKS_BLOCK_BYTES);
		     b < BLOCKS && b * (uint64_t)MARKS_BLOCK_BYTES < task->ranges[i].end; b++)
			CHECK(target->blocks[b] == 0);
	}
	(void)w;
}

static void copy_range(struct world *w, struct task *t, const struct marks_range *range)
{
	unsigned file = (unsigned)(t->task.object - FIRST_ID);
	const struct file *source = &w->source.files[file];
	struct file *target = &w->target.files[file];

	for (uint64_t b = range->offset / MARKS_BLOCK_BYTES;
	     b < BLOCKS && b * MARKS_BLOCK_BYTES < range->end; b++) {
		if (b >= t->size)
			break;
		target->blocks[b] = source->blocks[b];
		if (b >= target->size)
			target->size = (unsigned)b + 1;
		target->attr = UINT32_MAX; /* its times */
	}
}

static void object_finish(struct world *w, struct task *t)
{
	struct file *target = &w->target.files[t->task.object - FIRST_ID];

	if (t->task.kind != MARKS_OBJECT)
		return;
	for (unsigned b = t->size; b < BLOCKS; b++)
		target->blocks[b] = 0;
	target->size = t->size;
	target->attr = t->attr;
}

static void task_keep(struct world *w, struct task *t)
{
	unsigned choice = dice(w, 5);
	enum marks_why why = MARKS_AGAIN;
	uint64_t value = 0;

	if (choice == 1)
		why = MARKS_REST;
	if (choice == 2) {
		why = MARKS_LATER;
		value = dice(w, 3);
	}
	if (choice == 3 && t->task.kind == MARKS_OBJECT && t->step == 0 &&
	    t->task.object != DIR_ID) {
		why = MARKS_BULK;
		value = (uint64_t)t->size * MARKS_BLOCK_BYTES;
	}
	if (choice == 4 && t->step == 0 && t->task.object != DIR_ID &&
	    t->task.kind == MARKS_OBJECT) {
		why = MARKS_UNPAIRED;
		w->is_unpaired[t->task.object - FIRST_ID] = true;
	}
	marks_lock(w->marks);
	marks_keep_locked(w->marks, &t->task, why, value);
	(void)marks_unlock(w->marks);
	t->is_used = false;
}

static void task_clear(struct world *w, struct task *t)
{
	uint64_t end = (uint64_t)t->size * MARKS_BLOCK_BYTES;

	marks_lock(w->marks);
	if (t->task.kind == MARKS_NAME) {
		marks_count_target_change_locked(w->marks);
		w->target.names[t->task.name[0] - 'a'] = t->name;
		marks_put_attr_locked(w->marks, DIR_ID);
	}
	(void)marks_clear_locked(w->marks, &t->task, end);
	(void)marks_unlock(w->marks);
	t->is_used = false;
	w->clears++;
}

static void task_step(struct world *w, struct task *t)
{
	if (!t->is_used)
		return;
	if (dice(w, 12) == 0) {
		task_keep(w, t);
		return;
	}
	if (t->task.object != DIR_ID && t->step == 0)
		check_virgin(w, t, &w->target.files[t->task.object - FIRST_ID]);
	if (t->step < t->task.range_count) {
		copy_range(w, t, &t->task.ranges[t->step++]);
		return;
	}
	if (t->step++ == t->task.range_count && t->task.object != DIR_ID) {
		object_finish(w, t);
		return;
	}
	task_clear(w, t);
}

static void pair_some(struct world *w, unsigned file)
{
	if (!w->is_unpaired[file])
		return;
	w->is_unpaired[file] = false;
	marks_lock(w->marks);
	marks_set_paired_locked(w->marks, FIRST_ID + file);
	(void)marks_unlock(w->marks);
}

/* The worker of names made the object anew, empty. */
static void make_anew(struct world *w)
{
	unsigned file = dice(w, FILES);

	for (unsigned i = 0; i < TASKS; i++)
		if (w->tasks[i].is_used && w->tasks[i].task.object == FIRST_ID + file)
			return; /* object locks keep them apart */
	memset(&w->target.files[file], 0, sizeof(w->target.files[file]));
	marks_lock(w->marks);
	marks_put_whole_locked(w->marks, FIRST_ID + file,
			       (uint64_t)w->source.files[file].size * MARKS_BLOCK_BYTES, true);
	/* The empty object is there only now: unmarked it would be wrong after a crash. */
	CHECK(journal_flush(w->journal, marks_unlock(w->marks)) == 0);
}

/* ---- checks -------------------------------------------------------------- */

static void check_covered(struct world *w, const struct fake_marks *marks)
{
	for (unsigned f = 0; f < FILES; f++) {
		const struct file *source = &w->source.files[f], *target = &w->target.files[f];
		bool has_attr = fake_marks_has(marks, JOURNAL_MARK_ATTR, FIRST_ID + f, 0, NULL);

		for (unsigned g = 0; g < GROUPS; g++) {
			uint64_t offset = (uint64_t)g * MARKS_GROUP_BYTES;
			size_t at = (size_t)g * MARKS_GROUP_BLOCKS;
			bool is_covered = fake_marks_covers(marks, FIRST_ID + f, offset);

			has_attr |= is_covered;
			if (!is_covered)
				CHECK(memcmp(source->blocks + at, target->blocks + at,
					     MARKS_GROUP_BLOCKS * sizeof(uint32_t)) == 0);
		}
		has_attr |=
			fake_marks_has(marks, JOURNAL_MARK_DATA, FIRST_ID + f, JOURNAL_TAIL, NULL);
		if (!has_attr) {
			CHECK(source->attr == target->attr);
			CHECK(source->size == target->size);
		}
	}
	for (unsigned n = 0; n < NAMES; n++)
		if (!fake_marks_has(marks, JOURNAL_MARK_NAME, DIR_ID, 0, name_text(n)))
			CHECK(w->source.names[n] == w->target.names[n]);
}

static bool is_dirty_in_memory(const struct object_entry *o, unsigned block)
{
	uint64_t number = block / MARKS_GROUP_BLOCKS;
	size_t i = marks_group_index(o, number);
	unsigned bit = block % MARKS_GROUP_BLOCKS;

	if (number >= o->tail)
		return true;
	return i < o->group_count && o->groups[i]->number == number &&
	       o->groups[i]->dirty.word[bit / 64] >> (bit % 64) & 1;
}

/* Memory, block by block: what differs is dirty. */
static void check_memory(struct world *w)
{
	for (unsigned f = 0; f < FILES; f++) {
		const struct file *source = &w->source.files[f], *target = &w->target.files[f];
		struct entry *e = marks_find(w->marks, MARKS_OBJECT, FIRST_ID + f, NULL);

		if (w->marks->spill[MARKS_OBJECT].is_active && (!e || !e->is_complete))
			continue;
		for (unsigned b = 0; b < BLOCKS; b++)
			if (source->blocks[b] != target->blocks[b])
				CHECK(e && is_dirty_in_memory(object_of(e), b));
		if (source->attr != target->attr || source->size != target->size)
			CHECK(e && e->is_marked);
	}
	if (w->marks->spill[MARKS_NAME].is_active)
		return;
	for (unsigned n = 0; n < NAMES; n++)
		if (w->source.names[n] != w->target.names[n])
			CHECK(marks_has_name(w->marks, DIR_ID, name_text(n)));
}

/* No block is in two claims, none of a change in flight in any. */
static void check_claims(struct world *w)
{
	for (unsigned i = 0; i < TASKS; i++) {
		for (unsigned k = i + 1; k < TASKS; k++) {
			const struct marks_task *a = &w->tasks[i].task, *b = &w->tasks[k].task;

			if (!w->tasks[i].is_used || !w->tasks[k].is_used ||
			    a->object != b->object || a->kind == MARKS_NAME ||
			    b->kind == MARKS_NAME)
				continue;
			CHECK(a->kind == MARKS_DATA && b->kind == MARKS_DATA);
			CHECK(a->ranges[0].offset / MARKS_GROUP_BYTES !=
			      b->ranges[0].offset / MARKS_GROUP_BYTES);
		}
	}
}

static void check(struct world *w)
{
	size_t unflushed = fake_journal_unflushed(w->journal);

	if (unflushed > UNFLUSHED_MAX) {
		fake_journal_flush_all(w->journal);
		unflushed = 0;
	}
	marks_check(w->marks);
	for (size_t kept = 0; kept <= unflushed; kept++) {
		struct fake_marks marks;

		fake_journal_get(w->journal, kept, &marks);
		check_covered(w, &marks);
		fake_marks_done(&marks);
	}
	check_memory(w);
	check_claims(w);
}

/* ---- life ---------------------------------------------------------------- */

static void forget_tasks(struct world *w)
{
	for (unsigned i = 0; i < TASKS; i++) {
		if (w->tasks[i].is_used)
			free(w->tasks[i].task.ranges);
		w->tasks[i].is_used = false;
	}
}

static void crash(struct world *w)
{
	/* What was under way landed or did not; nobody was answered. */
	for (unsigned i = 0; i < CHANGES; i++) {
		if (w->changes[i].is_used && !w->changes[i].is_landed && dice(w, 2))
			change_land(w, &w->changes[i]);
		w->changes[i].is_used = false;
	}
	forget_tasks(w);
	w->marks = marks_close(w->marks);
	fake_journal_crash(w->journal, dice(w, (unsigned)fake_journal_unflushed(w->journal) + 1));
	short_world = NULL;
	CHECK(marks_open(w->journal, &w->limits, &w->marks) == 0);
	memset(w->is_unpaired, 0, sizeof(w->is_unpaired));
	w->crashes++;
}

static void step(struct world *w)
{
	now_ms += dice(w, 4);
	switch (dice(w, 16)) {
	case 0 ... 2:
		change_start(w);
		break;
	case 3 ... 6:
		change_step(w, &w->changes[dice(w, CHANGES)]);
		break;
	case 7 ... 8:
		task_start(w);
		break;
	case 9 ... 13:
		task_step(w, &w->tasks[dice(w, TASKS)]);
		break;
	case 14:
		pair_some(w, dice(w, FILES));
		if (dice(w, 30) == 0)
			make_anew(w);
		if (dice(w, 20) == 0)
			fake_journal_flush_all(w->journal);
		break;
	default:
		if (dice(w, 25) == 0)
			crash(w);
		if (dice(w, 25) == 0)
			marks_set_draining(w->marks, dice(w, 2));
		break;
	}
}

static void drain(struct world *w)
{
	struct fake_marks left;

	for (unsigned i = 0; i < CHANGES; i++)
		while (w->changes[i].is_used)
			change_step(w, &w->changes[i]);
	marks_set_draining(w->marks, true);
	for (unsigned i = 0; i < 200000 && !marks_is_empty(w->marks); i++) {
		struct task *t = &w->tasks[i % TASKS];

		pair_some(w, i % FILES);
		while (t->is_used)
			task_step(w, t);
		task_start(w);
		marks_lock(w->marks);
		marks_count_target_change_locked(w->marks);
		(void)marks_unlock(w->marks);
		if (i % 64 == 0)
			check(w);
		now_ms++;
	}
	CHECK(marks_is_empty(w->marks));
	CHECK(memcmp(&w->source, &w->target, sizeof(w->source)) == 0);
	fake_journal_flush_all(w->journal);
	fake_journal_get(w->journal, 0, &left);
	CHECK(left.count == 0);
	fake_marks_done(&left);
}

static void limits_random(struct world *w)
{
	w->limits = (struct marks_limits){
		.objects_max = dice(w, 3) ? 100 : 1 + dice(w, 3),
		.names_max = dice(w, 3) ? 100 : 1 + dice(w, 3),
		.scans_max = 10,
		.groups_per_object_max = dice(w, 2) ? 100 : 2 + dice(w, 2),
		.cool_ms = dice(w, 3) ? 0 : dice(w, 20),
		.cool_ms_max = dice(w, 40),
	};
}

/* A change could not be registered: all has to be compared, as after a gap. */
static void lost(struct world *w)
{
	CHECK(w->is_memory_short);
	for (unsigned i = 0; i < CHANGES; i++) {
		while (w->changes[i].is_used)
			change_step(w, &w->changes[i]);
	}
	forget_tasks(w);
	w->marks = marks_close(w->marks);
	fake_journal_flush_all(w->journal);
	CHECK(marks_open(w->journal, &w->limits, &w->marks) == 0);
	for (unsigned f = 0; f < FILES; f++)
		marks_put_whole(w->marks, FIRST_ID + f, 0);
	marks_lock(w->marks);
	for (unsigned n = 0; n < NAMES; n++)
		marks_put_name_locked(w->marks, DIR_ID, name_text(n));
	(void)marks_unlock(w->marks);
	fake_journal_flush_all(w->journal);
	memset(w->is_unpaired, 0, sizeof(w->is_unpaired));
}

static void run(uint64_t seed)
{
	struct world *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	seed_now = seed;
	now_ms = 1000000;
	w->rng = seed * 0x9e3779b97f4a7c15u + 1;
	for (unsigned i = 0; i < 8; i++)
		(void)dice(w, 2);
	limits_random(w);
	w->is_memory_short = dice(w, 4) == 0;
	w->journal = fake_journal_new();
	CHECK(marks_open(w->journal, &w->limits, &w->marks) == 0);
	for (unsigned i = 0; i < STEPS; i++) {
		short_world = w->is_memory_short ? w : NULL;
		step(w);
		short_world = NULL;
		if (marks_is_lost(w->marks)) {
			lost(w);
			break;
		}
		check(w);
	}
	drain(w);
	w->marks = marks_close(w->marks);
	w->journal = fake_journal_free(w->journal);
	free(w);
}

static uint64_t seed_first = 1;
static unsigned seed_count = 15;

static void what_differs_is_marked_in_every_state(void **state)
{
	(void)state;
	for (unsigned i = 0; i < seed_count; i++)
		run(seed_first + i);
}

/* An assertion in the marks: which seed was it? */
static void on_abort(int number)
{
	dprintf(2, "seed %llu\n", (unsigned long long)seed_now);
	signal(number, SIG_DFL);
	raise(number);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_differs_is_marked_in_every_state),
	};

	if (argc > 1) {
		seed_first = strtoull(argv[1], NULL, 10);
		seed_count = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 1;
	}
	signal(SIGABRT, on_abort);
	log_set_level(LOG_LEVEL_WARNING);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
