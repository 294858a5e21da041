/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/model/memrocks.h"

#include <fcntl.h>
#include <rocksdb/c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "journal/keys.h"
#include "journal/rocks.h"
#include "tests/model/sched.h"
#include "tests/model/world.h"

/*
 * A record is a slot; of each column family an array has the slots in the order of keys.
 * A batch is applied in one piece, with a switch point before and after. What the library
 * hands out as opaque things are small heap blocks here. journal/rocks.c, which is options
 * and errors, is replaced whole.
 */

struct rocksdb_t {
	int unused;
};

struct rocksdb_column_family_handle_t {
	unsigned column;
};

struct batch_item {
	unsigned column;
	bool is_delete;
	size_t key_length, value_length;
	char *bytes; /* owned */
};

struct rocksdb_writebatch_t {
	struct batch_item *items;
	size_t count, room, bytes;
};

struct rocksdb_readoptions_t {
	const char *upper;
	size_t upper_length;
};

/* A copy of the column's records as they were. */
struct rocksdb_iterator_t {
	struct memrocks_record *records;
	size_t count, at;
	const char *upper;
	size_t upper_length;
};

static struct memrocks *db(void)
{
	return &world->rocks;
}

static int compare(const void *a, size_t a_length, const void *b, size_t b_length)
{
	int r = memcmp(a, b, a_length < b_length ? a_length : b_length);

	return r ? r : (a_length > b_length) - (a_length < b_length);
}

