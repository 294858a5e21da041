/* SPDX-License-Identifier: Apache-2.0 */
/* Each rule of the marks' protocol as a case; among them what the broken variants of the
 * models get wrong. The journal is a fake that shows every state a crash could leave. */

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
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
	FILE_ID = 100,
	OTHER_ID = 101,
	DIR_ID = 50,
	BLOCK = MARKS_BLOCK_BYTES,
	GROUP = MARKS_GROUP_BYTES,
};

enum {
	SCAN = 1 << MARKS_SCAN,
	NAME = 1 << MARKS_NAME,
	DATA = 1 << MARKS_DATA,
	OBJECT = 1 << MARKS_OBJECT,
	ALL = SCAN | NAME | DATA | OBJECT,
};

static struct journal *journal;
static struct marks *marks;
static struct marks_limits limits;

static int start(void **state)
{
	(void)state;
	limits = (struct marks_limits){
		.objects_max = 1000,
		.names_max = 1000,
		.scans_max = 1000,
		.groups_per_object_max = 1000,
	};
	journal = fake_journal_new();
	return marks_open(journal, &limits, &marks);
}

static int stop(void **state)
{
	(void)state;
	marks = marks_close(marks);
	journal = fake_journal_free(journal);
	return 0;
}

static void reopen(void)
{
	marks = marks_close(marks);
	assert_int_equal(marks_open(journal, &limits, &marks), 0);
}

static void crash(void)
{
	fake_journal_crash(journal, 0);
	reopen();
}

/* ---- short words --------------------------------------------------------- */

static void begin_data(struct marks_change *c, uint64_t id, uint64_t offset, uint64_t end)
{
	*c = MARKS_CHANGE_NULL;
	marks_change_add_data(c, id, offset, end);
	marks_change_begin(marks, c);
}

static void begin_attr(struct marks_change *c, uint64_t id)
{
	*c = MARKS_CHANGE_NULL;
	marks_change_add_attr(c, id);
	marks_change_begin(marks, c);
}

static void begin_name(struct marks_change *c, uint64_t dir, const char *name)
{
	*c = MARKS_CHANGE_NULL;
	marks_change_add_name(c, dir, name);
	marks_change_begin(marks, c);
}

static void end(struct marks_change *c)
{
	marks_change_end(marks, c);
	marks_check(marks);
}

static void write_data(uint64_t id, uint64_t offset, uint64_t end_offset)
{
	struct marks_change c;

	begin_data(&c, id, offset, end_offset);
	end(&c);
}

static void change_name(uint64_t dir, const char *name)
{
	struct marks_change c;

	begin_name(&c, dir, name);
	end(&c);
}

static void change_attr(uint64_t id)
{
	struct marks_change c;

	begin_attr(&c, id);
	end(&c);
}

static bool next(unsigned kinds, struct marks_task *ret_task)
{
	int r = marks_next(marks, kinds, 0, ret_task);

	assert_in_range(r, 0, 1);
	marks_check(marks);
	return r > 0;
}

/* The same, with time to read back what is spilled. */
static bool next_spilled(struct marks_task *ret_task)
{
	return !marks_is_empty(marks) && marks_next(marks, ALL, clock_ms() + 2000, ret_task) > 0;
}

static struct marks_task must_next(unsigned kinds)
{
	struct marks_task task = MARKS_TASK_NULL;

	assert_true(next(kinds, &task));
	return task;
}

static void none_next(unsigned kinds)
{
	struct marks_task task;

	assert_false(next(kinds, &task));
}

static bool clear(struct marks_task *task, uint64_t source_end)
{
	bool is_all;

	marks_lock(marks);
	is_all = marks_clear_locked(marks, task, source_end);
	(void)marks_unlock(marks);
	marks_check(marks);
	return is_all;
}

static void keep(struct marks_task *task, enum marks_why why, uint64_t value)
{
	marks_lock(marks);
	marks_keep_locked(marks, task, why, value);
	(void)marks_unlock(marks);
	marks_check(marks);
}

