/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: no race loses a mark. Method: clients and copiers as threads over two trees in
 * memory, with only the marks between them; in the end all are equal and the set is
 * empty. Under the thread sanitizer it also shows that every field is guarded.
 */

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fake_journal.h"
#include "journal/marks_internal.h"
#include "util/clock.h"
#include "util/log.h"

enum {
	FILES = 3,
	GROUPS = 4,
	BLOCKS = GROUPS * MARKS_GROUP_BLOCKS,
	NAMES = 8,
	CLIENTS = 3,
	WORKERS = 3,
	CHANGES = 10000, /* of each client */
	FIRST_ID = 100,
	DIR_ID = 50,
	DRAIN_MS_MAX = 60000,
};

/* As a file system has it: each operation is atomic. */
struct file {
	pthread_mutex_t lock;
	uint32_t blocks[BLOCKS];
	unsigned size;
	uint32_t attr;
};

struct tree {
	struct file files[FILES];
	pthread_mutex_t lock;
	uint32_t names[NAMES];
};

struct world {
	struct journal *journal;
	struct marks *marks;
	struct tree source, target;
	uint32_t version; /* atomic */
	bool is_stopping; /* atomic */
};

struct thread {
	pthread_t thread;
	struct world *world;
	uint64_t rng;
};

static unsigned dice(struct thread *t, unsigned n)
{
	t->rng ^= t->rng << 13;
	t->rng ^= t->rng >> 7;
	t->rng ^= t->rng << 17;
	return (unsigned)((t->rng >> 11) % n);
}

static const char *name_text(unsigned name)
{
	static const char *const texts[NAMES] = { "a", "b", "c", "d", "e", "f", "g", "h" };

	return texts[name];
}

/* ---- clients ------------------------------------------------------------- */

static void write_blocks(struct thread *t, unsigned index, uint32_t version)
{
	struct file *f = &t->world->source.files[index];
	struct marks_change change = MARKS_CHANGE_NULL;
	unsigned from = dice(t, BLOCKS), to = from + 1 + dice(t, 20);

	if (to > BLOCKS)
		to = BLOCKS;
	marks_change_add_data(&change, FIRST_ID + index, (uint64_t)from * MARKS_BLOCK_BYTES,
			      (uint64_t)to * MARKS_BLOCK_BYTES);
	marks_change_begin(t->world->marks, &change);
	pthread_mutex_lock(&f->lock);
	for (unsigned b = from; b < to; b++)
		f->blocks[b] = version;
	if (f->size < to)
		f->size = to;
	f->attr = version;
	pthread_mutex_unlock(&f->lock);
	marks_change_end(t->world->marks, &change);
}

static void truncate_file(struct thread *t, unsigned index, uint32_t version)
{
	struct file *f = &t->world->source.files[index];
	struct marks_change change = MARKS_CHANGE_NULL;
	unsigned size = dice(t, BLOCKS);

	marks_change_add_data(&change, FIRST_ID + index, (uint64_t)size * MARKS_BLOCK_BYTES,
			      MARKS_INFINITY);
	marks_change_begin(t->world->marks, &change);
	pthread_mutex_lock(&f->lock);
	memset(f->blocks + size, 0, (BLOCKS - size) * sizeof(f->blocks[0]));
	f->size = size;
	f->attr = version;
	pthread_mutex_unlock(&f->lock);
	marks_change_end(t->world->marks, &change);
}

static void rename_something(struct thread *t, uint32_t version)
{
	struct tree *source = &t->world->source;
	struct marks_change change = MARKS_CHANGE_NULL;
	unsigned a = dice(t, NAMES), b = dice(t, NAMES);

	marks_change_add_name(&change, DIR_ID, name_text(a));
	marks_change_add_name(&change, DIR_ID, name_text(b));
	marks_change_add_attr(&change, DIR_ID);
	marks_change_begin(t->world->marks, &change);
	pthread_mutex_lock(&source->lock);
	source->names[b] = source->names[a];
	source->names[a] = version;
	pthread_mutex_unlock(&source->lock);
	marks_change_end(t->world->marks, &change);
}

