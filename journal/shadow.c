/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <string.h>

#include "journal/journal_internal.h"

/*
 * The shadow is kept twice: by place (directory, name) -> id, and by object as the keys
 * id, directory, name without a value. Both are always put and deleted together.
 */

int journal_shadow_get(struct journal *journal, uint64_t dir, const char *name, uint64_t *ret_id)
{
	_cleanup_rocks_value_ struct rocks_value value = { 0 };
	struct buffer key;
	int r;

	key_shadow(&key, dir, name);
	r = rocks_get(&journal->rocks, COLUMN_SHADOW, key.bytes, key.length, &value);
	if (r != 0)
		return r;
	if (!decode_u64(value.bytes, value.length, ret_id))
		return rocks_bad_record(COLUMN_SHADOW, key.bytes, key.length);
	return 0;
}

void journal_put_shadow(struct journal *journal, uint64_t dir, const char *name, uint64_t id)
{
	struct buffer key;

	assert(id != 0 && dir != 0);
	key_shadow(&key, dir, name);
	queue_put_u64(journal, COLUMN_SHADOW, &key, id);
	key_place(&key, id, dir, name);
	queue_put(journal, COLUMN_PLACE, &key, NULL, 0);
}

void journal_delete_shadow(struct journal *journal, uint64_t dir, const char *name, uint64_t id)
{
	struct buffer key;

	assert(id != 0 && dir != 0);
	key_shadow(&key, dir, name);
	queue_delete(journal, COLUMN_SHADOW, &key);
	key_place(&key, id, dir, name);
	queue_delete(journal, COLUMN_PLACE, &key);
}

int journal_shadow_open(struct journal *journal, uint64_t dir, struct journal_cursor **ret_cursor)
{
	struct buffer prefix;

	key_u64(&prefix, dir);
	return cursor_open(journal, COLUMN_SHADOW, &prefix, CURSOR_CURRENT, ret_cursor);
}

int journal_shadow_next(struct journal_cursor *cursor, char ret_name[static JOURNAL_NAME_MAX + 1],
			uint64_t *ret_id)
{
	size_t key_length, value_length;
	const void *key, *value;
	uint64_t dir;
	int r;

	assert(cursor_column(cursor) == COLUMN_SHADOW);
	r = cursor_next(cursor, &key, &key_length, &value, &value_length);
	if (r != 0)
		return r;
	if (!decode_shadow_key(key, key_length, &dir, ret_name) ||
	    !decode_u64(value, value_length, ret_id))
		return rocks_bad_record(COLUMN_SHADOW, key, key_length);
	return 0;
}

static bool place_equal(const struct place *a, const struct place *b)
{
	return a->dir == b->dir && strcmp(a->name, b->name) == 0;
}

int journal_place_get(struct journal *journal, uint64_t id, unsigned nth,
		      const struct place *except, struct place *ret_place)
{
	_cleanup_cursor_ struct journal_cursor *cursor = NULL;
	struct buffer prefix;
	int r;

	key_u64(&prefix, id);
	r = cursor_open(journal, COLUMN_PLACE, &prefix, CURSOR_SNAPSHOT, &cursor);
	if (r < 0)
		return r;
	for (;;) {
		size_t key_length, value_length;
		const void *key, *value;
		struct place place;
		uint64_t found;

		r = cursor_next(cursor, &key, &key_length, &value, &value_length);
		if (r != 0)
			return r == JOURNAL_E_END ? JOURNAL_E_NONE : r;
		if (!decode_place_key(key, key_length, &found, &place))
			return rocks_bad_record(COLUMN_PLACE, key, key_length);
		if (except && place_equal(&place, except))
			continue;
		if (nth-- > 0)
			continue;
		*ret_place = place;
		return 0;
	}
}
