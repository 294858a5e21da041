/* SPDX-License-Identifier: Apache-2.0 */
/* The marks' protocol, rule by rule: changes against claims of data and attr; among the
 * cases are what the broken variants of the models get wrong. */

#include <errno.h>

#include "marks_fixture.h"
#include "util/log.h"

/* ---- changes ------------------------------------------------------------- */

static void change_begins_when_its_marks_are_in_the_journal(void **state)
{
	struct marks_change c = MARKS_CHANGE_NULL;

	(void)state;
	marks_change_add_name(&c, DIR_ID, "a");
	marks_change_add_attr(&c, DIR_ID);
	marks_change_add_data(&c, FILE_ID, 5 * GROUP, 5 * GROUP + 1);
	marks_change_begin(marks, &c);
	assert_true(is_recorded(JOURNAL_MARK_NAME, DIR_ID, 0, "a"));
	assert_true(is_recorded(JOURNAL_MARK_ATTR, DIR_ID, 0, NULL));
	assert_true(is_recorded(JOURNAL_MARK_DATA, FILE_ID, 5, NULL));
	assert_false(is_recorded(JOURNAL_MARK_ATTR, FILE_ID, 0, NULL)); /* implied */
	end_change(&c);
}

static void change_waits_for_a_put_of_another(void **state)
{
	struct marks_change c;

	(void)state;
	marks_put_whole(marks, OTHER_ID, 0);
	assert_true(is_covered(OTHER_ID, 0)); /* it waits itself */
	put_whole(FILE_ID, 0, false);
	assert_false(is_covered(FILE_ID, 0));
	begin_data(&c, FILE_ID, 0, 1);
	assert_true(is_covered(FILE_ID, 0));
	end_change(&c);

	put_name(DIR_ID, "a");
	assert_false(is_recorded(JOURNAL_MARK_NAME, DIR_ID, 0, "a"));
	begin_name(&c, DIR_ID, "a");
	assert_true(is_recorded(JOURNAL_MARK_NAME, DIR_ID, 0, "a"));
	end_change(&c);
}

static void change_of_what_is_dirty_and_flushed_writes_nothing(void **state)
{
	uint64_t puts;

	(void)state;
	write_data(FILE_ID, 0, 2 * GROUP);
	change_name(DIR_ID, "a");
	marks_put_whole(marks, OTHER_ID, 0);
	write_data(OTHER_ID, 0, 1);
	puts = fake_journal_puts(journal);
	fake_journal_fail(journal, -EIO);
	for (unsigned i = 0; i < 100; i++) {
		write_data(FILE_ID, i * BLOCK, i * BLOCK + 7);
		write_data(OTHER_ID, (uint64_t)i * GROUP, (uint64_t)i * GROUP + GROUP);
		change_attr(FILE_ID);
		change_name(DIR_ID, "a");
	}
	assert_int_equal(fake_journal_puts(journal), puts);
	assert_false(marks_is_lost(marks));
}

static void journal_that_fails_does_not_stop_changes(void **state)
{
	(void)state;
	assert_false(marks_is_lost(marks));
	fake_journal_fail(journal, -ENOSPC);
	write_data(FILE_ID, 0, 1);
	assert_true(marks_is_lost(marks));
	write_data(FILE_ID, GROUP, GROUP + 1);
	assert_false(marks_is_empty(marks));
}

static void empty_write_marks_attr_alone(void **state)
{
	struct marks_task task;

	(void)state;
	write_data(FILE_ID, 10, 10);
	task = must_next(ALL);
	assert_int_equal(task.kind, MARKS_OBJECT);
	assert_int_equal(task.range_count, 0);
	assert_true(clear_task(&task, 0));
	assert_true(marks_is_empty(marks));
}

/* ---- claims against changes ---------------------------------------------- */