static void *client(void *argument)
{
	struct thread *t = argument;

	for (unsigned i = 0; i < CHANGES; i++) {
		uint32_t version = __atomic_add_fetch(&t->world->version, 1, __ATOMIC_SEQ_CST);
		unsigned kind = dice(t, 40);

		if (kind == 0)
			truncate_file(t, dice(t, FILES), version);
		else if (kind < 8)
			rename_something(t, version);
		else
			write_blocks(t, dice(t, FILES), version);
	}
	return NULL;
}

/* ---- workers ------------------------------------------------------------- */

static void copy_range(struct file *source, struct file *target, const struct marks_range *range,
		       unsigned size)
{
	for (uint64_t b = range->offset / MARKS_BLOCK_BYTES;
	     b < size && b * MARKS_BLOCK_BYTES < range->end; b++) {
		uint32_t value;

		pthread_mutex_lock(&source->lock);
		value = source->blocks[b];
		pthread_mutex_unlock(&source->lock);
		pthread_mutex_lock(&target->lock);
		target->blocks[b] = value;
		if (target->size <= b)
			target->size = (unsigned)b + 1;
		target->attr = UINT32_MAX;
		pthread_mutex_unlock(&target->lock);
	}
}

static void work_on_file(struct thread *t, struct marks_task *task)
{
	unsigned index = (unsigned)(task->object - FIRST_ID), size;
	struct file *source = &t->world->source.files[index];
	struct file *target = &t->world->target.files[index];
	struct marks *marks = t->world->marks;
	uint32_t attr;

	pthread_mutex_lock(&source->lock);
	size = source->size;
	attr = source->attr;
	pthread_mutex_unlock(&source->lock);
	if (task->kind == MARKS_OBJECT && task->range_count > 0 && dice(t, 3) == 0) {
		marks_lock(marks);
		marks_keep_locked(marks, task, MARKS_BULK, (uint64_t)size * MARKS_BLOCK_BYTES);
		(void)marks_unlock(marks);
		return;
	}
	for (unsigned i = 0; i < task->range_count; i++)
		copy_range(source, target, &task->ranges[i], size);
	if (task->kind == MARKS_OBJECT) {
		pthread_mutex_lock(&target->lock);
		memset(target->blocks + size, 0, (BLOCKS - size) * sizeof(target->blocks[0]));
		target->size = size;
		target->attr = attr;
		pthread_mutex_unlock(&target->lock);
	}
	marks_lock(marks);
	(void)marks_clear_locked(marks, task, (uint64_t)size * MARKS_BLOCK_BYTES);
	(void)marks_unlock(marks);
}

static void work_on_name(struct thread *t, struct marks_task *task)
{
	struct world *w = t->world;
	unsigned name = (unsigned)(task->name[0] - 'a');
	uint32_t value;

	pthread_mutex_lock(&w->source.lock);
	value = w->source.names[name];
	pthread_mutex_unlock(&w->source.lock);
	pthread_mutex_lock(&w->target.lock);
	w->target.names[name] = value;
	pthread_mutex_unlock(&w->target.lock);

	marks_lock(w->marks);
	marks_count_target_change_locked(w->marks);
	if (dice(t, 10) == 0) {
		marks_keep_locked(w->marks, task, dice(t, 2) ? MARKS_REST : MARKS_LATER, 1);
	} else {
		marks_put_attr_locked(w->marks, DIR_ID);
		(void)marks_clear_locked(w->marks, task, 0);
	}
	(void)marks_unlock(w->marks);
}

static void *worker(void *argument)
{
	struct thread *t = argument;
	struct world *w = t->world;

	while (!__atomic_load_n(&w->is_stopping, __ATOMIC_SEQ_CST)) {
		struct marks_task task = MARKS_TASK_NULL;
		unsigned kinds = dice(t, 3) ? (1u << MARKS_KIND_MAX) - 1
					    : 1 + dice(t, (1u << MARKS_KIND_MAX) - 1);
		int r = marks_next(w->marks, kinds, clock_ms() + (dice(t, 3) ? 1000 : 5), &task);

		if (r < 0)
			abort();
		if (r == 0)
			continue;
		if (task.kind == MARKS_NAME) {
			work_on_name(t, &task);
		} else if (task.object == DIR_ID) {
			marks_lock(w->marks);
			(void)marks_clear_locked(w->marks, &task, 0);
			(void)marks_unlock(w->marks);
		} else {
			work_on_file(t, &task);
		}
	}
	return NULL;
}

