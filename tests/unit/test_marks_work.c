/* SPDX-License-Identifier: Apache-2.0 */
/* The marks' tasks: which are given when; restart, and what does not fit into memory. */

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "marks_fixture.h"
#include "util/clock.h"
#include "util/log.h"

/* ---- names and scans ----------------------------------------------------- */

static void name_is_given_once_and_not_with_a_change_in_flight(void **state)
{
	struct marks_change c;
	struct marks_task task;

	(void)state;
	begin_name(&c, DIR_ID, "a");
	none_next(NAME);
	end_change(&c);
	task = must_next(NAME);
	assert_int_equal(task.object, DIR_ID);
	assert_string_equal(task.name, "a");
	none_next(NAME);
	assert_true(clear_task(&task, 0));
	assert_true(marks_is_empty(marks));
	assert_int_equal(record_count(), 0);
}

static void name_changed_during_its_claim_stays(void **state)
{
	struct marks_change c;
	struct marks_task task;

	(void)state;
	change_name(DIR_ID, "a");
	task = must_next(NAME);
	begin_name(&c, DIR_ID, "a");
	assert_false(clear_task(&task, 0));
	none_next(NAME);
	end_change(&c);
	fake_journal_flush_all(journal);
	assert_true(is_recorded(JOURNAL_MARK_NAME, DIR_ID, 0, "a"));
	task = must_next(NAME);
	put_name(DIR_ID, "a"); /* by another worker */
	assert_false(clear_task(&task, 0));
	drain_all();
}

static void directory_attr_waits_for_its_names(void **state)
{
	struct marks_task a, b, task;

	(void)state;
	change_attr(DIR_ID);
	change_name(DIR_ID, "a");
	change_name(DIR_ID, "b");
	none_next(OBJECT);
	a = must_next(NAME);
	b = must_next(NAME);
	none_next(OBJECT);
	assert_true(clear_task(&a, 0));
	none_next(OBJECT);
	assert_true(clear_task(&b, 0));
	task = must_next(OBJECT);
	assert_int_equal(task.object, DIR_ID);
	assert_true(clear_task(&task, 0));
	assert_true(marks_is_empty(marks));
}

static void resting_waits_for_a_change_of_the_target(void **state)
{
	struct marks_task task;

	(void)state;
	change_name(DIR_ID, "a");
	task = must_next(NAME);
	keep_task(&task, MARKS_REST, 0);
	none_next(NAME);
	target_changes();
	task = must_next(NAME);
	assert_int_equal(task.attempts, 1);
	/* The target changes between the failed try and going to rest. */
	target_changes();
	keep_task(&task, MARKS_REST, 0);
	task = must_next(NAME);
	keep_task(&task, MARKS_REST, 0);
	none_next(NAME);
	/* A change of the mark itself wakes it, too. */
	change_name(DIR_ID, "a");
	task = must_next(NAME);
	assert_true(clear_task(&task, 0));
}

static void resting_comes_after_what_is_ready(void **state)
{
	struct marks_task task;

	(void)state;
	change_name(DIR_ID, "a");
	task = must_next(NAME);
	keep_task(&task, MARKS_REST, 0);
	change_name(DIR_ID, "b");
	target_changes();
	task = must_next(NAME);
	assert_string_equal(task.name, "b");
	assert_true(clear_task(&task, 0));
	task = must_next(NAME);
	assert_string_equal(task.name, "a");
	assert_true(clear_task(&task, 0));
}

static void scan_remembers_to_compare(void **state)
{
	struct marks_task task;

	(void)state;
	marks_lock(marks);
	marks_put_scan_locked(marks, DIR_ID, false);
	(void)marks_unlock(marks);
	marks_lock(marks);
	marks_put_scan_locked(marks, DIR_ID, true);
	marks_put_scan_locked(marks, DIR_ID, false);
	(void)marks_unlock(marks);
	fake_journal_flush_all(journal);
	crash_now();
	assert_true(marks_has_scan(marks, DIR_ID));
	task = must_next(SCAN);
	assert_true(task.is_compare);
	assert_true(clear_task(&task, 0));
	assert_int_equal(record_count(), 0);
}

