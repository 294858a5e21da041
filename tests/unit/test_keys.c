/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the bytes are those of docs/journal-format.md, in the order of the numbers, and
 * no bytes from a disk are taken for a record that they are not.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "journal/keys.h"

static void keys_have_the_documented_bytes(void **state)
{
	static const uint8_t shadow[] = { 0, 0, 0, 0, 0, 0, 1, 2, 'a', 'b' };
	static const uint8_t place[] = { 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 1, 2, 'a' };
	static const uint8_t data[] = { 'd', 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 3 };
	const struct journal_mark mark = { .kind = JOURNAL_MARK_DATA, .object = 9, .number = 3 };
	struct buffer key;

	(void)state;
	key_shadow(&key, 0x102, "ab");
	assert_int_equal(key.length, sizeof(shadow));
	assert_memory_equal(key.bytes, shadow, sizeof(shadow));
	key_place(&key, 7, 0x102, "a");
	assert_int_equal(key.length, sizeof(place));
	assert_memory_equal(key.bytes, place, sizeof(place));
	key_mark(&key, &mark);
	assert_int_equal(key.length, sizeof(data));
	assert_memory_equal(key.bytes, data, sizeof(data));
	key_number(&key, "x");
	assert_int_equal(key.length, 3);
	assert_memory_equal(key.bytes, "n/x", 3);
}

static void next_prefix_is_behind_all_that_begin_with_it(void **state)
{
	struct buffer buffer;

	(void)state;
	key_u64(&buffer, 0x1ff);
	assert_true(buffer_next_prefix(&buffer));
	assert_int_equal(buffer.length, 7);
	assert_int_equal(buffer.bytes[6], 2);
	key_u64(&buffer, UINT64_MAX);
	assert_false(buffer_next_prefix(&buffer));
	buffer.length = 0;
	assert_false(buffer_next_prefix(&buffer));
}

static struct object an_object(void)
{
	struct object object = { .id = 5, .type = S_IFDIR, .ino = 77 };

	object.locator[SIDE_A].length = LOCATOR_BYTES_MAX;
	memset(object.locator[SIDE_A].bytes, 'a', LOCATOR_BYTES_MAX);
	object.locator[SIDE_B].length = 1;
	object.locator[SIDE_B].bytes[0] = 'b';
	return object;
}

static void objects_survive_encoding(void **state)
{
	struct object object = an_object(), found;
	struct buffer value;

	(void)state;
	encode_object(&value, &object);
	assert_true(decode_object(value.bytes, value.length, 5, &found));
	assert_int_equal(found.id, 5);
	assert_int_equal(found.type, S_IFDIR);
	assert_int_equal(found.ino, 77);
	for (int side = 0; side < SIDE_MAX; side++)
		assert_true(locator_equal(&found.locator[side], &object.locator[side]));
}

static void synced_survives_encoding(void **state)
{
	const struct synced synced = {
		.mode = S_IFREG | 06755,
		.uid = UINT32_MAX,
		.gid = 2,
		.size = UINT64_MAX,
		.mtime = { -1, 999999999 },
		.ctime = { { 1, 2 }, { INT64_MAX, 0 } },
	};
	struct synced found;
	struct buffer value;

	(void)state;
	encode_synced(&value, &synced);
	assert_int_equal(value.length, 56);
	assert_true(decode_synced(value.bytes, value.length, &found));
	assert_int_equal(found.mode, synced.mode);
	assert_int_equal(found.uid, synced.uid);
	assert_int_equal(found.gid, synced.gid);
	assert_int_equal(found.size, synced.size);
	assert_int_equal(found.mtime.tv_sec, -1);
	assert_int_equal(found.mtime.tv_nsec, 999999999);
	assert_int_equal(found.ctime[SIDE_A].tv_nsec, 2);
	assert_int_equal(found.ctime[SIDE_B].tv_sec, INT64_MAX);
}

static void intents_survive_encoding(void **state)
{
	struct intent intent = { .number = 9, .object = 12, .place = { 3, "to" }, .from = { 4, "of" } };
	struct intent found;
	struct buffer key, value;
	const void *at;
	size_t left;

	(void)state;
	key_u64(&key, intent.number);
	for (int op = 0; op < INTENT_OP_MAX; op++) {
		bool has_from = op == INTENT_LINK || op == INTENT_RENAME;

		intent.op = (enum intent_op)op;
		encode_intent(&value, &intent);
		at = value.bytes;
		left = value.length;
		assert_true(decode_intent(key.bytes, key.length, &at, &left, &found));
		assert_int_equal(left, 0);
		assert_int_equal(found.number, 9);
		assert_int_equal(found.op, op);
		assert_int_equal(found.object, 12);
		assert_int_equal(found.place.dir, 3);
		assert_string_equal(found.place.name, "to");
		assert_int_equal(found.from.dir, has_from ? 4 : 0);
		assert_string_equal(found.from.name, has_from ? "of" : "");
	}
}

