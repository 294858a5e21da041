/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The bytes of the journal's keys and values (docs/journal-format.md), and nothing
 * else. Numbers are big-endian, so that the order of bytes is the order of numbers
 * and what belongs together stands together.
 *
 * Encoders assert what only a bug of ours can break. Decoders read what stood on a
 * disk: they return false on anything that an encoder would not have written.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "journal/journal.h"
#include "util/attr.h"
#include "util/locator.h"

/* The column families. Their numbers are of this process, their names are on disk. */
enum column {
	COLUMN_META,
	COLUMN_MARKS,
	COLUMN_OBJECT,
	COLUMN_LOCATOR_A,
	COLUMN_LOCATOR_B,
	COLUMN_SHADOW,
	COLUMN_PLACE,
	COLUMN_SYNCED,
	COLUMN_INTENT,
	COLUMN_MAX,
};

enum { BUFFER_BYTES_MAX = 576 };

/* A key or a value under construction, or a copy of one. Not zeroed: length counts. */
struct buffer {
	size_t length;
	uint8_t bytes[BUFFER_BYTES_MAX];
};

void buffer_put_u64(struct buffer *buffer, uint64_t value);
/* Sets @buffer to the first key after all that begin with what is in it: false when
 * there is none. */
bool buffer_next_prefix(struct buffer *buffer) MUST_CHECK;

/* Keys. Each sets @key from its beginning. */
void key_u64(struct buffer *key, uint64_t number);
void key_shadow(struct buffer *key, uint64_t dir, const char *name);
void key_place(struct buffer *key, uint64_t id, uint64_t dir, const char *name);
void key_mark_kind(struct buffer *key, enum journal_mark_kind kind);
void key_mark(struct buffer *key, const struct journal_mark *mark);
void key_meta(struct buffer *key, const char *name);
void key_number(struct buffer *key, const char *name); /* of a named number in meta */

bool decode_shadow_key(const void *bytes, size_t length, uint64_t *ret_dir,
		       char ret_name[static JOURNAL_NAME_MAX + 1]) MUST_CHECK;
bool decode_place_key(const void *bytes, size_t length, uint64_t *ret_id,
		      struct place *ret_place) MUST_CHECK;
bool decode_mark(const void *key, size_t key_length, const void *value, size_t value_length,
		 struct journal_mark *ret_mark) MUST_CHECK;

/* Values. */
bool decode_u64(const void *bytes, size_t length, uint64_t *ret_value) MUST_CHECK;
void encode_object(struct buffer *value, const struct object *object);
bool decode_object(const void *bytes, size_t length, uint64_t id,
		   struct object *ret_object) MUST_CHECK;
void encode_synced(struct buffer *value, const struct synced *synced);
bool decode_synced(const void *bytes, size_t length, struct synced *ret_synced) MUST_CHECK;
/* One of the intents of a record, which follow each other. */
void encode_intent(struct buffer *value, const struct intent *intent);
/* Takes the next one from *@value, of which *@value_length bytes are left. */
bool decode_intent(const void *key, size_t key_length, const void **value, size_t *value_length,
		   struct intent *ret_intent) MUST_CHECK;
