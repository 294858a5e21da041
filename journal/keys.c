/* SPDX-License-Identifier: Apache-2.0 */
#include "journal/keys.h"

#include <assert.h>
#include <endian.h>
#include <string.h>
#include <sys/stat.h>

enum {
	PLACE_BYTES_MAX = 8 + 1 + JOURNAL_NAME_MAX,
	LOCATOR_VALUE_BYTES_MAX = 1 + LOCATOR_BYTES_MAX,
};

static_assert(BUFFER_BYTES_MAX >= 1 + 8 + 2 * PLACE_BYTES_MAX, "an intent fits");
static_assert(BUFFER_BYTES_MAX >= 4 + 8 + SIDE_MAX * LOCATOR_VALUE_BYTES_MAX, "an object fits");
static_assert(BUFFER_BYTES_MAX >= 8 + 8 + JOURNAL_NAME_MAX, "a place's key fits");
static_assert(JOURNAL_NAME_MAX <= UINT8_MAX && LOCATOR_BYTES_MAX <= UINT8_MAX,
	      "lengths are one byte");

/* ---- writing ------------------------------------------------------------- */

static void put_bytes(struct buffer *buffer, const void *bytes, size_t length)
{
	assert(length <= BUFFER_BYTES_MAX - buffer->length);
	memcpy(buffer->bytes + buffer->length, bytes, length);
	buffer->length += length;
}

static void put_u8(struct buffer *buffer, uint8_t value)
{
	put_bytes(buffer, &value, sizeof(value));
}

static void put_u32(struct buffer *buffer, uint32_t value)
{
	value = htobe32(value);
	put_bytes(buffer, &value, sizeof(value));
}

void buffer_put_u64(struct buffer *buffer, uint64_t value)
{
	value = htobe64(value);
	put_bytes(buffer, &value, sizeof(value));
}

static void put_name(struct buffer *buffer, const char *name)
{
	size_t length = strlen(name);

	assert(length > 0 && length <= JOURNAL_NAME_MAX);
	put_bytes(buffer, name, length);
}

bool buffer_next_prefix(struct buffer *buffer)
{
	while (buffer->length > 0 && buffer->bytes[buffer->length - 1] == UINT8_MAX)
		buffer->length--;
	if (buffer->length == 0)
		return false;
	buffer->bytes[buffer->length - 1]++;
	return true;
}

/* ---- reading ------------------------------------------------------------- */

struct reader {
	const uint8_t *at;
	size_t left;
	bool is_bad; /* something was missing: all that was read is void */
};

static bool get_bytes(struct reader *reader, void *ret, size_t length)
{
	if (reader->is_bad || reader->left < length) {
		reader->is_bad = true;
		memset(ret, 0, length);
		return false;
	}
	memcpy(ret, reader->at, length);
	reader->at += length;
	reader->left -= length;
	return true;
}

static uint8_t get_u8(struct reader *reader)
{
	uint8_t value;

	(void)get_bytes(reader, &value, sizeof(value)); /* is_bad says it */
	return value;
}

static uint32_t get_u32(struct reader *reader)
{
	uint32_t value;

	(void)get_bytes(reader, &value, sizeof(value)); /* is_bad says it */
	return be32toh(value);
}

static uint64_t get_u64(struct reader *reader)
{
	uint64_t value;

	(void)get_bytes(reader, &value, sizeof(value)); /* is_bad says it */
	return be64toh(value);
}

static void get_name(struct reader *reader, size_t length,
		     char ret_name[static JOURNAL_NAME_MAX + 1])
{
	if (length == 0 || length > JOURNAL_NAME_MAX || reader->left < length ||
	    memchr(reader->at, '\0', length) || memchr(reader->at, '/', length))
		reader->is_bad = true;
	if (reader->is_bad || !get_bytes(reader, ret_name, length))
		length = 0;
	ret_name[length] = '\0';
}