static void unpaired_waits_for_its_pair(void **state)
{
	struct marks_task task;

	(void)state;
	put_whole(FILE_ID, 0, false);
	task = must_next(OBJECT);
	keep_task(&task, MARKS_UNPAIRED, 0);
	write_data(FILE_ID, 0, 1);
	none_next(ALL);
	marks_lock(marks);
	marks_set_paired_locked(marks, FILE_ID);
	(void)marks_unlock(marks);
	task = must_next(OBJECT);
	/* The pair is made between the look and the keep. */
	marks_lock(marks);
	marks_set_paired_locked(marks, FILE_ID);
	(void)marks_unlock(marks);
	keep_task(&task, MARKS_UNPAIRED, 0);
	task = must_next(OBJECT);
	assert_true(clear_task(&task, 1));
}

static void dropped_object_has_no_marks(void **state)
{
	struct marks_change c;
	struct marks_task task, data;

	(void)state;
	make_bulk(FILE_ID, 3 * GROUP);
	data = must_next(DATA);
	change_attr(FILE_ID);
	marks_lock(marks);
	marks_put_scan_locked(marks, FILE_ID, false);
	marks_put_name_locked(marks, FILE_ID, "child");
	(void)marks_unlock(marks);
	begin_data(&c, FILE_ID, GROUP, 2 * GROUP);
	marks_lock(marks);
	marks_drop_object_locked(marks, FILE_ID);
	(void)marks_unlock(marks);
	marks_check(marks);
	end_change(&c);
	(void)clear_task(&data, 3 * GROUP);
	assert_false(marks_has_scan(marks, FILE_ID));
	assert_int_equal(record_count(), 1);
	task = must_next(ALL); /* its names are another matter */
	assert_int_equal(task.kind, MARKS_NAME);
	assert_true(clear_task(&task, 0));
	assert_true(marks_is_empty(marks));
	assert_int_equal(record_count(), 0);
}

static void object_just_put_can_be_taken(void **state)
{
	struct marks_task task;

	(void)state;
	marks_lock(marks);
	assert_int_equal(marks_take_object_locked(marks, FILE_ID, &task), 0);
	marks_put_whole_locked(marks, FILE_ID, 10, true);
	assert_int_equal(marks_take_object_locked(marks, FILE_ID, &task), 1);
	(void)marks_unlock(marks);
	RANGES(task, { 0, MARKS_INFINITY });
	none_next(ALL);
	assert_true(clear_task(&task, 10));
	assert_true(marks_is_empty(marks));
}

/* ---- time ---------------------------------------------------------------- */

static void hot_marks_cool_but_not_for_ever(void **state)
{
	uint64_t begun_ms;
	struct marks_task task;

	(void)state;
	limits.cool_ms = 200;
	limits.cool_ms_max = 600;
	reopen();
	begun_ms = clock_ms();
	write_data(FILE_ID, 0, BLOCK);
	none_next(OBJECT);
	while (!next_task(OBJECT, &task)) {
		assert_in_range(clock_ms() - begun_ms, 0, 5000);
		write_data(FILE_ID, 0, BLOCK);
	}
	assert_true(clock_ms() - begun_ms >= 500);
	assert_true(clear_task(&task, BLOCK));

	/* Waiting for it, the worker is woken in time. */
	begun_ms = clock_ms();
	change_name(DIR_ID, "a");
	assert_int_equal(marks_next(marks, ALL, begun_ms + 10000, &task), 1);
	assert_in_range(clock_ms() - begun_ms, 150, 5000);
	assert_true(clear_task(&task, 0));
}

static void bulk_cools_by_group(void **state)
{
	struct marks_task task;

	(void)state;
	limits.cool_ms = 100000;
	limits.cool_ms_max = 100000;
	reopen();
	make_bulk(FILE_ID, 3 * GROUP);
	for (unsigned i = 0; i < 2; i++) {
		task = must_next(DATA);
		keep_task(&task, MARKS_AGAIN, 0);
		if (i == 0)
			write_data(FILE_ID, 0, 1); /* hot from now */
	}
	task = must_next(DATA);
	RANGES(task, { GROUP, 2 * GROUP });
	assert_true(clear_task(&task, 3 * GROUP));
	task = must_next(DATA);
	RANGES(task, { 2 * GROUP, 3 * GROUP });
	assert_true(clear_task(&task, 3 * GROUP));
	none_next(ALL);
	marks_set_draining(marks, true);
	drain_all();
}