static void target_changes(void)
{
	marks_lock(marks);
	marks_count_target_change_locked(marks);
	(void)marks_unlock(marks);
}

static void put_name(uint64_t dir, const char *name)
{
	marks_lock(marks);
	marks_put_name_locked(marks, dir, name);
	(void)marks_unlock(marks);
}

static void put_whole(uint64_t id, uint64_t size, bool is_virgin)
{
	marks_lock(marks);
	marks_put_whole_locked(marks, id, size, is_virgin);
	(void)marks_unlock(marks);
}

#define RANGES(task, ...)                                                                   \
	do {                                                                                \
		const struct marks_range ranges_[] = { __VA_ARGS__ };                       \
                                                                                            \
		assert_int_equal((task).range_count, sizeof(ranges_) / sizeof(ranges_[0])); \
		assert_memory_equal((task).ranges, ranges_, sizeof(ranges_));               \
	} while (0)

/* In the journal now, whatever a crash would leave. */
static bool is_recorded(enum journal_mark_kind kind, uint64_t id, uint64_t number, const char *name)
{
	struct fake_marks found;
	bool is;

	fake_journal_get(journal, 0, &found);
	is = fake_marks_has(&found, kind, id, number, name);
	fake_marks_done(&found);
	return is;
}

static bool is_covered(uint64_t id, uint64_t offset)
{
	struct fake_marks found;
	bool is;

	fake_journal_get(journal, 0, &found);
	is = fake_marks_covers(&found, id, offset);
	fake_marks_done(&found);
	return is;
}

static size_t record_count(void)
{
	struct fake_marks found;
	size_t count;

	fake_journal_flush_all(journal);
	fake_journal_get(journal, 0, &found);
	count = found.count;
	fake_marks_done(&found);
	return count;
}

static uint64_t tail_record(uint64_t id)
{
	struct fake_marks found;
	uint64_t value = MARKS_INFINITY;

	fake_journal_flush_all(journal);
	fake_journal_get(journal, 0, &found);
	for (size_t i = 0; i < found.count; i++)
		if (found.items[i].kind == JOURNAL_MARK_DATA && found.items[i].object == id &&
		    found.items[i].number == JOURNAL_TAIL)
			value = found.items[i].value;
	fake_marks_done(&found);
	return value;
}

static void drain_all(void)
{
	struct marks_task task;

	while (next(ALL, &task))
		assert_true(clear(&task, MARKS_INFINITY - 1));
	assert_true(marks_is_empty(marks));
	assert_int_equal(record_count(), 0);
}

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
	end(&c);
}