static bool is_read(const struct reader *reader)
{
	return !reader->is_bad && reader->left == 0;
}

/* ---- keys ---------------------------------------------------------------- */

void key_u64(struct buffer *key, uint64_t number)
{
	key->length = 0;
	buffer_put_u64(key, number);
}

void key_shadow(struct buffer *key, uint64_t dir, const char *name)
{
	key_u64(key, dir);
	put_name(key, name);
}

void key_place(struct buffer *key, uint64_t id, uint64_t dir, const char *name)
{
	key_u64(key, id);
	buffer_put_u64(key, dir);
	put_name(key, name);
}

void key_mark_kind(struct buffer *key, enum journal_mark_kind kind)
{
	key->length = 0;
	put_u8(key, (uint8_t)kind);
}

void key_mark(struct buffer *key, const struct journal_mark *mark)
{
	key_mark_kind(key, mark->kind);
	buffer_put_u64(key, mark->object);
	switch (mark->kind) {
	case JOURNAL_MARK_NAME:
		put_name(key, mark->name);
		return;
	case JOURNAL_MARK_DATA:
		buffer_put_u64(key, mark->number);
		return;
	case JOURNAL_MARK_SCAN:
	case JOURNAL_MARK_ATTR:
		return;
	}
	assert(!"a kind of mark that is none");
}

void key_meta(struct buffer *key, const char *name)
{
	key->length = 0;
	put_name(key, name);
}

void key_number(struct buffer *key, const char *name)
{
	key->length = 0;
	put_bytes(key, "n/", 2);
	put_name(key, name);
}

bool decode_shadow_key(const void *bytes, size_t length, uint64_t *ret_dir,
		       char ret_name[static JOURNAL_NAME_MAX + 1])
{
	struct reader reader = { .at = bytes, .left = length };

	*ret_dir = get_u64(&reader);
	get_name(&reader, reader.left, ret_name);
	return is_read(&reader);
}

bool decode_place_key(const void *bytes, size_t length, uint64_t *ret_id, struct place *ret_place)
{
	struct reader reader = { .at = bytes, .left = length };

	*ret_id = get_u64(&reader);
	ret_place->dir = get_u64(&reader);
	get_name(&reader, reader.left, ret_place->name);
	return is_read(&reader);
}

bool decode_mark(const void *key, size_t key_length, const void *value, size_t value_length,
		 struct journal_mark *ret_mark)
{
	struct reader reader = { .at = key, .left = key_length };

	ret_mark->kind = (enum journal_mark_kind)get_u8(&reader);
	ret_mark->object = get_u64(&reader);
	ret_mark->number = 0;
	ret_mark->name[0] = '\0';
	switch (ret_mark->kind) {
	case JOURNAL_MARK_NAME:
		get_name(&reader, reader.left, ret_mark->name);
		break;
	case JOURNAL_MARK_DATA:
		ret_mark->number = get_u64(&reader);
		break;
	case JOURNAL_MARK_SCAN:
	case JOURNAL_MARK_ATTR:
		break;
	default:
		return false;
	}
	return is_read(&reader) && decode_u64(value, value_length, &ret_mark->value);
}

/* ---- values -------------------------------------------------------------- */

bool decode_u64(const void *bytes, size_t length, uint64_t *ret_value)
{
	struct reader reader = { .at = bytes, .left = length };

	*ret_value = get_u64(&reader);
	return is_read(&reader);
}

void encode_object(struct buffer *value, const struct object *object)
{
	value->length = 0;
	put_u32(value, object->type & S_IFMT);
	buffer_put_u64(value, object->ino);
	for (int side = 0; side < SIDE_MAX; side++) {
		const struct locator *locator = &object->locator[side];

		assert(locator->length <= LOCATOR_BYTES_MAX);
		put_u8(value, locator->length);
		put_bytes(value, locator->bytes, locator->length);
	}
}

