/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <string.h>

#include "journal/journal_internal.h"

void journal_put_intents(struct journal *journal, const struct intent *intents, unsigned count)
{
	uint8_t record[JOURNAL_INTENTS_OF_RECORD_MAX * BUFFER_BYTES_MAX];
	struct buffer key, value;
	size_t length = 0;

	assert(count > 0 && count <= JOURNAL_INTENTS_OF_RECORD_MAX);
	assert(intents[0].number < JOURNAL_INTENTS_MAX);
	key_u64(&key, intents[0].number);
	for (unsigned i = 0; i < count; i++) {
		assert(intents[i].number == intents[0].number);
		encode_intent(&value, &intents[i]);
		memcpy(record + length, value.bytes, value.length);
		length += value.length;
	}
	queue_put(journal, COLUMN_INTENT, &key, record, length);
}

void journal_delete_intents(struct journal *journal, uint64_t number)
{
	struct buffer key;

	assert(number < JOURNAL_INTENTS_MAX);
	key_u64(&key, number);
	queue_delete(journal, COLUMN_INTENT, &key);
}

static int delete_now(struct journal *journal, uint64_t number)
{
	journal_compose(journal);
	journal_delete_intents(journal, number);
	return journal_flush(journal, journal_submit(journal));
}

int journal_settle_intents(struct journal *journal,
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
		do {
			if (!decode_intent(key, key_length, &value, &value_length, &intent))
				return rocks_bad_record(COLUMN_INTENT, key, key_length);
			r = settle(context, &intent);
			if (r < 0)
				return r;
		} while (value_length > 0);
		r = delete_now(journal, intent.number);
		if (r < 0)
			return r;
	}
}
