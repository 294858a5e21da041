/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * What the cases of the marks share: marks over a fake journal, which shows every state
 * that a crash could leave, and short words for what clients and workers do.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "fake_journal.h"
#include "journal/marks_internal.h"

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

extern struct journal *journal;
extern struct marks *marks;
extern struct marks_limits limits;

#define RANGES(task, ...)                                                                   \
	do {                                                                                \
		const struct marks_range ranges_[] = { __VA_ARGS__ };                       \
                                                                                            \
		assert_int_equal((task).range_count, sizeof(ranges_) / sizeof(ranges_[0])); \
		assert_memory_equal((task).ranges, ranges_, sizeof(ranges_));               \
	} while (0)

/* For cmocka: new marks over an empty journal, limits far away, nothing cools. */
int fixture_start(void **state);
int fixture_stop(void **state);
/* A restart; with the limits as they are now. */
void reopen(void);
/* A crash that keeps nothing unflushed, and a restart. */
void crash_now(void);

void begin_data(struct marks_change *c, uint64_t id, uint64_t offset, uint64_t end);
void begin_attr(struct marks_change *c, uint64_t id);
void begin_name(struct marks_change *c, uint64_t dir, const char *name);
void end_change(struct marks_change *c);
void write_data(uint64_t id, uint64_t offset, uint64_t end_offset);
void change_name(uint64_t dir, const char *name);
void change_attr(uint64_t id);

/* Without waiting. */
bool next_task(unsigned kinds, struct marks_task *ret_task);
/* The same, with time to read back what is spilled. */
bool next_spilled(struct marks_task *ret_task);
struct marks_task must_next(unsigned kinds);
void none_next(unsigned kinds);
bool clear_task(struct marks_task *task, uint64_t source_end);
void keep_task(struct marks_task *task, enum marks_why why, uint64_t value);
void target_changes(void);
void put_name(uint64_t dir, const char *name);
void put_whole(uint64_t id, uint64_t size, bool is_virgin);

/* In the journal now, whatever a crash would leave. */
bool is_recorded(enum journal_mark_kind kind, uint64_t id, uint64_t number, const char *name);
bool is_covered(uint64_t id, uint64_t offset);
/* After a flush. */
size_t record_count(void);
uint64_t tail_record(uint64_t id);
/* Works all off; nothing is left in memory or journal then. */
void drain_all(void);
/* A new object, whole, that an OBJECT task was too large for. */
void make_bulk(uint64_t id, uint64_t size);