static void claim_leaves_out_blocks_in_flight(void **state)
{
	struct marks_change c;
	struct marks_task task;

	(void)state;
	write_data(FILE_ID, 0, 10 * BLOCK);
	begin_data(&c, FILE_ID, 3 * BLOCK, 4 * BLOCK);
	task = must_next(OBJECT);
	RANGES(task, { 0, 3 * BLOCK }, { 4 * BLOCK, 10 * BLOCK });
	/* It began before the claim and is over before the clear. */
	end_change(&c);
	assert_false(clear_task(&task, 10 * BLOCK));
	task = must_next(OBJECT);
	RANGES(task, { 3 * BLOCK, 4 * BLOCK });
	assert_true(clear_task(&task, 10 * BLOCK));
	assert_true(marks_is_empty(marks));
}

static void write_during_a_claim_keeps_its_block_and_its_record(void **state)
{
	struct marks_task task;

	(void)state;
	write_data(FILE_ID, 0, 10 * BLOCK);
	task = must_next(OBJECT);
	assert_false(marks_is_redirtied(marks, &task));
	write_data(FILE_ID, 5 * BLOCK + 1, 5 * BLOCK + 2);
	assert_true(marks_is_redirtied(marks, &task));
	assert_false(clear_task(&task, 10 * BLOCK));
	fake_journal_flush_all(journal);
	assert_true(is_recorded(JOURNAL_MARK_DATA, FILE_ID, 0, NULL));
	task = must_next(OBJECT);
	RANGES(task, { 5 * BLOCK, 6 * BLOCK });
	assert_true(clear_task(&task, 10 * BLOCK));
	assert_int_equal(record_count(), 0);
}

static void write_that_outlives_the_clear_keeps_its_block(void **state)
{
	struct marks_change c;
	struct marks_task task;

	(void)state;
	write_data(FILE_ID, 0, 2 * BLOCK);
	task = must_next(OBJECT);
	begin_data(&c, FILE_ID, 0, BLOCK);
	assert_false(clear_task(&task, 2 * BLOCK));
	none_next(ALL);
	end_change(&c);
	task = must_next(OBJECT);
	RANGES(task, { 0, BLOCK });
	assert_true(clear_task(&task, 2 * BLOCK));
}

static void record_is_deleted_by_the_clear_and_not_by_the_claim(void **state)
{
	struct marks_task task;

	(void)state;
	write_data(FILE_ID, 0, BLOCK);
	task = must_next(OBJECT);
	fake_journal_flush_all(journal);
	assert_true(is_recorded(JOURNAL_MARK_DATA, FILE_ID, 0, NULL));
	free(task.ranges);
	crash_now();
	task = must_next(OBJECT);
	RANGES(task, { 0, GROUP });
	assert_true(clear_task(&task, BLOCK));
	assert_int_equal(record_count(), 0);
}

static void attr_stays_while_a_change_is_in_flight(void **state)
{
	struct marks_change c;
	struct marks_task task;

	(void)state;
	write_data(FILE_ID, 0, BLOCK);
	begin_attr(&c, FILE_ID);
	/* There is idle data: a file that is always being changed must not starve. */
	task = must_next(OBJECT);
	RANGES(task, { 0, BLOCK });
	assert_false(marks_is_redirtied(marks, &task));
	assert_false(clear_task(&task, BLOCK));
	/* With the data went what implied attr. */
	fake_journal_flush_all(journal);
	assert_true(is_recorded(JOURNAL_MARK_ATTR, FILE_ID, 0, NULL));
	/* But attr alone would be in vain. */
	none_next(ALL);
	end_change(&c);
	task = must_next(OBJECT);
	assert_int_equal(task.range_count, 0);
	assert_true(clear_task(&task, BLOCK));
	assert_int_equal(record_count(), 0);
}

static void change_of_attr_during_the_claim_keeps_it(void **state)
{
	struct marks_task task;

	(void)state;
	change_attr(FILE_ID);
	task = must_next(OBJECT);
	change_attr(FILE_ID);
	assert_true(marks_is_redirtied(marks, &task));
	assert_false(clear_task(&task, 0));
	drain_all();
}

