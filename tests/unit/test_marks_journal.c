/* SPDX-License-Identifier: Apache-2.0 */
/* The marks over the real journal: what a process leaves, the next one finds. */

#include <ftw.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "journal/marks_internal.h"
#include "util/clock.h"

enum {
	FILE_ID = 100,
	DIR_ID = 50,
	GROUP = MARKS_GROUP_BYTES,
	ALL = (1 << MARKS_KIND_MAX) - 1,
};

static char dir[4096];
static struct journal *journal;
static struct marks *marks;

static void open_all(size_t limit)
{
	const struct journal_pair pair = {
		.source = "/source",
		.target = "/target",
		.source_identity = "one",
		.target_identity = "two",
	};
	const struct marks_limits limits = {
		.objects_max = limit,
		.names_max = limit,
		.scans_max = limit,
		.groups_per_object_max = 100,
	};
	bool is_new;

	assert_int_equal(journal_open(dir, &pair, &is_new, &journal), 0);
	assert_int_equal(marks_open(journal, &limits, &marks), 0);
}

static void close_all(void)
{
	marks = marks_close(marks);
	journal = journal_close(journal);
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st;
	(void)flag;
	(void)ftw;
	return remove(path);
}

static int start(void **state)
{
	const char *tmp = getenv("TMPDIR");

	(void)state;
	(void)snprintf(dir, sizeof(dir), "%s/marks.XXXXXX", tmp ? tmp : "/tmp");
	return mkdtemp(dir) ? 0 : -1;
}

static int stop(void **state)
{
	(void)state;
	return nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void change_something(unsigned i)
{
	struct marks_change c = MARKS_CHANGE_NULL;
	char name[16];

	(void)snprintf(name, sizeof(name), "%u", i);
	marks_change_add_name(&c, DIR_ID, name);
	marks_change_add_attr(&c, DIR_ID);
	marks_change_add_data(&c, FILE_ID + i, 3 * GROUP, 3 * GROUP + 1);
	marks_change_add_data(&c, FILE_ID + i, 5 * GROUP + 1, MARKS_INFINITY);
	marks_change_begin(marks, &c);
	marks_change_end(marks, &c);
}

static void drain(unsigned count)
{
	struct marks_task task;
	unsigned names = 0;

	while (!marks_is_empty(marks)) {
		assert_int_equal(marks_next(marks, ALL, clock_ms() + 10000, &task), 1);
		if (task.kind == MARKS_NAME)
			names++;
		if (task.kind == MARKS_OBJECT && task.object != DIR_ID) {
			assert_int_equal(task.range_count, 2);
			assert_int_equal(task.ranges[0].offset, 3 * GROUP);
			assert_int_equal(task.ranges[1].offset, 5 * GROUP);
			assert_true(task.ranges[1].end == MARKS_INFINITY);
		}
		marks_lock(marks);
		(void)marks_clear_locked(marks, &task, 6 * GROUP);
		(void)marks_unlock(marks);
	}
	assert_true(names >= count);
	marks_check(marks);
}

static void next_process_finds_the_marks(void **state)
{
	(void)state;
	open_all(1000);
	for (unsigned i = 0; i < 100; i++)
		change_something(i);
	assert_false(marks_is_lost(marks));
	close_all();
	open_all(1000);
	marks_check(marks);
	drain(100);
	close_all();
	open_all(1000);
	assert_true(marks_is_empty(marks));
	close_all();
}

static void spilled_marks_come_back(void **state)
{
	(void)state;
	open_all(20);
	for (unsigned i = 0; i < 100; i++)
		change_something(i);
	assert_false(marks_is_empty(marks));
	close_all();
	open_all(30);
	for (struct marks_task task; !marks_is_empty(marks);) {
		if (marks_next(marks, ALL, clock_ms() + 10, &task) == 0)
			continue; /* the end of what was spilled */
		marks_lock(marks);
		(void)marks_clear_locked(marks, &task, 6 * GROUP);
		(void)marks_unlock(marks);
	}
	close_all();
	open_all(30);
	assert_true(marks_is_empty(marks));
	close_all();
}

static void *change_many(void *argument)
{
	unsigned first = *(unsigned *)argument;

	for (unsigned i = 0; i < 500; i++)
		change_something(first + i % 50);
	return NULL;
}

static void many_threads_share_the_flushes(void **state)
{
	unsigned firsts[4] = { 0, 50, 100, 150 };
	pthread_t threads[4];

	(void)state;
	open_all(1000);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, change_many, &firsts[i]), 0);
	for (unsigned i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	assert_false(marks_is_lost(marks));
	drain(200);
	close_all();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(next_process_finds_the_marks, start, stop),
		cmocka_unit_test_setup_teardown(spilled_marks_come_back, start, stop),
		cmocka_unit_test_setup_teardown(many_threads_share_the_flushes, start, stop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