bool decode_object(const void *bytes, size_t length, uint64_t id, struct object *ret_object)
{
	struct reader reader = { .at = bytes, .left = length };

	ret_object->id = id;
	ret_object->type = get_u32(&reader);
	ret_object->ino = get_u64(&reader);
	for (int side = 0; side < SIDE_MAX; side++) {
		struct locator *locator = &ret_object->locator[side];

		locator->length = get_u8(&reader);
		if (locator->length > LOCATOR_BYTES_MAX)
			return false;
		(void)get_bytes(&reader, locator->bytes, locator->length); /* is_bad says it */
	}
	return is_read(&reader) && (ret_object->type & ~(mode_t)S_IFMT) == 0;
}

static void put_time(struct buffer *value, struct timespec time)
{
	buffer_put_u64(value, (uint64_t)time.tv_sec);
	put_u32(value, (uint32_t)time.tv_nsec);
}

static struct timespec get_time(struct reader *reader)
{
	struct timespec time;

	time.tv_sec = (time_t)get_u64(reader);
	time.tv_nsec = (long)get_u32(reader);
	return time;
}

void encode_synced(struct buffer *value, const struct synced *synced)
{
	value->length = 0;
	put_u32(value, synced->mode);
	put_u32(value, synced->uid);
	put_u32(value, synced->gid);
	buffer_put_u64(value, synced->size);
	put_time(value, synced->mtime);
	for (int side = 0; side < SIDE_MAX; side++)
		put_time(value, synced->ctime[side]);
}

bool decode_synced(const void *bytes, size_t length, struct synced *ret_synced)
{
	struct reader reader = { .at = bytes, .left = length };

	ret_synced->mode = get_u32(&reader);
	ret_synced->uid = get_u32(&reader);
	ret_synced->gid = get_u32(&reader);
	ret_synced->size = get_u64(&reader);
	ret_synced->mtime = get_time(&reader);
	for (int side = 0; side < SIDE_MAX; side++)
		ret_synced->ctime[side] = get_time(&reader);
	return is_read(&reader);
}

static void put_place(struct buffer *value, const struct place *place, bool is_set)
{
	size_t length = is_set ? strlen(place->name) : 0;

	assert(!is_set || (length > 0 && length <= JOURNAL_NAME_MAX));
	buffer_put_u64(value, is_set ? place->dir : 0);
	put_u8(value, (uint8_t)length);
	put_bytes(value, place->name, length);
}

static void get_place(struct reader *reader, struct place *ret_place)
{
	size_t length;

	ret_place->dir = get_u64(reader);
	length = get_u8(reader);
	ret_place->name[0] = '\0';
	if (length > 0)
		get_name(reader, length, ret_place->name);
}

static bool intent_has_from(enum intent_op op)
{
	return op == INTENT_LINK || op == INTENT_RENAME;
}

void encode_intent(struct buffer *value, const struct intent *intent)
{
	assert(intent->op < INTENT_OP_MAX);
	value->length = 0;
	put_u8(value, (uint8_t)intent->op);
	buffer_put_u64(value, intent->object);
	put_place(value, &intent->place, true);
	put_place(value, &intent->from, intent_has_from(intent->op));
}

bool decode_intent(const void *key, size_t key_length, const void **value, size_t *value_length,
		   struct intent *ret_intent)
{
	struct reader reader = { .at = *value, .left = *value_length };

	if (!decode_u64(key, key_length, &ret_intent->number))
		return false;
	ret_intent->op = (enum intent_op)get_u8(&reader);
	ret_intent->object = get_u64(&reader);
	get_place(&reader, &ret_intent->place);
	get_place(&reader, &ret_intent->from);
	*value = reader.at;
	*value_length = reader.left;
	return !reader.is_bad && ret_intent->op < INTENT_OP_MAX &&
	       ret_intent->place.name[0] != '\0' &&
	       (ret_intent->from.name[0] != '\0') == intent_has_from(ret_intent->op);
}
