/* SPDX-License-Identifier: Apache-2.0 */
#include "marks_fixture.h"

#include <string.h>

#include "util/clock.h"

struct journal *journal;
struct marks *marks;
struct marks_limits limits;

int fixture_start(void **state)
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

int fixture_stop(void **state)
{
	(void)state;
	marks = marks_close(marks);
	journal = fake_journal_free(journal);
	return 0;
}

void reopen(void)
{
	marks = marks_close(marks);
	assert_int_equal(marks_open(journal, &limits, &marks), 0);
}

void crash_now(void)
{
	fake_journal_crash(journal, 0);
	reopen();
}

/* ---- short words --------------------------------------------------------- */

void begin_data(struct marks_change *c, uint64_t id, uint64_t offset, uint64_t end)
{
	*c = MARKS_CHANGE_NULL;
	marks_change_add_data(c, id, offset, end);
	marks_change_begin(marks, c);
}

void begin_attr(struct marks_change *c, uint64_t id)
{
	*c = MARKS_CHANGE_NULL;
	marks_change_add_attr(c, id);
	marks_change_begin(marks, c);
}

void begin_name(struct marks_change *c, uint64_t dir, const char *name)
{
	*c = MARKS_CHANGE_NULL;
	marks_change_add_name(c, dir, name);
	marks_change_begin(marks, c);
}

void end_change(struct marks_change *c)
{
	marks_change_end(marks, c);
	marks_check(marks);
}

void write_data(uint64_t id, uint64_t offset, uint64_t end_offset)
{
	struct marks_change c;

	begin_data(&c, id, offset, end_offset);
	end_change(&c);
}

void change_name(uint64_t dir, const char *name)
{
	struct marks_change c;

	begin_name(&c, dir, name);
	end_change(&c);
}

void change_attr(uint64_t id)
{
	struct marks_change c;

	begin_attr(&c, id);
	end_change(&c);
}

bool next_task(unsigned kinds, struct marks_task *ret_task)
{
	int r = marks_next(marks, kinds, 0, ret_task);

	assert_in_range(r, 0, 1);
	marks_check(marks);
	return r > 0;
}

/* The same, with time to read back what is spilled. */
bool next_spilled(struct marks_task *ret_task)
{
	/* What is spilled may be nothing but records of what was cleared since. */
	for (unsigned tries = 0; tries < 1000 && !marks_is_empty(marks); tries++)
		if (marks_next(marks, ALL, clock_ms() + 10, ret_task) > 0)
			return true;
	return false;
}

struct marks_task must_next(unsigned kinds)
{
	struct marks_task task = MARKS_TASK_NULL;

	assert_true(next_task(kinds, &task));
	return task;
}

void none_next(unsigned kinds)
{
	struct marks_task task;

	assert_false(next_task(kinds, &task));
}

bool clear_task(struct marks_task *task, uint64_t source_end)
{
	bool is_all;

	marks_lock(marks);
	is_all = marks_clear_locked(marks, task, source_end);
	(void)marks_unlock(marks);
	marks_check(marks);
	return is_all;
}

void keep_task(struct marks_task *task, enum marks_why why, uint64_t value)
{
	marks_lock(marks);
	marks_keep_locked(marks, task, why, value);
	(void)marks_unlock(marks);
	marks_check(marks);
}

void target_changes(void)
{
	marks_lock(marks);
	marks_count_target_change_locked(marks);
	(void)marks_unlock(marks);
}

void put_name(uint64_t dir, const char *name)
{
	marks_lock(marks);
	marks_put_name_locked(marks, dir, name);
	(void)marks_unlock(marks);
}

void put_whole(uint64_t id, uint64_t size, bool is_virgin)
{
	marks_lock(marks);
	marks_put_whole_locked(marks, id, size, is_virgin);
	(void)marks_unlock(marks);
}

/* In the journal now, whatever a crash would leave. */
bool is_recorded(enum journal_mark_kind kind, uint64_t id, uint64_t number, const char *name)
{
	struct fake_marks found;
	bool is;

	fake_journal_get(journal, 0, &found);
	is = fake_marks_has(&found, kind, id, number, name);
	fake_marks_done(&found);
	return is;
}

bool is_covered(uint64_t id, uint64_t offset)
{
	struct fake_marks found;
	bool is;

	fake_journal_get(journal, 0, &found);
	is = fake_marks_covers(&found, id, offset);
	fake_marks_done(&found);
	return is;
}

size_t record_count(void)
{
	struct fake_marks found;
	size_t count;

	fake_journal_flush_all(journal);
	fake_journal_get(journal, 0, &found);
	count = found.count;
	fake_marks_done(&found);
	return count;
}

uint64_t tail_record(uint64_t id)
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

void drain_all(void)
{
	struct marks_task task;

	while (next_task(ALL, &task))
		assert_true(clear_task(&task, MARKS_INFINITY - 1));
	assert_true(marks_is_empty(marks));
	assert_int_equal(record_count(), 0);
}

void make_bulk(uint64_t id, uint64_t size)
{
	struct marks_task task;

	put_whole(id, size, true);
	task = must_next(OBJECT);
	keep_task(&task, MARKS_BULK, size);
}
