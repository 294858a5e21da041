/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "journal/journal_internal.h"
#include "util/cleanup.h"
#include "util/log.h"

/*
 * The index: locator -> id, one column family a side.
 *
 * Its changes are composed like all others, so their order in RocksDB is the order of
 * submission. But interning is "find, or else put", and between the two somebody may
 * have composed a change of the same locator that RocksDB does not show yet (an object
 * dies, its index entry is deleted in a batch still pending, the same locator is seen
 * again). Therefore:
 *
 *  - Each composed change of the index stands in a hash table as well, until the commit
 *    that wrote it is over: found there, it counts, and not what RocksDB says. A finder
 *    flushes up to it first, so that the object is readable when the id is handed out.
 *  - Each bucket has a version that grows with every composed change. Interning takes
 *    the version, searches, and puts only if the version is still the same under the
 *    queue's lock; else it searches again. So no two objects get one locator, and
 *    nothing is read from RocksDB under that lock.
 *
 * A bucket without entries costs a finder one load. The order that makes this right: an
 * entry goes in before its batch can be written and out after it was, so whoever sees no
 * entry either came before the composition or reads RocksDB after the commit.
 *
 * Ids are given out under the queue's lock, and the mark up to which they are taken is
 * raised by a chunk in the same batch as the first object of that chunk. A crash skips
 * the rest of a chunk; no id comes twice.
 *
 * When the journal has failed entries stay for ever, those made later too: an object
 * keeps its id for the life of the process, and the workload goes on. RocksDB never sees
 * these ids, so another process may give them out again.
 */

struct locator_entry {
	struct locator_entry *next; /* in the bucket */
	struct locator_entry *next_pending;
	uint64_t seq; /* of the submission */
	uint64_t id;  /* 0: removed */
	enum side side;
	struct locator locator;
};

static struct locator_bucket *bucket_of(struct journal *journal, enum side side,
					const struct locator *locator)
{
	uint64_t hash = XXH3_64bits_withSeed(locator->bytes, locator->length, (uint64_t)side);

	return &journal->locators[hash % LOCATOR_BUCKETS];
}

static struct locator_entry *entry_find(struct locator_bucket *bucket, enum side side,
					const struct locator *locator)
{
	for (struct locator_entry *entry = bucket->first; entry; entry = entry->next)
		if (entry->side == side && locator_equal(&entry->locator, locator))
			return entry;
	return NULL;
}

static void locator_key(struct buffer *key, const struct locator *locator)
{
	assert(locator->length > 0 && locator->length <= LOCATOR_BYTES_MAX);
	key->length = locator->length;
	memcpy(key->bytes, locator->bytes, locator->length);
}

void locators_put(struct journal *journal, enum side side, const struct locator *locator,
		  uint64_t id)
{
	struct locator_bucket *bucket = bucket_of(journal, side, locator);
	struct locator_entry *entry;
	struct buffer key;

	assert(queue_is_mine(journal));
	entry = entry_find(bucket, side, locator);
	if (!entry) {
		entry = malloc(sizeof(*entry));
		if (!entry)
			abort(); /* without it the index could break, and replay is tested */
		entry->side = side;
		entry->locator = *locator;
		entry->next = bucket->first;
		bucket->first = entry;
		bucket->count++;
		entry->next_pending = journal->locators_pending;
		journal->locators_pending = entry;
		journal->locator_count++;
	}
	entry->id = id;
	entry->seq = queue_next_seq(journal);
	bucket->version++;

	locator_key(&key, locator);
	if (id)
		queue_put_u64(journal, locator_column(side), &key, id);
	else
		queue_delete(journal, locator_column(side), &key);
}

static void entry_free(struct journal *journal, struct locator_entry *entry)
{
	struct locator_bucket *bucket = bucket_of(journal, entry->side, &entry->locator);
	struct locator_entry **link = &bucket->first;

	while (*link != entry)
		link = &(*link)->next;
	*link = entry->next;
	bucket->count--;
	journal->locator_count--;
	free(entry);
}

void locators_settle(struct journal *journal, uint64_t flushed)
{
	struct locator_entry **link;

	if (journal->locator_count == 0)
		return;
	pthread_mutex_lock(&journal->queue);
	link = &journal->locators_pending;
	while (*link) {
		struct locator_entry *entry = *link;

		if (entry->seq > flushed) {
			link = &entry->next_pending;
		} else {
			*link = entry->next_pending;
			entry_free(journal, entry);
		}
	}
	pthread_mutex_unlock(&journal->queue);
}

void locators_done(struct journal *journal)
{
	while (journal->locators_pending) {
		struct locator_entry *entry = journal->locators_pending;

		journal->locators_pending = entry->next_pending;
		entry_free(journal, entry);
	}
}

/* ---- finding ------------------------------------------------------------- */

/* Whether @locator is pending; then its id (0: removed) and its submission. */
static bool find_pending(struct journal *journal, enum side side, const struct locator *locator,
			 uint64_t *ret_id, uint64_t *ret_seq)
{
	struct locator_bucket *bucket = bucket_of(journal, side, locator);
	struct locator_entry *entry;

	if (bucket->count == 0)
		return false;
	pthread_mutex_lock(&journal->queue);
	entry = entry_find(bucket, side, locator);
	if (entry) {
		*ret_id = entry->id;
		*ret_seq = entry->seq;
	}
	pthread_mutex_unlock(&journal->queue);
	return entry != NULL;
}