static void task_is_given_when_its_mark_is_in_the_journal(void **state)
{
	struct marks_task task;

	(void)state;
	put_name(DIR_ID, "a");
	assert_false(is_recorded(JOURNAL_MARK_NAME, DIR_ID, 0, "a"));
	task = must_next(NAME);
	assert_true(is_recorded(JOURNAL_MARK_NAME, DIR_ID, 0, "a"));
	assert_true(clear_task(&task, 0));
}

/* ---- data ---------------------------------------------------------------- */

static void object_is_given_whole_as_one_range(void **state)
{
	struct marks_task task;

	(void)state;
	put_whole(FILE_ID, 5 * GROUP, true);
	task = must_next(OBJECT);
	RANGES(task, { 0, MARKS_INFINITY });
	assert_true(task.is_tail_virgin);
	keep_task(&task, MARKS_AGAIN, 0);
	task = must_next(OBJECT);
	assert_int_equal(task.attempts, 1);
	assert_false(task.is_tail_virgin); /* the first try may have written */
	assert_true(clear_task(&task, 5 * GROUP));
	assert_int_equal(record_count(), 0);
}

static void write_during_a_claim_of_the_tail_becomes_a_group(void **state)
{
	struct marks_change c;
	struct marks_task task;

	(void)state;
	put_whole(FILE_ID, 0, false);
	begin_data(&c, FILE_ID, 2 * GROUP + BLOCK, 2 * GROUP + 2 * BLOCK);
	task = must_next(OBJECT);
	RANGES(task, { 0, 2 * GROUP + BLOCK }, { 2 * GROUP + 2 * BLOCK, MARKS_INFINITY });
	write_data(FILE_ID, 7 * GROUP, 7 * GROUP + 1);
	end_change(&c);
	assert_false(clear_task(&task, 8 * GROUP));
	fake_journal_flush_all(journal);
	assert_int_equal(tail_record(FILE_ID), MARKS_INFINITY);
	assert_true(is_covered(FILE_ID, 2 * GROUP));
	assert_true(is_covered(FILE_ID, 7 * GROUP));
	assert_false(is_covered(FILE_ID, 3 * GROUP));
	task = must_next(OBJECT);
	RANGES(task, { 2 * GROUP + BLOCK, 2 * GROUP + 2 * BLOCK },
	       { 7 * GROUP, 7 * GROUP + BLOCK });
	assert_true(clear_task(&task, 8 * GROUP));
}

static void truncate_in_flight_ends_the_claim_of_the_tail(void **state)
{
	struct marks_change c;
	struct marks_task task;

	(void)state;
	put_whole(FILE_ID, 9 * GROUP, false);
	begin_data(&c, FILE_ID, 4 * GROUP + 5, MARKS_INFINITY);
	task = must_next(OBJECT);
	RANGES(task, { 0, 4 * GROUP });
	assert_false(clear_task(&task, 9 * GROUP));
	assert_int_equal(tail_record(FILE_ID), 4 * GROUP);
	none_next(ALL);
	end_change(&c);
	task = must_next(OBJECT);
	RANGES(task, { 4 * GROUP, MARKS_INFINITY });
	assert_true(clear_task(&task, 4 * GROUP + 5));
}

static void truncate_marks_all_to_infinity_and_absorbs_groups(void **state)
{
	struct marks_task task;

	(void)state;
	write_data(FILE_ID, 0, 4 * GROUP);
	write_data(FILE_ID, 2 * GROUP + 9, MARKS_INFINITY);
	assert_int_equal(tail_record(FILE_ID), 2 * GROUP);
	assert_true(is_recorded(JOURNAL_MARK_DATA, FILE_ID, 1, NULL));
	assert_false(is_recorded(JOURNAL_MARK_DATA, FILE_ID, 2, NULL));
	assert_false(is_recorded(JOURNAL_MARK_DATA, FILE_ID, 3, NULL));
	task = must_next(OBJECT);
	RANGES(task, { 0, MARKS_INFINITY });
	assert_true(clear_task(&task, 0));
	assert_int_equal(record_count(), 0);
}