/* ---- */

static void tree_init(struct tree *tree)
{
	pthread_mutex_init(&tree->lock, NULL);
	for (unsigned i = 0; i < FILES; i++)
		pthread_mutex_init(&tree->files[i].lock, NULL);
}

static void compare(const struct world *w)
{
	for (unsigned i = 0; i < FILES; i++) {
		const struct file *source = &w->source.files[i], *target = &w->target.files[i];

		assert_int_equal(source->size, target->size);
		assert_int_equal(source->attr, target->attr);
		assert_memory_equal(source->blocks, target->blocks, sizeof(source->blocks));
	}
	assert_memory_equal(w->source.names, w->target.names, sizeof(w->source.names));
}

static void run(const struct marks_limits *limits)
{
	struct world *w = calloc(1, sizeof(*w));
	struct thread clients[CLIENTS], workers[WORKERS];
	struct marks_stats stats;
	struct fake_marks left;

	assert_non_null(w);
	tree_init(&w->source);
	tree_init(&w->target);
	w->journal = fake_journal_new();
	assert_int_equal(marks_open(w->journal, limits, &w->marks), 0);
	for (unsigned i = 0; i < WORKERS; i++) {
		workers[i] = (struct thread){ .world = w, .rng = 77 + i };
		assert_int_equal(pthread_create(&workers[i].thread, NULL, worker, &workers[i]), 0);
	}
	for (unsigned i = 0; i < CLIENTS; i++) {
		clients[i] = (struct thread){ .world = w, .rng = 99 + i };
		assert_int_equal(pthread_create(&clients[i].thread, NULL, client, &clients[i]), 0);
	}
	for (unsigned i = 0; i < CLIENTS; i++)
		pthread_join(clients[i].thread, NULL);
	marks_set_draining(w->marks, true);
	assert_int_equal(marks_wait_empty(w->marks, clock_ms() + DRAIN_MS_MAX), 0);
	__atomic_store_n(&w->is_stopping, true, __ATOMIC_SEQ_CST);
	marks_wake(w->marks);
	for (unsigned i = 0; i < WORKERS; i++)
		pthread_join(workers[i].thread, NULL);

	compare(w);
	marks_check(w->marks);
	marks_get_stats(w->marks, &stats);
	assert_int_equal(stats.bytes, 0);
	assert_int_equal(stats.objects + stats.names + stats.scans, 0);
	assert_int_equal(stats.claimed + stats.resting, 0);
	fake_journal_flush_all(w->journal);
	fake_journal_get(w->journal, 0, &left);
	assert_int_equal(left.count, 0);
	fake_marks_done(&left);
	w->marks = marks_close(w->marks);
	w->journal = fake_journal_free(w->journal);
	free(w);
}

static void threads_end_up_equal(void **state)
{
	const struct marks_limits limits = {
		.objects_max = 100,
		.names_max = 100,
		.scans_max = 100,
		.groups_per_object_max = 100,
	};

	(void)state;
	run(&limits);
}

static void threads_end_up_equal_with_cooling(void **state)
{
	const struct marks_limits limits = {
		.objects_max = 100,
		.names_max = 100,
		.scans_max = 100,
		.groups_per_object_max = 3,
		.cool_ms = 20,
		.cool_ms_max = 100,
	};

	(void)state;
	run(&limits);
}

static void threads_end_up_equal_when_spilled(void **state)
{
	const struct marks_limits limits = {
		.objects_max = 2,
		.names_max = 3,
		.scans_max = 1,
		.groups_per_object_max = 100,
	};

	(void)state;
	run(&limits);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(threads_end_up_equal),
		cmocka_unit_test(threads_end_up_equal_with_cooling),
		cmocka_unit_test(threads_end_up_equal_when_spilled),
	};

	log_set_level(LOG_LEVEL_WARNING);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