/* The place of the first record that is not before @key. */
static unsigned find(unsigned column, const void *key, size_t length)
{
	unsigned low = 0, high = db()->count[column];

	while (low < high) {
		unsigned middle = low + (high - low) / 2;
		const struct memrocks_record *record = &db()->records[db()->index[column][middle]];

		if (compare(record->bytes, record->key_length, key, length) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static struct memrocks_record *find_exact(unsigned column, const void *key, size_t length,
					  unsigned *ret_at)
{
	struct memrocks_record *record;
	unsigned at = find(column, key, length);

	*ret_at = at;
	if (at == db()->count[column])
		return NULL;
	record = &db()->records[db()->index[column][at]];
	return compare(record->bytes, record->key_length, key, length) == 0 ? record : NULL;
}

static void trace_item(const struct batch_item *item)
{
	static const char *const kinds = "snda";
	struct journal_mark mark;
	const char *name = db()->columns[item->column];

	if (!sched_is_traced())
		return;
	if (strcmp(name, "marks") != 0) {
		sched_trace("journal: %s %s record", item->is_delete ? "delete" : "put", name);
		return;
	}
	/* A delete has no value; one that fits is enough to read the key. */
	if (!decode_mark(item->bytes, item->key_length, item->bytes + item->key_length,
			 item->value_length, &mark) &&
	    !decode_mark(item->bytes, item->key_length, "\0\0\0\0\0\0\0", 8, &mark) &&
	    !decode_mark(item->bytes, item->key_length, "", 0, &mark)) {
		sched_trace("journal: %s a mark (%zu bytes)", item->is_delete ? "delete" : "put",
			    item->key_length);
		return;
	}
	assert(strchr(kinds, mark.kind));
	sched_trace("journal: %s mark %c object %llu number %lld name '%s' value %llu",
		    item->is_delete ? "delete" : "put", mark.kind, (unsigned long long)mark.object,
		    (long long)mark.number, mark.name, (unsigned long long)mark.value);
}

static void put(const struct batch_item *item)
{
	uint16_t *index = db()->index[item->column];
	struct memrocks_record *record;
	unsigned at;

	record = find_exact(item->column, item->bytes, item->key_length, &at);
	if (!record) {
		assert(db()->free_count > 0);
		memmove(&index[at + 1], &index[at],
			(db()->count[item->column] - at) * sizeof(index[0]));
		index[at] = db()->free[--db()->free_count];
		db()->count[item->column]++;
		record = &db()->records[index[at]];
	}
	assert(item->key_length + item->value_length <= sizeof(record->bytes));
	record->key_length = (uint16_t)item->key_length;
	record->value_length = (uint16_t)item->value_length;
	memcpy(record->bytes, item->bytes, item->key_length + item->value_length);
}

static void delete (const struct batch_item *item)
{
	uint16_t *index = db()->index[item->column];
	unsigned at;

	if (!find_exact(item->column, item->bytes, item->key_length, &at))
		return;
	db()->free[db()->free_count++] = index[at];
	db()->count[item->column]--;
	memmove(&index[at], &index[at + 1], (db()->count[item->column] - at) * sizeof(index[0]));
}

/* ---- for the checks ------------------------------------------------------ */

bool memrocks_is_there(void)
{
	return true;
}

void memrocks_each(const char *name,
		   void (*call)(void *context, const void *key, size_t key_length,
				const void *value, size_t value_length),
		   void *context)
{
	for (unsigned c = 0; c < db()->column_count; c++) {
		if (strcmp(db()->columns[c], name) != 0)
			continue;
		for (unsigned i = 0; i < db()->count[c]; i++) {
			const struct memrocks_record *record = &db()->records[db()->index[c][i]];

			call(context, record->bytes, record->key_length,
			     record->bytes + record->key_length, record->value_length);
		}
	}
}

/* ---- opening ------------------------------------------------------------- */

static void *make(size_t size)
{
	void *p = calloc(1, size);

	assert(p);
	return p;
}

static unsigned column_of(const char *name)
{
	unsigned c = 0;

	while (c < db()->column_count && strcmp(db()->columns[c], name) != 0)
		c++;
	assert(c < MEMROCKS_COLUMNS_MAX);
	if (c == db()->column_count) {
		assert(strlen(name) < sizeof(db()->columns[c]));
		memcpy(db()->columns[c], name, strlen(name) + 1);
		db()->column_count++;
	}
	return c;
}

/* What tells the journal that a database is there. */
static void make_current(const char *path)
{
	char current[4096];
	int fd, n;

	(void)mkdir(path, 0700); /* it may be there */
	n = snprintf(current, sizeof(current), "%s/CURRENT", path);
	assert(n > 0 && (size_t)n < sizeof(current));
	fd = open(current, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert(fd >= 0);
	close(fd);
}

int rocks_open(struct rocks *rocks, const char *path, enum rocks_recovery recovery)
{
	static const char *const names[COLUMN_MAX] = {
		[COLUMN_META] = "meta",		  [COLUMN_MARKS] = "marks",
		[COLUMN_OBJECT] = "object",	  [COLUMN_LOCATOR_A] = "locator_a",
		[COLUMN_LOCATOR_B] = "locator_b", [COLUMN_SHADOW] = "shadow",
		[COLUMN_PLACE] = "place",	  [COLUMN_SYNCED] = "synced",
		[COLUMN_INTENT] = "intent",
	};

	(void)recovery;
	*rocks = ROCKS_NULL;
	make_current(path);
	rocks->db = make(sizeof(*rocks->db));
	for (enum column c = 0; c < COLUMN_MAX; c++) {
		assert(names[c]);
		rocks->column[c] = make(sizeof(*rocks->column[c]));
		rocks->column[c]->column = column_of(names[c]);
	}
	return 0;
}

void rocks_close(struct rocks *rocks)
{
	for (enum column c = 0; c < COLUMN_MAX; c++)
		free(rocks->column[c]);
	free(rocks->db);
	*rocks = ROCKS_NULL;
}

int rocks_error(char *text, const char *what)
{
	sched_fail("%s: %s", what, text);
}

int rocks_bad_record(enum column column, const void *key, size_t length)
{
	(void)key;
	sched_fail("a bad record of %zu bytes in column %d", length, column);
}

uint64_t rocksdb_get_latest_sequence_number(rocksdb_t *rocks)
{
	(void)rocks;
	return db()->sequence;
}

void rocksdb_flush_wal(rocksdb_t *rocks, unsigned char sync, char **error)
{
	(void)rocks;
	(void)sync;
	(void)error;
	sched_point();
}

int rocksdb_property_int_cf(rocksdb_t *rocks, rocksdb_column_family_handle_t *handle,
			    const char *property, uint64_t *ret)
{
	(void)rocks;
	(void)property;
	*ret = db()->count[handle->column];
	return 0;
}

/* ---- reading ------------------------------------------------------------- */

int rocks_get(const struct rocks *rocks, enum column column, const void *key, size_t length,
	      struct rocks_value *ret_value)
{
	const struct memrocks_record *record;
	void *bytes = NULL;
	unsigned at;

	sched_point();
	sched_guard();
	record = find_exact(rocks->column[column]->column, key, length, &at);
	if (record) {
		bytes = make(record->value_length + 1u);
		memcpy(bytes, record->bytes + record->key_length, record->value_length);
		ret_value->length = record->value_length;
	}
	sched_unguard();
	if (!bytes)
		return JOURNAL_E_NONE;
	ret_value->bytes = bytes;
	ret_value->slice = bytes; /* what has to be freed */
	return 0;
}

void rocks_value_done(struct rocks_value *value)
{
	free(value->slice);
	value->slice = NULL;
}

rocksdb_iterator_t *rocksdb_create_iterator_cf(rocksdb_t *rocks,
					       const rocksdb_readoptions_t *options,
					       rocksdb_column_family_handle_t *handle)
{
	rocksdb_iterator_t *it = make(sizeof(*it));

	(void)rocks;
	it->upper = options->upper;
	it->upper_length = options->upper_length;
	sched_point();
	sched_guard();
	it->count = db()->count[handle->column];
	it->records = make((it->count + 1) * sizeof(it->records[0]));
	for (size_t i = 0; i < it->count; i++) {
		const struct memrocks_record *record =
			&db()->records[db()->index[handle->column][i]];

		memcpy(&it->records[i], record,
		       offsetof(struct memrocks_record, bytes) + record->key_length +
			       record->value_length);
	}
	sched_unguard();
	it->at = it->count;
	return it;
}

void rocksdb_iter_destroy(rocksdb_iterator_t *it)
{
	free(it->records);
	free(it);
}

void rocksdb_iter_seek(rocksdb_iterator_t *it, const char *key, size_t length)
{
	it->at = 0;
	while (it->at < it->count &&
	       compare(it->records[it->at].bytes, it->records[it->at].key_length, key, length) < 0)
		it->at++;
}

unsigned char rocksdb_iter_valid(const rocksdb_iterator_t *it)
{
	if (it->at >= it->count)
		return 0;
	return !it->upper || compare(it->records[it->at].bytes, it->records[it->at].key_length,
				     it->upper, it->upper_length) < 0;
}

void rocksdb_iter_next(rocksdb_iterator_t *it)
{
	it->at++;
}

const char *rocksdb_iter_key(const rocksdb_iterator_t *it, size_t *ret_length)
{
	*ret_length = it->records[it->at].key_length;
	return (const char *)it->records[it->at].bytes;
}

const char *rocksdb_iter_value(const rocksdb_iterator_t *it, size_t *ret_length)
{
	*ret_length = it->records[it->at].value_length;
	return (const char *)it->records[it->at].bytes + it->records[it->at].key_length;
}

void rocksdb_iter_get_error(const rocksdb_iterator_t *it, char **error)
{
	(void)it;
	(void)error;
}

rocksdb_readoptions_t *rocksdb_readoptions_create(void)
{
	return make(sizeof(rocksdb_readoptions_t));
}

void rocksdb_readoptions_destroy(rocksdb_readoptions_t *options)
{
	free(options);
}

void rocksdb_readoptions_set_iterate_upper_bound(rocksdb_readoptions_t *options, const char *key,
						 size_t length)
{
	options->upper = key;
	options->upper_length = length;
}

/* ---- writing ------------------------------------------------------------- */

rocksdb_writebatch_t *rocksdb_writebatch_create(void)
{
	return make(sizeof(rocksdb_writebatch_t));
}

void rocksdb_writebatch_clear(rocksdb_writebatch_t *batch)
{
	for (size_t i = 0; i < batch->count; i++)
		free(batch->items[i].bytes);
	batch->count = 0;
	batch->bytes = 0;
}

void rocksdb_writebatch_destroy(rocksdb_writebatch_t *batch)
{
	rocksdb_writebatch_clear(batch);
	free(batch->items);
	free(batch);
}

int rocksdb_writebatch_count(rocksdb_writebatch_t *batch)
{
	return (int)batch->count;
}

const char *rocksdb_writebatch_data(rocksdb_writebatch_t *batch, size_t *ret_size)
{
	*ret_size = batch->bytes;
	return NULL;
}

static void add(rocksdb_writebatch_t *batch, bool is_delete, rocksdb_column_family_handle_t *handle,
		const char *key, size_t key_length, const char *value, size_t value_length)
{
	struct batch_item *item;

	if (batch->count == batch->room) {
		batch->room = batch->room ? 2 * batch->room : 32;
		batch->items = realloc(batch->items, batch->room * sizeof(*batch->items));
		assert(batch->items);
	}
	item = &batch->items[batch->count++];
	*item = (struct batch_item){ .column = handle->column, .is_delete = is_delete };
	item->key_length = key_length;
	item->value_length = value_length;
	item->bytes = make(key_length + value_length + 1);
	memcpy(item->bytes, key, key_length);
	if (value_length > 0)
		memcpy(item->bytes + key_length, value, value_length);
	batch->bytes += key_length + value_length + 12;
}

void rocksdb_writebatch_put_cf(rocksdb_writebatch_t *batch, rocksdb_column_family_handle_t *handle,
			       const char *key, size_t key_length, const char *value,
			       size_t value_length)
{
	add(batch, false, handle, key, key_length, value, value_length);
}

void rocksdb_writebatch_delete_cf(rocksdb_writebatch_t *batch,
				  rocksdb_column_family_handle_t *handle, const char *key,
				  size_t key_length)
{
	add(batch, true, handle, key, key_length, NULL, 0);
}

void rocksdb_write(rocksdb_t *rocks, const rocksdb_writeoptions_t *options,
		   rocksdb_writebatch_t *batch, char **error)
{
	(void)rocks;
	(void)options;
	(void)error;
	sched_point();
	sched_guard();
	for (size_t i = 0; i < batch->count; i++) {
		trace_item(&batch->items[i]);
		if (batch->items[i].is_delete)
			delete (&batch->items[i]);
		else
			put(&batch->items[i]);
		db()->sequence++;
	}
	sched_unguard();
	sched_point();
}