static void truncate_during_a_claim_keeps_all_from_there(void **state)
{
	struct marks_task task;

	(void)state;
	put_whole(FILE_ID, 9 * GROUP, false);
	task = must_next(OBJECT);
	write_data(FILE_ID, 3 * GROUP, MARKS_INFINITY);
	assert_false(clear_task(&task, 9 * GROUP));
	assert_int_equal(tail_record(FILE_ID), 3 * GROUP);
	task = must_next(OBJECT);
	RANGES(task, { 3 * GROUP, MARKS_INFINITY });
	/* Now below the claimed tail. */
	write_data(FILE_ID, GROUP, MARKS_INFINITY);
	assert_false(clear_task(&task, 9 * GROUP));
	assert_int_equal(tail_record(FILE_ID), GROUP);
	drain_all();
}

static void too_many_groups_become_tail(void **state)
{
	(void)state;
	limits.groups_per_object_max = 4;
	reopen();
	for (unsigned i = 0; i < 5; i++)
		write_data(FILE_ID, (uint64_t)i * 2 * GROUP, (uint64_t)i * 2 * GROUP + 1);
	assert_int_equal(tail_record(FILE_ID), 4 * GROUP);
	assert_true(is_recorded(JOURNAL_MARK_DATA, FILE_ID, 2, NULL));
	/* A long range at once, too. */
	write_data(OTHER_ID, GROUP, 100ull * GROUP);
	assert_int_equal(tail_record(OTHER_ID), GROUP);
	drain_all();
}

/* ---- bulk ---------------------------------------------------------------- */

static void bulk_is_given_by_groups_then_as_object(void **state)
{
	struct marks_task data[3], task;

	(void)state;
	make_bulk(FILE_ID, 2 * GROUP + 5);
	none_next(OBJECT);
	for (unsigned i = 0; i < 3; i++) {
		data[i] = must_next(DATA | OBJECT);
		assert_int_equal(data[i].kind, MARKS_DATA);
		assert_true(data[i].is_tail_virgin);
		RANGES(data[i], { i * (uint64_t)GROUP, (i + 1) * (uint64_t)GROUP });
	}
	none_next(ALL); /* OBJECT is alone */
	assert_true(clear_task(&data[1], 2 * GROUP + 5));
	assert_int_equal(tail_record(FILE_ID), 0); /* still covers the first */
	assert_true(clear_task(&data[0], 2 * GROUP + 5));
	assert_int_equal(tail_record(FILE_ID), 2 * GROUP);
	none_next(ALL);
	assert_false(clear_task(&data[2], 2 * GROUP + 5)); /* blocks past the end stay */
	task = must_next(ALL);
	assert_int_equal(task.kind, MARKS_OBJECT);
	RANGES(task, { 2 * GROUP + BLOCK, 3 * GROUP }, { 3 * GROUP, MARKS_INFINITY });
	assert_true(task.is_tail_virgin);
	none_next(ALL); /* neither is DATA beside it */
	assert_true(clear_task(&task, 2 * GROUP + 5));
	assert_int_equal(record_count(), 0);
}

static void bulk_group_redirtied_gets_a_record_of_its_own(void **state)
{
	struct marks_task task;

	(void)state;
	make_bulk(FILE_ID, 3 * GROUP);
	task = must_next(DATA);
	write_data(FILE_ID, BLOCK, 2 * BLOCK);
	assert_false(clear_task(&task, 3 * GROUP));
	assert_int_equal(tail_record(FILE_ID), GROUP);
	assert_true(is_recorded(JOURNAL_MARK_DATA, FILE_ID, 0, NULL));
	task = must_next(DATA);
	RANGES(task, { BLOCK, 2 * BLOCK });
	assert_false(task.is_tail_virgin);
	assert_true(clear_task(&task, 3 * GROUP));
	drain_all();
}