static void change_waits_for_a_put_of_another(void **state)
{
	struct marks_change c;

	(void)state;
	marks_put_whole(marks, FILE_ID, 0);
	assert_false(is_covered(FILE_ID, 0));
	begin_data(&c, FILE_ID, 0, 1);
	assert_true(is_covered(FILE_ID, 0));
	end(&c);

	put_name(DIR_ID, "a");
	assert_false(is_recorded(JOURNAL_MARK_NAME, DIR_ID, 0, "a"));
	begin_name(&c, DIR_ID, "a");
	assert_true(is_recorded(JOURNAL_MARK_NAME, DIR_ID, 0, "a"));
	end(&c);
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
	assert_true(clear(&task, 0));
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
	end(&c);
	assert_false(clear(&task, 10 * BLOCK));
	task = must_next(OBJECT);
	RANGES(task, { 3 * BLOCK, 4 * BLOCK });
	assert_true(clear(&task, 10 * BLOCK));
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
	assert_false(clear(&task, 10 * BLOCK));
	fake_journal_flush_all(journal);
	assert_true(is_recorded(JOURNAL_MARK_DATA, FILE_ID, 0, NULL));
	task = must_next(OBJECT);
	RANGES(task, { 5 * BLOCK, 6 * BLOCK });
	assert_true(clear(&task, 10 * BLOCK));
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
	assert_false(clear(&task, 2 * BLOCK));
	none_next(ALL);
	end(&c);
	task = must_next(OBJECT);
	RANGES(task, { 0, BLOCK });
	assert_true(clear(&task, 2 * BLOCK));
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
	crash();
	task = must_next(OBJECT);
	RANGES(task, { 0, GROUP });
	assert_true(clear(&task, BLOCK));
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
	assert_false(clear(&task, BLOCK));
	/* With the data went what implied attr. */
	fake_journal_flush_all(journal);
	assert_true(is_recorded(JOURNAL_MARK_ATTR, FILE_ID, 0, NULL));
	/* But attr alone would be in vain. */
	none_next(ALL);
	end(&c);
	task = must_next(OBJECT);
	assert_int_equal(task.range_count, 0);
	assert_true(clear(&task, BLOCK));
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
	assert_false(clear(&task, 0));
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
	assert_true(clear(&task, 0));
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
	keep(&task, MARKS_AGAIN, 0);
	task = must_next(OBJECT);
	assert_int_equal(task.attempts, 1);
	assert_false(task.is_tail_virgin); /* the first try may have written */
	assert_true(clear(&task, 5 * GROUP));
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
	end(&c);
	assert_false(clear(&task, 8 * GROUP));
	fake_journal_flush_all(journal);
	assert_int_equal(tail_record(FILE_ID), MARKS_INFINITY);
	assert_true(is_covered(FILE_ID, 2 * GROUP));
	assert_true(is_covered(FILE_ID, 7 * GROUP));
	assert_false(is_covered(FILE_ID, 3 * GROUP));
	task = must_next(OBJECT);
	RANGES(task, { 2 * GROUP + BLOCK, 2 * GROUP + 2 * BLOCK },
	       { 7 * GROUP, 7 * GROUP + BLOCK });
	assert_true(clear(&task, 8 * GROUP));
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
	assert_false(clear(&task, 9 * GROUP));
	assert_int_equal(tail_record(FILE_ID), 4 * GROUP);
	none_next(ALL);
	end(&c);
	task = must_next(OBJECT);
	RANGES(task, { 4 * GROUP, MARKS_INFINITY });
	assert_true(clear(&task, 4 * GROUP + 5));
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
	assert_true(clear(&task, 0));
	assert_int_equal(record_count(), 0);
}

static void truncate_during_a_claim_keeps_all_from_there(void **state)
{
	struct marks_task task;

	(void)state;
	put_whole(FILE_ID, 9 * GROUP, false);
	task = must_next(OBJECT);
	write_data(FILE_ID, 3 * GROUP, MARKS_INFINITY);
	assert_false(clear(&task, 9 * GROUP));
	assert_int_equal(tail_record(FILE_ID), 3 * GROUP);
	task = must_next(OBJECT);
	RANGES(task, { 3 * GROUP, MARKS_INFINITY });
	/* Now below the claimed tail. */
	write_data(FILE_ID, GROUP, MARKS_INFINITY);
	assert_false(clear(&task, 9 * GROUP));
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

static void make_bulk(uint64_t id, uint64_t size)
{
	struct marks_task task;

	put_whole(id, size, true);
	task = must_next(OBJECT);
	keep(&task, MARKS_BULK, size);
}

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
	assert_true(clear(&data[1], 2 * GROUP + 5));
	assert_int_equal(tail_record(FILE_ID), 0); /* still covers the first */
	assert_true(clear(&data[0], 2 * GROUP + 5));
	assert_int_equal(tail_record(FILE_ID), 2 * GROUP);
	none_next(ALL);
	assert_false(clear(&data[2], 2 * GROUP + 5)); /* blocks past the end stay */
	task = must_next(ALL);
	assert_int_equal(task.kind, MARKS_OBJECT);
	RANGES(task, { 2 * GROUP + BLOCK, 3 * GROUP }, { 3 * GROUP, MARKS_INFINITY });
	assert_true(task.is_tail_virgin);
	none_next(ALL); /* neither is DATA beside it */
	assert_true(clear(&task, 2 * GROUP + 5));
	assert_int_equal(record_count(), 0);
}