static void draining_ends_cooling_but_not_later(void **state)
{
	struct marks_task task;
	uint64_t begun_ms;

	(void)state;
	limits.cool_ms = 100000;
	limits.cool_ms_max = 100000;
	reopen();
	change_name(DIR_ID, "a");
	change_name(DIR_ID, "b");
	none_next(NAME);
	marks_set_draining(marks, true);
	begun_ms = clock_ms();
	task = must_next(NAME);
	assert_string_equal(task.name, "a");
	keep_task(&task, MARKS_LATER, 300);
	task = must_next(NAME);
	assert_string_equal(task.name, "b");
	assert_true(clear_task(&task, 0));
	none_next(NAME);
	assert_int_equal(marks_wait_empty(marks, clock_ms() + 1), -ETIMEDOUT);
	assert_int_equal(marks_next(marks, NAME, begun_ms + 10000, &task), 1);
	assert_true(clock_ms() - begun_ms >= 300);
	assert_true(clear_task(&task, 0));
	assert_int_equal(marks_wait_empty(marks, 0), 0);
}

struct waiting {
	pthread_t thread;
	unsigned kinds;
	int r;
	struct marks_task task;
};

static void *wait_next(void *argument)
{
	struct waiting *w = argument;

	w->r = marks_next(marks, w->kinds, clock_ms() + 60000, &w->task);
	return NULL;
}

static void wait_until_asleep(unsigned count)
{
	unsigned n;

	do {
		n = 0;
		pthread_mutex_lock(&marks->lock);
		for (struct list *l = marks->waiters.next; l != &marks->waiters; l = l->next)
			n++;
		pthread_mutex_unlock(&marks->lock);
	} while (n < count);
}

static void waiters_are_woken_by_what_they_wait_for(void **state)
{
	struct waiting names = { .kinds = NAME }, objects = { .kinds = OBJECT };

	(void)state;
	pthread_create(&names.thread, NULL, wait_next, &names);
	pthread_create(&objects.thread, NULL, wait_next, &objects);
	wait_until_asleep(2);
	change_attr(FILE_ID);
	pthread_join(objects.thread, NULL);
	assert_int_equal(objects.r, 1);
	change_name(DIR_ID, "a");
	pthread_join(names.thread, NULL);
	assert_int_equal(names.r, 1);
	assert_true(clear_task(&objects.task, 0));
	assert_true(clear_task(&names.task, 0));

	pthread_create(&names.thread, NULL, wait_next, &names);
	wait_until_asleep(1);
	marks_wake(marks);
	pthread_join(names.thread, NULL);
	assert_int_equal(names.r, 0);
}

static void kinds_take_turns(void **state)
{
	unsigned got[MARKS_KIND_MAX] = { 0 };
	struct marks_task task;
	char name[16];

	(void)state;
	for (unsigned i = 0; i < 100; i++) {
		(void)snprintf(name, sizeof(name), "%u", i);
		change_name(DIR_ID, name);
		change_attr(1000 + i);
	}
	for (unsigned i = 0; i < 100; i++) {
		task = must_next(ALL);
		got[task.kind]++;
		assert_true(clear_task(&task, 0));
	}
	assert_int_equal(got[MARKS_NAME], 50);
	assert_int_equal(got[MARKS_OBJECT], 50);
	drain_all();
}

static void scan_waits_for_room_for_names(void **state)
{
	struct marks_task task;

	(void)state;
	limits.names_max = 3;
	reopen();
	assert_true(marks_wait_names_room(marks, 3, 0));
	change_name(DIR_ID, "a");
	assert_false(marks_wait_names_room(marks, 3, clock_ms() + 20));
	assert_true(marks_wait_names_room(marks, 2, 0));
	task = must_next(NAME);
	assert_true(clear_task(&task, 0));
	assert_true(marks_wait_names_room(marks, 1000, 0)); /* alone */
}

/* ---- restart and spilling ------------------------------------------------ */