static void last_data_clear_puts_attr(void **state)
{
	struct marks_task task;

	(void)state;
	write_data(FILE_ID, 0, 2 * GROUP);
	task = must_next(OBJECT);
	keep_task(&task, MARKS_BULK, 2 * GROUP);
	for (unsigned i = 0; i < 2; i++) {
		assert_false(is_recorded(JOURNAL_MARK_ATTR, FILE_ID, 0, NULL));
		task = must_next(DATA);
		assert_true(clear_task(&task, 2 * GROUP));
		fake_journal_flush_all(journal);
	}
	assert_true(is_recorded(JOURNAL_MARK_ATTR, FILE_ID, 0, NULL));
	assert_int_equal(record_count(), 1);
	drain_all();
}

static void data_past_the_end_is_not_cleared_and_ends_the_bulk(void **state)
{
	struct marks_task task;

	(void)state;
	write_data(FILE_ID, 0, GROUP);
	task = must_next(OBJECT);
	keep_task(&task, MARKS_BULK, GROUP);
	task = must_next(DATA);
	assert_false(clear_task(&task, 3 * BLOCK + 1)); /* it was truncated meanwhile, say */
	none_next(DATA);
	task = must_next(OBJECT);
	RANGES(task, { 4 * BLOCK, GROUP });
	assert_true(clear_task(&task, 3 * BLOCK + 1));
	assert_int_equal(record_count(), 0);
}

static void truncate_over_claimed_groups_never_gives_them_twice(void **state)
{
	struct marks_task first, second, third;

	(void)state;
	make_bulk(FILE_ID, 3 * GROUP);
	first = must_next(DATA);
	second = must_next(DATA);
	write_data(FILE_ID, 0, MARKS_INFINITY);
	assert_int_equal(tail_record(FILE_ID), 0);
	third = must_next(DATA); /* not the first two, again */
	RANGES(third, { 2 * GROUP, 3 * GROUP });
	assert_false(clear_task(&first, 3 * GROUP));
	assert_false(clear_task(&second, 3 * GROUP));
	assert_true(clear_task(&third, 3 * GROUP));
	assert_true(is_covered(FILE_ID, 0));
	assert_true(is_covered(FILE_ID, GROUP));
	drain_all();
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, fixture_start, fixture_stop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(change_begins_when_its_marks_are_in_the_journal),
		CASE(change_waits_for_a_put_of_another),
		CASE(change_of_what_is_dirty_and_flushed_writes_nothing),
		CASE(journal_that_fails_does_not_stop_changes),
		CASE(empty_write_marks_attr_alone),
		CASE(claim_leaves_out_blocks_in_flight),
		CASE(write_during_a_claim_keeps_its_block_and_its_record),
		CASE(write_that_outlives_the_clear_keeps_its_block),
		CASE(record_is_deleted_by_the_clear_and_not_by_the_claim),
		CASE(attr_stays_while_a_change_is_in_flight),
		CASE(change_of_attr_during_the_claim_keeps_it),
		CASE(task_is_given_when_its_mark_is_in_the_journal),
		CASE(object_is_given_whole_as_one_range),
		CASE(write_during_a_claim_of_the_tail_becomes_a_group),
		CASE(truncate_in_flight_ends_the_claim_of_the_tail),
		CASE(truncate_marks_all_to_infinity_and_absorbs_groups),
		CASE(truncate_during_a_claim_keeps_all_from_there),
		CASE(too_many_groups_become_tail),
		CASE(bulk_is_given_by_groups_then_as_object),
		CASE(bulk_group_redirtied_gets_a_record_of_its_own),
		CASE(last_data_clear_puts_attr),
		CASE(data_past_the_end_is_not_cleared_and_ends_the_bulk),
		CASE(truncate_over_claimed_groups_never_gives_them_twice),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