static int find_written(struct journal *journal, enum side side, const struct locator *locator,
			uint64_t *ret_id)
{
	_cleanup_rocks_value_ struct rocks_value value = { 0 };
	int r;

	r = rocks_get(&journal->rocks, locator_column(side), locator->bytes, locator->length,
		      &value);
	if (r != 0)
		return r;
	if (!decode_u64(value.bytes, value.length, ret_id) || *ret_id == 0)
		return rocks_bad_record(locator_column(side), locator->bytes, locator->length);
	return 0;
}

/* Waits until submission @seq can be read. On a failed journal it never can, and memory
 * has to do. */
static int wait_readable(struct journal *journal, uint64_t seq)
{
	int r;

	r = journal_flush(journal, seq);
	return journal_is_failed(journal) ? 0 : r;
}

int journal_object_find(struct journal *journal, enum side side, const struct locator *locator,
			uint64_t *ret_id)
{
	uint64_t id, seq;
	int r;

	assert(side < SIDE_MAX && !locator_is_null(locator));
	assert(!queue_is_mine(journal));
	if (!find_pending(journal, side, locator, &id, &seq))
		return find_written(journal, side, locator, ret_id);
	r = wait_readable(journal, seq);
	if (r < 0)
		return r;
	if (id == 0)
		return JOURNAL_E_NONE;
	*ret_id = id;
	return 0;
}

/* ---- interning ----------------------------------------------------------- */

/* Composed. */
static uint64_t id_take(struct journal *journal)
{
	struct buffer key;

	assert(queue_is_mine(journal));
	if (journal->next_id == journal->reserved_id) {
		journal->reserved_id += ID_CHUNK;
		key_meta(&key, META_RESERVED_ID);
		queue_put_u64(journal, COLUMN_META, &key, journal->reserved_id);
	}
	return journal->next_id++;
}

/* Makes a new object if the bucket of its locator still has @version: 1, or 0 when it
 * has not. */
static int intern_new(struct journal *journal, uint32_t version, enum side side,
		      const struct locator *locator, mode_t type, uint64_t ino,
		      struct object *ret_object, uint64_t *ret_seq)
{
	struct locator_bucket *bucket = bucket_of(journal, side, locator);
	struct object object = { .type = type & S_IFMT, .ino = ino };

	journal_compose(journal);
	if (bucket->version != version) {
		(void)journal_submit(journal); /* nothing was composed */
		return 0;
	}
	if (journal_is_failed(journal) && journal->locator_count >= LOCATOR_ORPHANS_MAX) {
		(void)journal_submit(journal); /* nothing was composed */
		return journal->error;
	}
	object.id = id_take(journal);
	if (ino == 0)
		object.ino = JOURNAL_INO_BASE + object.id;
	object.locator[side] = *locator;
	journal_put_object(journal, &object, NULL);
	*ret_seq = journal_submit(journal);
	*ret_object = object;
	return 1;
}

/* 1: *@ret_object is a new one, put by submission *@ret_seq; 0: @ret_object->id is known. */
static int intern(struct journal *journal, enum side side, const struct locator *locator,
		  mode_t type, uint64_t ino, struct object *ret_object, uint64_t *ret_seq)
{
	struct locator_bucket *bucket = bucket_of(journal, side, locator);

	assert(side < SIDE_MAX && !locator_is_null(locator));
	for (;;) {
		uint32_t version = bucket->version;
		int r;

		r = journal_object_find(journal, side, locator, &ret_object->id);
		if (r != JOURNAL_E_NONE)
			return r;
		r = intern_new(journal, version, side, locator, type, ino, ret_object, ret_seq);
		if (r != 0)
			return r;
	}
}

int journal_object_intern(struct journal *journal, enum side side, const struct locator *locator,
			  mode_t type, uint64_t ino, uint64_t *ret_id)
{
	struct object object;
	uint64_t seq;
	int r;

	r = intern(journal, side, locator, type, ino, &object, &seq);
	if (r > 0)
		r = wait_readable(journal, seq);
	if (r == 0)
		*ret_id = object.id;
	return r;
}

int journal_object_intern_early(struct journal *journal, enum side side, const struct locator *locator,
				mode_t type, uint64_t ino, struct object *ret_object, uint64_t *ret_seq)
{
	struct object object;
	uint64_t seq;
	int r;

	r = intern(journal, side, locator, type, ino, &object, &seq);
	if (r < 0)
		return r;
	if (r == 0) {
		seq = 0;
		r = journal_object_get(journal, object.id, &object);
		if (r != 0)
			return r;
	}
	*ret_seq = seq;
	*ret_object = object;
	return 0;
}

int journal_set_root(struct journal *journal, enum side side, const struct locator *locator,
		     mode_t type, uint64_t ino)
{
	struct object object, old;
	int r;

	assert(side < SIDE_MAX && !locator_is_null(locator));
	r = journal_object_get(journal, JOURNAL_ROOT_ID, &old);
	if (r < 0)
		return r;
	if (r == 0 && locator_equal(&old.locator[side], locator))
		return 0;
	if (r == 0 && !locator_is_null(&old.locator[side])) {
		log_error("the root of side %c is another directory than the journal knows: mount "
			  "what was there, or begin with a new state directory",
			  side == SIDE_A ? 'A' : 'B');
		return -EXDEV;
	}
	object = r == 0 ? old :
			  (struct object){ .id = JOURNAL_ROOT_ID,
					   .type = type & S_IFMT,
					   .ino = ino ? ino : JOURNAL_INO_BASE + JOURNAL_ROOT_ID };
	object.locator[side] = *locator;
	journal_compose(journal);
	journal_put_object(journal, &object, r == 0 ? &old : NULL);
	return journal_flush(journal, journal_submit(journal));
}