static void bulk_group_redirtied_gets_a_record_of_its_own(void **state)
{
	struct marks_task task;

	(void)state;
	make_bulk(FILE_ID, 3 * GROUP);
	task = must_next(DATA);
	write_data(FILE_ID, BLOCK, 2 * BLOCK);
	assert_false(clear(&task, 3 * GROUP));
	assert_int_equal(tail_record(FILE_ID), GROUP);
	assert_true(is_recorded(JOURNAL_MARK_DATA, FILE_ID, 0, NULL));
	task = must_next(DATA);
	RANGES(task, { BLOCK, 2 * BLOCK });
	assert_false(task.is_tail_virgin);
	assert_true(clear(&task, 3 * GROUP));
	drain_all();
}

static void last_data_clear_puts_attr(void **state)
{
	struct marks_task task;

	(void)state;
	write_data(FILE_ID, 0, 2 * GROUP);
	task = must_next(OBJECT);
	keep(&task, MARKS_BULK, 2 * GROUP);
	for (unsigned i = 0; i < 2; i++) {
		assert_false(is_recorded(JOURNAL_MARK_ATTR, FILE_ID, 0, NULL));
		task = must_next(DATA);
		assert_true(clear(&task, 2 * GROUP));
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
	keep(&task, MARKS_BULK, GROUP);
	task = must_next(DATA);
	assert_false(clear(&task, 3 * BLOCK + 1)); /* it was truncated meanwhile, say */
	none_next(DATA);
	task = must_next(OBJECT);
	RANGES(task, { 4 * BLOCK, GROUP });
	assert_true(clear(&task, 3 * BLOCK + 1));
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
	assert_false(clear(&first, 3 * GROUP));
	assert_false(clear(&second, 3 * GROUP));
	assert_true(clear(&third, 3 * GROUP));
	assert_true(is_covered(FILE_ID, 0));
	assert_true(is_covered(FILE_ID, GROUP));
	drain_all();
}

/* ---- names and scans ----------------------------------------------------- */

static void name_is_given_once_and_not_with_a_change_in_flight(void **state)
{
	struct marks_change c;
	struct marks_task task;

	(void)state;
	begin_name(&c, DIR_ID, "a");
	none_next(NAME);
	end(&c);
	task = must_next(NAME);
	assert_int_equal(task.object, DIR_ID);
	assert_string_equal(task.name, "a");
	none_next(NAME);
	assert_true(clear(&task, 0));
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
	assert_false(clear(&task, 0));
	none_next(NAME);
	end(&c);
	fake_journal_flush_all(journal);
	assert_true(is_recorded(JOURNAL_MARK_NAME, DIR_ID, 0, "a"));
	task = must_next(NAME);
	put_name(DIR_ID, "a"); /* by another worker */
	assert_false(clear(&task, 0));
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
	assert_true(clear(&a, 0));
	none_next(OBJECT);
	assert_true(clear(&b, 0));
	task = must_next(OBJECT);
	assert_int_equal(task.object, DIR_ID);
	assert_true(clear(&task, 0));
	assert_true(marks_is_empty(marks));
}

static void resting_waits_for_a_change_of_the_target(void **state)
{
	struct marks_task task;

	(void)state;
	change_name(DIR_ID, "a");
	task = must_next(NAME);
	keep(&task, MARKS_REST, 0);
	none_next(NAME);
	target_changes();
	task = must_next(NAME);
	assert_int_equal(task.attempts, 1);
	/* The target changes between the failed try and going to rest. */
	target_changes();
	keep(&task, MARKS_REST, 0);
	task = must_next(NAME);
	keep(&task, MARKS_REST, 0);
	none_next(NAME);
	/* A change of the mark itself wakes it, too. */
	change_name(DIR_ID, "a");
	task = must_next(NAME);
	assert_true(clear(&task, 0));
}

static void resting_comes_after_what_is_ready(void **state)
{
	struct marks_task task;

	(void)state;
	change_name(DIR_ID, "a");
	task = must_next(NAME);
	keep(&task, MARKS_REST, 0);
	change_name(DIR_ID, "b");
	target_changes();
	task = must_next(NAME);
	assert_string_equal(task.name, "b");
	assert_true(clear(&task, 0));
	task = must_next(NAME);
	assert_string_equal(task.name, "a");
	assert_true(clear(&task, 0));
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
	crash();
	assert_true(marks_has_scan(marks, DIR_ID));
	task = must_next(SCAN);
	assert_true(task.is_compare);
	assert_true(clear(&task, 0));
	assert_int_equal(record_count(), 0);
}

static void unpaired_waits_for_its_pair(void **state)
{
	struct marks_task task;

	(void)state;
	put_whole(FILE_ID, 0, false);
	task = must_next(OBJECT);
	keep(&task, MARKS_UNPAIRED, 0);
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
	keep(&task, MARKS_UNPAIRED, 0);
	task = must_next(OBJECT);
	assert_true(clear(&task, 1));
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
	end(&c);
	(void)clear(&data, 3 * GROUP);
	assert_false(marks_has_scan(marks, FILE_ID));
	assert_int_equal(record_count(), 1);
	task = must_next(ALL); /* its names are another matter */
	assert_int_equal(task.kind, MARKS_NAME);
	assert_true(clear(&task, 0));
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
	assert_true(clear(&task, 10));
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
	while (!next(OBJECT, &task)) {
		assert_in_range(clock_ms() - begun_ms, 0, 5000);
		write_data(FILE_ID, 0, BLOCK);
	}
	assert_true(clock_ms() - begun_ms >= 500);
	assert_true(clear(&task, BLOCK));

	/* Waiting for it, the worker is woken in time. */
	begun_ms = clock_ms();
	change_name(DIR_ID, "a");
	assert_int_equal(marks_next(marks, ALL, begun_ms + 10000, &task), 1);
	assert_in_range(clock_ms() - begun_ms, 150, 5000);
	assert_true(clear(&task, 0));
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
		keep(&task, MARKS_AGAIN, 0);
		if (i == 0)
			write_data(FILE_ID, 0, 1); /* hot from now */
	}
	task = must_next(DATA);
	RANGES(task, { GROUP, 2 * GROUP });
	assert_true(clear(&task, 3 * GROUP));
	task = must_next(DATA);
	RANGES(task, { 2 * GROUP, 3 * GROUP });
	assert_true(clear(&task, 3 * GROUP));
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
	keep(&task, MARKS_LATER, 300);
	task = must_next(NAME);
	assert_string_equal(task.name, "b");
	assert_true(clear(&task, 0));
	none_next(NAME);
	assert_int_equal(marks_wait_empty(marks, clock_ms() + 1), -ETIMEDOUT);
	assert_int_equal(marks_next(marks, NAME, begun_ms + 10000, &task), 1);
	assert_true(clock_ms() - begun_ms >= 300);
	assert_true(clear(&task, 0));
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
	assert_true(clear(&objects.task, 0));
	assert_true(clear(&names.task, 0));

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
		assert_true(clear(&task, 0));
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
	assert_true(clear(&task, 0));
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
	crash();
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
		assert_true(clear(&task, 1));
	}
	assert_true(names >= COUNT);
	assert_true(objects >= COUNT);
	assert_true(marks_is_empty(marks));
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
		(void)clear(&task, 2 * GROUP);
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
		(void)clear(&task, MARKS_INFINITY - 1);
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
	while (next(ALL, &task))
		assert_true(clear(&task, MARKS_INFINITY - 1));
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

#define CASE(f) cmocka_unit_test_setup_teardown(f, start, stop)

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
		CASE(start_beyond_the_limits_reads_the_rest_later),
		CASE(change_of_a_spilled_object_takes_back_no_record),
		CASE(bytes_count_what_is_dirty),
		CASE(table_grows_and_finds_everything),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
