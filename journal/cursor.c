/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "journal/journal_internal.h"

/*
 * An iterator keeps alive every file and memtable that there was when it was made, so a
 * slow walk over a large directory would hold up memory and disk for hours. A current
 * cursor makes a new one from time to time, which starts behind the last key: what stays
 * is never missed, since keys do not move.
 */
enum { CURSOR_ITERATOR_KEYS = 4096 };

struct journal_cursor {
	struct journal *journal;
	enum column column;
	enum cursor_kind kind;
	rocksdb_readoptions_t *options;
	rocksdb_iterator_t *iterator; /* stands on the key to return next */
	struct buffer upper;	      /* RocksDB keeps pointing into it */
	struct buffer last;	      /* the key returned last */
	unsigned left;		      /* keys before a new iterator */
	bool has_last;
};

static void iterator_end(struct journal_cursor *cursor)
{
	if (cursor->iterator)
		rocksdb_iter_destroy(cursor->iterator);
	cursor->iterator = NULL;
}

/* Puts an iterator on the first key not before @from. */
static void iterator_begin(struct journal_cursor *cursor, const struct buffer *from)
{
	iterator_end(cursor);
	cursor->iterator =
		rocksdb_create_iterator_cf(cursor->journal->rocks.db, cursor->options,
					   cursor->journal->rocks.column[cursor->column]);
	rocksdb_iter_seek(cursor->iterator, (const char *)from->bytes, from->length);
	cursor->left = CURSOR_ITERATOR_KEYS;
}

int cursor_open(struct journal *journal, enum column column, const struct buffer *prefix,
		enum cursor_kind kind, struct journal_cursor **ret_cursor)
{
	struct journal_cursor *cursor;

	cursor = malloc(sizeof(*cursor));
	if (!cursor)
		return -ENOMEM;
	*cursor = (struct journal_cursor){ .journal = journal, .column = column, .kind = kind };
	cursor->options = rocksdb_readoptions_create();
	cursor->upper = *prefix;
	if (buffer_next_prefix(&cursor->upper))
		rocksdb_readoptions_set_iterate_upper_bound(
			cursor->options, (const char *)cursor->upper.bytes, cursor->upper.length);
	iterator_begin(cursor, prefix);
	*ret_cursor = cursor;
	return 0;
}

enum column cursor_column(const struct journal_cursor *cursor)
{
	return cursor->column;
}

static bool stands_on_last(const struct journal_cursor *cursor)
{
	const char *key;
	size_t length;

	if (!cursor->has_last || !rocksdb_iter_valid(cursor->iterator))
		return false;
	key = rocksdb_iter_key(cursor->iterator, &length);
	return length == cursor->last.length && memcmp(key, cursor->last.bytes, length) == 0;
}

int cursor_next(struct journal_cursor *cursor, const void **ret_key, size_t *ret_key_length,
		const void **ret_value, size_t *ret_value_length)
{
	char *text = NULL;

	if (cursor->kind == CURSOR_CURRENT && cursor->left == 0)
		iterator_begin(cursor, &cursor->last);
	if (stands_on_last(cursor))
		rocksdb_iter_next(cursor->iterator);
	if (!rocksdb_iter_valid(cursor->iterator)) {
		rocksdb_iter_get_error(cursor->iterator, &text);
		if (text)
			return rocks_error(text, "cannot read from the journal");
		return JOURNAL_E_END;
	}
	*ret_key = rocksdb_iter_key(cursor->iterator, ret_key_length);
	*ret_value = rocksdb_iter_value(cursor->iterator, ret_value_length);
	if (*ret_key_length > sizeof(cursor->last.bytes))
		return rocks_bad_record(cursor->column, *ret_key, *ret_key_length);
	memcpy(cursor->last.bytes, *ret_key, *ret_key_length);
	cursor->last.length = *ret_key_length;
	cursor->has_last = true;
	if (cursor->left > 0)
		cursor->left--;
	return 0;
}

struct journal_cursor *journal_cursor_close(struct journal_cursor *cursor)
{
	if (!cursor)
		return NULL;
	iterator_end(cursor);
	rocksdb_readoptions_destroy(cursor->options);
	free(cursor);
	return NULL;
}