static bool any_decoder_takes(const uint8_t *bytes, size_t length)
{
	struct journal_mark mark;
	struct object object;
	struct synced synced;
	struct intent intent;
	struct place place;
	char name[JOURNAL_NAME_MAX + 1];
	const void *at = bytes;
	size_t left = length;
	uint64_t number;

	return decode_object(bytes, length, 1, &object) | decode_synced(bytes, length, &synced) |
	       decode_intent("12345678", 8, &at, &left, &intent) |
	       decode_mark(bytes, length, "12345678", 8, &mark) |
	       decode_shadow_key(bytes, length, &number, name) |
	       decode_place_key(bytes, length, &number, &place) |
	       decode_u64(bytes, length, &number);
}

/* Method: cut each encoding at every length, and lengthen it. */
static void cut_and_lengthened_values_are_refused(void **state)
{
	struct object object = an_object(), found;
	struct synced synced = { .size = 1 };
	struct intent intent = { .op = INTENT_LINK, .place = { 3, "to" }, .from = { 4, "of" } };
	struct buffer value;

	(void)state;
	encode_object(&value, &object);
	for (size_t length = 0; length < value.length + 2; length++)
		assert_int_equal(decode_object(value.bytes, length, 1, &found),
				 length == value.length);
	encode_synced(&value, &synced);
	for (size_t length = 0; length < value.length + 2; length++)
		assert_int_equal(decode_synced(value.bytes, length, &synced), length == value.length);
	encode_intent(&value, &intent);
	for (size_t length = 0; length < value.length; length++) {
		const void *at = value.bytes;
		size_t left = length;

		assert_false(decode_intent("12345678", 8, &at, &left, &intent));
	}
}

static void names_that_are_none_are_refused(void **state)
{
	char name[JOURNAL_NAME_MAX + 1];
	uint8_t key[8 + JOURNAL_NAME_MAX + 1];
	uint64_t dir;

	(void)state;
	memset(key, 'x', sizeof(key));
	assert_true(decode_shadow_key(key, 8 + JOURNAL_NAME_MAX, &dir, name));
	assert_false(decode_shadow_key(key, 8 + JOURNAL_NAME_MAX + 1, &dir, name));
	assert_false(decode_shadow_key(key, 8, &dir, name));
	key[20] = '/';
	assert_false(decode_shadow_key(key, 30, &dir, name));
	key[20] = '\0';
	assert_false(decode_shadow_key(key, 30, &dir, name));
}

/* Goal: no read past the end (under the address sanitizer). Method: random bytes in
 * blocks of exactly their length, and mutations of a good value. */
static void random_bytes_do_no_harm(void **state)
{
	struct object object = an_object();
	struct buffer value;
	unsigned taken = 0;

	(void)state;
	srandom(1);
	for (int i = 0; i < 100000; i++) {
		size_t length = (size_t)random() % 64;
		uint8_t *bytes = malloc(length + 1);

		assert_non_null(bytes);
		for (size_t k = 0; k < length; k++)
			bytes[k] = (uint8_t)(random() % 4 ? random() % 16 : random());
		taken += any_decoder_takes(bytes, length);
		free(bytes);
	}
	assert_true(taken > 0);
	encode_object(&value, &object);
	for (int i = 0; i < 10000; i++) {
		struct buffer mutated = value;

		mutated.bytes[(size_t)random() % mutated.length] = (uint8_t)random();
		(void)any_decoder_takes(mutated.bytes, mutated.length); /* either is right */
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keys_have_the_documented_bytes),
		cmocka_unit_test(next_prefix_is_behind_all_that_begin_with_it),
		cmocka_unit_test(objects_survive_encoding),
		cmocka_unit_test(synced_survives_encoding),
		cmocka_unit_test(intents_survive_encoding),
		cmocka_unit_test(cut_and_lengthened_values_are_refused),
		cmocka_unit_test(names_that_are_none_are_refused),
		cmocka_unit_test(random_bytes_do_no_harm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
