/* SPDX-License-Identifier: Apache-2.0 */
/* Names that a scan lists, and that its record covers. */

#include <stdio.h>
#include <string.h>

#include "marks_fixture.h"
#include "util/log.h"

static struct marks_task begin_scan(void)
{
	marks_lock(marks);
	marks_put_scan_locked(marks, DIR_ID, false);
	(void)marks_unlock(marks);
	return must_next(SCAN);
}

static void list(const struct marks_task *scan, const char *name)
{
	marks_lock(marks);
	marks_put_scanned_name_locked(marks, scan, name);
	(void)marks_unlock(marks);
	marks_check(marks);
}

static bool has_scan_record(void)
{
	return is_recorded(JOURNAL_MARK_SCAN, DIR_ID, 0, "");
}

static void clear_name(void)
{
	struct marks_task task = must_next(NAME);

	assert_true(clear_task(&task, 0));
}

static void record_of_a_scan_stays_until_its_names_are_done(void **state)
{
	struct marks_task scan = begin_scan();

	(void)state;
	assert_false(scan.is_of_before);
	list(&scan, "a");
	list(&scan, "b");
	assert_int_equal(record_count(), 1);
	clear_name();
	assert_true(clear_task(&scan, 0));
	assert_false(marks_has_scan(marks, DIR_ID));
	assert_true(has_scan_record());
	assert_false(marks_is_empty(marks));
	clear_name();
	assert_true(marks_is_empty(marks));
	assert_int_equal(record_count(), 0);
}

static void crash_scans_again_and_says_so(void **state)
{
	struct marks_task scan = begin_scan();

	(void)state;
	list(&scan, "a");
	assert_true(clear_task(&scan, 0));
	fake_journal_flush_all(journal);
	crash_now();
	assert_false(marks_has_name(marks, DIR_ID, "a"));
	scan = must_next(SCAN);
	assert_true(scan.is_of_before);
	assert_true(clear_task(&scan, 0));
	assert_int_equal(record_count(), 0);
	scan = begin_scan();
	assert_false(scan.is_of_before);
	assert_true(clear_task(&scan, 0));
}

static void changed_name_gets_a_record_and_keeps_its_mark(void **state)
{
	struct marks_task scan = begin_scan(), task;

	(void)state;
	list(&scan, "a");
	assert_true(clear_task(&scan, 0));
	task = must_next(NAME);
	change_name(DIR_ID, "a");
	assert_false(clear_task(&task, 0));
	assert_int_equal(record_count(), 1);
	assert_false(has_scan_record());
	clear_name();
	assert_int_equal(record_count(), 0);
}

static void scan_marked_again_keeps_its_record(void **state)
{
	struct marks_task scan = begin_scan();

	(void)state;
	list(&scan, "a");
	assert_true(clear_task(&scan, 0));
	scan = begin_scan();
	clear_name();
	assert_true(has_scan_record());
	assert_true(clear_task(&scan, 0));
	assert_int_equal(record_count(), 0);
}

static void name_marked_before_keeps_its_own_record(void **state)
{
	struct marks_task scan;

	(void)state;
	change_name(DIR_ID, "a");
	scan = begin_scan();
	list(&scan, "a");
	assert_true(clear_task(&scan, 0));
	assert_int_equal(record_count(), 1);
	assert_false(has_scan_record());
	clear_name();
	assert_int_equal(record_count(), 0);
}

/* Method: more names than may be in memory, and the scan is done before they are. */
static void spilled_name_gets_a_record(void **state)
{
	struct marks_task scan, task;
	unsigned found;
	char name[8];

	(void)state;
	limits.names_max = 2;
	reopen();
	scan = begin_scan();
	for (unsigned i = 0; i < 10; i++) {
		(void)snprintf(name, sizeof(name), "n%u", i);
		list(&scan, name);
	}
	assert_true(clear_task(&scan, 0));
	assert_true(record_count() >= 8);
	for (found = 0; next_spilled(&task); found++) {
		assert_int_equal(task.kind, MARKS_NAME);
		assert_true(clear_task(&task, 0));
	}
	assert_int_equal(found, 10);
	assert_true(marks_is_empty(marks));
	assert_int_equal(record_count(), 0);
}

static void dropped_directory_keeps_what_covers_its_names(void **state)
{
	struct marks_task scan = begin_scan();

	(void)state;
	list(&scan, "a");
	assert_true(clear_task(&scan, 0));
	marks_lock(marks);
	marks_drop_object_locked(marks, DIR_ID);
	(void)marks_unlock(marks);
	marks_check(marks);
	clear_name();
	assert_true(marks_is_empty(marks));
	assert_int_equal(record_count(), 0);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, fixture_start, fixture_stop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(record_of_a_scan_stays_until_its_names_are_done),
		CASE(crash_scans_again_and_says_so),
		CASE(changed_name_gets_a_record_and_keeps_its_mark),
		CASE(scan_marked_again_keeps_its_record),
		CASE(name_marked_before_keeps_its_own_record),
		CASE(spilled_name_gets_a_record),
		CASE(dropped_directory_keeps_what_covers_its_names),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
