/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * A journal of marks in memory, in place of RocksDB: what a test of the marks needs to
 * see every state that a crash could leave. Batches that were submitted and not flushed
 * are kept apart; a crash may keep any number of the oldest. Thread-safe.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "journal/journal.h"
#include "util/attr.h"

struct journal *fake_journal_new(void);
struct journal *fake_journal_free(struct journal *journal);

/* The process dies: all but the first @kept of the unflushed batches are lost. */
void fake_journal_crash(struct journal *journal, size_t kept);
size_t fake_journal_unflushed(struct journal *journal); /* batches */
void fake_journal_flush_all(struct journal *journal);
/* From now on each flush fails with @error. */
void fake_journal_fail(struct journal *journal, int error);

/* How many puts and deletes, and flushes that had something to do, were made so far. */
uint64_t fake_journal_puts(struct journal *journal);
uint64_t fake_journal_deletes(struct journal *journal);

/* The marks with the first @kept unflushed batches applied, ordered by kind, object,
 * number, name. */
struct fake_marks {
	struct journal_mark *items;
	size_t count, room;
};

void fake_journal_get(struct journal *journal, size_t kept, struct fake_marks *ret_marks);
void fake_marks_done(struct fake_marks *marks);
bool fake_marks_has(const struct fake_marks *marks, enum journal_mark_kind kind, uint64_t object,
		    uint64_t number, const char *name);
/* Whether byte @offset of @object has a data mark. */
bool fake_marks_covers(const struct fake_marks *marks, uint64_t object, uint64_t offset);