static void restart_finds_all_marks(void **state)
{
	struct marks_explanation e;

	(void)state;
	write_data(FILE_ID, 0, 1);
	write_data(FILE_ID, 3 * GROUP, MARKS_INFINITY);
	change_attr(OTHER_ID);
	change_name(DIR_ID, "a");
	crash_now();
	marks_explain_object(marks, FILE_ID, &e);
	assert_true(e.has_attr);
	assert_int_equal(e.groups, 1);
	assert_int_equal(e.tail_offset, 3 * GROUP);
	marks_explain_object(marks, OTHER_ID, &e);
	assert_true(e.has_attr);
	assert_false(e.has_tail);
	assert_true(marks_has_name(marks, DIR_ID, "a"));
	drain_all();
}

static void what_does_not_fit_comes_back(void **state)
{
	enum { COUNT = 100 };
	struct marks_stats stats;
	struct marks_task task;
	char name[16];
	unsigned names = 0, objects = 0;

	(void)state;
	limits.names_max = 10;
	limits.objects_max = 10;
	reopen();
	for (unsigned i = 0; i < COUNT; i++) {
		(void)snprintf(name, sizeof(name), "%u", i);
		change_name(DIR_ID, name);
		write_data(1000 + i, 0, 1);
	}
	marks_get_stats(marks, &stats);
	assert_true(stats.is_spilled);
	assert_int_equal(stats.names, COUNT);
	assert_true(marks->count[MARKS_NAME] <= 10);
	assert_true(marks->count[MARKS_OBJECT] <= 11);
	while (next_spilled(&task)) {
		if (task.kind == MARKS_NAME)
			names++;
		else
			objects++;
		assert_true(clear_task(&task, 1));
	}
	assert_true(names >= COUNT);
	assert_true(objects >= COUNT);
	assert_true(marks_is_empty(marks));
	assert_int_equal(record_count(), 0);
}

static void what_is_spilled_unflushed_comes_back(void **state)
{
	struct marks_task task;
	unsigned names = 0;

	(void)state;
	limits.names_max = 2;
	reopen();
	change_name(DIR_ID, "a");
	change_name(DIR_ID, "b");
	task = must_next(NAME);
	put_name(DIR_ID, "c");
	put_name(DIR_ID, "d");
	(void)clear_task(&task, 0); /* there is room now */
	while (next_spilled(&task)) {
		names += task.kind == MARKS_NAME;
		(void)clear_task(&task, 0);
	}
	assert_true(names >= 3);
	assert_int_equal(record_count(), 0);
}

static void record_read_from_an_old_snapshot_takes_back_nothing(void **state)
{
	uint64_t lowest = MARKS_INFINITY;
	struct marks_task task;

	(void)state;
	for (unsigned i = 0; i < 20; i++)
		write_data(1000 + i, 2 * GROUP, MARKS_INFINITY);
	limits.objects_max = 2;
	reopen(); /* has read two of them, and goes on later */
	write_data(1015, 0, MARKS_INFINITY);
	assert_null(marks_find(marks, MARKS_OBJECT, 1015, NULL)); /* out again */
	while (next_spilled(&task)) {
		assert_true(is_covered(1015, 0) || lowest == 0);
		if (task.object == 1015 && task.range_count > 0 && task.ranges[0].offset < lowest)
			lowest = task.ranges[0].offset;
		(void)clear_task(&task, 9 * GROUP);
	}
	assert_int_equal(lowest, 0);
	assert_int_equal(record_count(), 0);
}

static void start_beyond_the_limits_reads_the_rest_later(void **state)
{
	struct marks_task task;
	unsigned i;

	(void)state;
	for (i = 0; i < 100; i++)
		write_data(1000 + i, 0, GROUP * 2ull);
	limits.objects_max = 7;
	reopen();
	assert_true(marks->count[MARKS_OBJECT] <= 7);
	assert_false(marks_is_empty(marks));
	for (i = 0; next_spilled(&task); i++)
		(void)clear_task(&task, 2 * GROUP);
	assert_true(i >= 100);
	assert_true(marks_is_empty(marks));
	assert_int_equal(record_count(), 0);
}

