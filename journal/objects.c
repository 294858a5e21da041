/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>

#include "journal/journal_internal.h"

int journal_object_get(struct journal *journal, uint64_t id, struct object *ret_object)
{
	_cleanup_rocks_value_ struct rocks_value value = { 0 };
	struct object object;
	struct buffer key;
	int r;

	key_u64(&key, id);
	r = rocks_get(&journal->rocks, COLUMN_OBJECT, key.bytes, key.length, &value);
	if (r != 0)
		return r;
	if (!decode_object(value.bytes, value.length, id, &object))
		return rocks_bad_record(COLUMN_OBJECT, key.bytes, key.length);
	*ret_object = object;
	return 0;
}

/* The index follows the record: what @old had and @object has not goes, what is new
 * comes, what both have is left as it stands. */
static void put_locator(struct journal *journal, enum side side, const struct object *object,
			const struct object *old)
{
	const struct locator *was = old ? &old->locator[side] : &LOCATOR_NULL;
	const struct locator *is = &object->locator[side];

	if (locator_equal(was, is))
		return;
	if (!locator_is_null(was))
		locators_put(journal, side, was, 0);
	if (!locator_is_null(is))
		locators_put(journal, side, is, object->id);
}

void journal_put_object(struct journal *journal, const struct object *object,
			const struct object *old)
{
	struct buffer key, value;

	assert(object->id != 0 && (!old || old->id == object->id));
	key_u64(&key, object->id);
	encode_object(&value, object);
	queue_put(journal, COLUMN_OBJECT, &key, value.bytes, value.length);
	for (int side = 0; side < SIDE_MAX; side++)
		put_locator(journal, (enum side)side, object, old);
}

void journal_delete_object(struct journal *journal, const struct object *object)
{
	struct buffer key;

	assert(object->id >= JOURNAL_LIMBO_ID);
	key_u64(&key, object->id);
	queue_delete(journal, COLUMN_OBJECT, &key);
	queue_delete(journal, COLUMN_SYNCED, &key);
	for (int side = 0; side < SIDE_MAX; side++)
		if (!locator_is_null(&object->locator[side]))
			locators_put(journal, (enum side)side, &object->locator[side], 0);
}

uint64_t journal_object_count(struct journal *journal)
{
	uint64_t count;

	if (rocksdb_property_int_cf(journal->rocks.db, journal->rocks.column[COLUMN_OBJECT],
				    "rocksdb.estimate-num-keys", &count) != 0)
		return 0;
	return count;
}

int journal_synced_get(struct journal *journal, uint64_t id, struct synced *ret_synced)
{
	_cleanup_rocks_value_ struct rocks_value value = { 0 };
	struct synced synced;
	struct buffer key;
	int r;

	key_u64(&key, id);
	r = rocks_get(&journal->rocks, COLUMN_SYNCED, key.bytes, key.length, &value);
	if (r != 0)
		return r;
	if (!decode_synced(value.bytes, value.length, &synced))
		return rocks_bad_record(COLUMN_SYNCED, key.bytes, key.length);
	*ret_synced = synced;
	return 0;
}

void journal_put_synced(struct journal *journal, uint64_t id, const struct synced *synced)
{
	struct buffer key, value;

	assert(id != 0);
	key_u64(&key, id);
	encode_synced(&value, synced);
	queue_put(journal, COLUMN_SYNCED, &key, value.bytes, value.length);
}

void journal_delete_synced(struct journal *journal, uint64_t id)
{
	struct buffer key;

	key_u64(&key, id);
	queue_delete(journal, COLUMN_SYNCED, &key);
}
