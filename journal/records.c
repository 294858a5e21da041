/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>

#include "journal/journal_internal.h"

/* The persisted form of the marks; marks.c has their meaning. */

void journal_put_mark(struct journal *journal, const struct journal_mark *mark)
{
	struct buffer key;

	assert(mark->object != 0);
	key_mark(&key, mark);
	queue_put_u64(journal, COLUMN_MARKS, &key, mark->value);
}

void journal_delete_mark(struct journal *journal, const struct journal_mark *mark)
{
	struct buffer key;

	assert(mark->object != 0);
	key_mark(&key, mark);
	queue_delete(journal, COLUMN_MARKS, &key);
}

int journal_marks_open(struct journal *journal, enum journal_mark_kind kind,
		       struct journal_cursor **ret_cursor)
{
	struct buffer prefix;

	key_mark_kind(&prefix, kind);
	return cursor_open(journal, COLUMN_MARKS, &prefix, CURSOR_SNAPSHOT, ret_cursor);
}

int journal_marks_next(struct journal_cursor *cursor, struct journal_mark *ret_mark)
{
	size_t key_length, value_length;
	const void *key, *value;
	int r;

	assert(cursor_column(cursor) == COLUMN_MARKS);
	r = cursor_next(cursor, &key, &key_length, &value, &value_length);
	if (r != 0)
		return r;
	if (!decode_mark(key, key_length, value, value_length, ret_mark))
		return rocks_bad_record(COLUMN_MARKS, key, key_length);
	return 0;
}