static void change_of_a_spilled_object_takes_back_no_record(void **state)
{
	(void)state;
	change_attr(OTHER_ID);
	limits.objects_max = 1;
	reopen();
	/* OTHER_ID is in memory; this goes out at its end. */
	write_data(FILE_ID, 0, 3 * BLOCK);
	assert_null(marks_find(marks, MARKS_OBJECT, FILE_ID, NULL));
	write_data(FILE_ID, GROUP, MARKS_INFINITY);
	/* The same record again, for one block: it has to stay for the others. */
	assert_int_equal(tail_record(FILE_ID), 0);
	write_data(FILE_ID, 5 * BLOCK, 6 * BLOCK);
	assert_true(is_covered(FILE_ID, 0));
	assert_true(is_covered(FILE_ID, 9 * GROUP));
	for (struct marks_task task; next_spilled(&task);)
		(void)clear_task(&task, MARKS_INFINITY - 1);
	assert_true(marks_is_empty(marks));
	assert_int_equal(record_count(), 0);
}

/* ---- counts -------------------------------------------------------------- */

static void bytes_count_what_is_dirty(void **state)
{
	struct marks_stats stats;
	struct marks_task task;

	(void)state;
	write_data(FILE_ID, 0, 3 * BLOCK);
	write_data(FILE_ID, 2 * BLOCK, 4 * BLOCK);
	put_whole(OTHER_ID, 5 * GROUP + 17, false);
	marks_get_stats(marks, &stats);
	assert_int_equal(stats.bytes, 4 * BLOCK + 5 * GROUP + 17);
	assert_int_equal(stats.dirtied_bytes, stats.bytes - 5 * GROUP - 17 + 5 * GROUP + 17);
	assert_int_equal(stats.objects, 2);
	while (next_task(ALL, &task))
		assert_true(clear_task(&task, MARKS_INFINITY - 1));
	marks_get_stats(marks, &stats);
	assert_int_equal(stats.bytes, 0);
	assert_int_equal(stats.cleared_bytes, 4 * BLOCK + 5 * GROUP + 17);
	assert_int_equal(stats.cleared_objects, 2);
}

static void table_grows_and_finds_everything(void **state)
{
	enum { COUNT = 20000 };
	char name[16];

	(void)state;
	limits.names_max = COUNT;
	reopen();
	for (unsigned i = 0; i < COUNT; i++) {
		(void)snprintf(name, sizeof(name), "n%u", i);
		put_name(DIR_ID + i % 7, name);
	}
	for (unsigned i = 0; i < COUNT; i++) {
		(void)snprintf(name, sizeof(name), "n%u", i);
		assert_true(marks_has_name(marks, DIR_ID + i % 7, name));
		assert_false(marks_has_name(marks, DIR_ID + (i + 1) % 7, name));
	}
	assert_int_equal(marks->entry_count, COUNT + 7);
	assert_in_range(marks->bucket_count, COUNT, COUNT + 7);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, fixture_start, fixture_stop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(name_is_given_once_and_not_with_a_change_in_flight),
		CASE(name_changed_during_its_claim_stays),
		CASE(directory_attr_waits_for_its_names),
		CASE(resting_waits_for_a_change_of_the_target),
		CASE(resting_comes_after_what_is_ready),
		CASE(scan_remembers_to_compare),
		CASE(unpaired_waits_for_its_pair),
		CASE(dropped_object_has_no_marks),
		CASE(object_just_put_can_be_taken),
		CASE(hot_marks_cool_but_not_for_ever),
		CASE(bulk_cools_by_group),
		CASE(draining_ends_cooling_but_not_later),
		CASE(waiters_are_woken_by_what_they_wait_for),
		CASE(kinds_take_turns),
		CASE(scan_waits_for_room_for_names),
		CASE(restart_finds_all_marks),
		CASE(what_does_not_fit_comes_back),
		CASE(what_is_spilled_unflushed_comes_back),
		CASE(record_read_from_an_old_snapshot_takes_back_nothing),
		CASE(start_beyond_the_limits_reads_the_rest_later),
		CASE(change_of_a_spilled_object_takes_back_no_record),
		CASE(bytes_count_what_is_dirty),
		CASE(table_grows_and_finds_everything),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
