/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>

#include "journal/journal_internal.h"

enum { INTENTS_MAX = 1024 };

void journal_put_intent(struct journal *journal, const struct intent *intent)
{
	struct buffer key, value;

	assert(intent->number < INTENTS_MAX);
	key_u64(&key, intent->number);
	encode_intent(&value, intent);
	queue_put(journal, COLUMN_INTENT, &key, value.bytes, value.length);
}

void journal_delete_intent(struct journal *journal, uint64_t number)
{
	struct buffer key;

	assert(number < INTENTS_MAX);
	key_u64(&key, number);
	queue_delete(journal, COLUMN_INTENT, &key);
}

int journal_intents_each(struct journal *journal,
			 int (*settle)(void *context, const struct intent *intent), void *context)
{
	_cleanup_cursor_ struct journal_cursor *cursor = NULL;
	struct buffer prefix;
	int r;

	prefix.length = 0;
	r = cursor_open(journal, COLUMN_INTENT, &prefix, CURSOR_SNAPSHOT, &cursor);
	if (r < 0)
		return r;
	for (;;) {
		size_t key_length, value_length;
		const void *key, *value;
		struct intent intent;

		r = cursor_next(cursor, &key, &key_length, &value, &value_length);
		if (r != 0)
			return r == JOURNAL_E_END ? 0 : r;
		if (!decode_intent(key, key_length, value, value_length, &intent))
			return rocks_bad_record(COLUMN_INTENT, key, key_length);
		r = settle(context, &intent);
		if (r < 0)
			return r;
	}
}
