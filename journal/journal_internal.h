/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * What the parts of the journal share. Not for others.
 *
 *	journal.c	life, identity, numbers
 *	queue.c		compose, flush, sync
 *	locators.c	the index of locators, new objects
 *	objects.c	object and synced records
 *	shadow.c	shadow and places
 *	intents.c	intents
 *	records.c	persisted marks
 *	cursor.c	iteration
 *	keys.c		bytes of keys and values
 *	rocks.c		RocksDB's options and errors
 *	statedir.c	the directory and its lock
 *	watermark.c	how far the journal had come
 *
 * Locks, in the order they are taken: commit or sync, then queue, then the watermark's.
 * No call into RocksDB is made under queue but for appending to a batch, which is memory.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "journal/journal.h"
#include "journal/keys.h"
#include "journal/rocks.h"
#include "util/attr.h"

enum {
	PENDING_BYTES_MAX = 1 << 20, /* composed and not written; then who composes, flushes */
	ID_CHUNK = 4096,	     /* ids reserved by one record */
	LOCATOR_BUCKETS = 1024,
	/* Objects first seen after the journal failed, which live in memory only; beyond,
	 * interning fails. About 170 bytes each. */
	LOCATOR_ORPHANS_MAX = 1 << 18,
};

/* Inode numbers of our own: above what the file systems that we know give out. ZFS ends
 * at 2^48, XFS of 100 PiB below it, the others count up from small numbers. */
#define JOURNAL_INO_BASE (UINT64_C(1) << 48)

struct locator_entry;

/* The index entries that are composed and not yet readable in RocksDB. */
struct locator_bucket {
	struct locator_entry *first;	/* guarded by queue */
	_Atomic uint32_t count;		/* of entries; written under queue */
	_Atomic uint32_t version;	/* grows with each change; written under queue */
};

struct journal {
	struct state_dir *dir;
	struct watermark *watermark;
	struct rocks rocks;
	uint64_t uuid;

	pthread_mutex_t queue;
	_Atomic pthread_t composer;	/* who holds queue to compose; 0: nobody */
	rocksdb_writebatch_t *pending;	/* guarded by queue */
	_Atomic uint64_t submitted;	/* written under queue */
	uint64_t next_id, reserved_id;	/* guarded by queue: [next, reserved) are ours to give */
	struct locator_bucket locators[LOCATOR_BUCKETS];
	struct locator_entry *locators_pending; /* guarded by queue: all in the buckets */
	_Atomic uint32_t locator_count;	/* of those; written under queue */

	pthread_mutex_t commit;
	pthread_cond_t commit_done;
	bool is_committing;		/* guarded by commit */
	rocksdb_writebatch_t *spare;	/* of the committer */
	_Atomic uint64_t flushed;	/* written by the committer */
	_Atomic int error;		/* of the first failure, negative; never reset */

	pthread_mutex_t sync;
	_Atomic uint64_t synced;	/* written under sync */
};

/* The keys of meta. */
#define META_FORMAT "format"
#define META_UUID "uuid"
#define META_RESERVED_ID "reserved_id"
#define META_SOURCE "source"
#define META_TARGET "target"
#define META_SOURCE_IDENTITY "source_identity"
#define META_TARGET_IDENTITY "target_identity"

/* ---- queue.c ------------------------------------------------------------- */

int queue_init(struct journal *journal) MUST_CHECK;
void queue_done(struct journal *journal);

/* Between journal_compose() and journal_submit() only. */
void queue_put(struct journal *journal, enum column column, const struct buffer *key,
	       const void *value, size_t length);
void queue_put_u64(struct journal *journal, enum column column, const struct buffer *key,
		   uint64_t value);
void queue_delete(struct journal *journal, enum column column, const struct buffer *key);
/* The sequence number that journal_submit() will return. */
uint64_t queue_next_seq(const struct journal *journal);
/* Whether the calling thread may compose now: for assertions. */
bool queue_is_mine(const struct journal *journal);

/* ---- locators.c ---------------------------------------------------------- */

static inline enum column locator_column(enum side side)
{
	return side == SIDE_A ? COLUMN_LOCATOR_A : COLUMN_LOCATOR_B;
}

/* Composed. @id 0: removes. */
void locators_put(struct journal *journal, enum side side, const struct locator *locator,
		  uint64_t id);
/* Forgets what RocksDB has up to @flushed. Called by the committer. */
void locators_settle(struct journal *journal, uint64_t flushed);
void locators_done(struct journal *journal);

/* ---- cursor.c ------------------------------------------------------------ */

enum cursor_kind {
	CURSOR_SNAPSHOT, /* what was there at the opening */
	CURSOR_CURRENT,	 /* begins again behind its last key from time to time */
};

/* Over the keys in @column that begin with @prefix. */
int cursor_open(struct journal *journal, enum column column, const struct buffer *prefix,
		enum cursor_kind kind, struct journal_cursor **ret_cursor) MUST_CHECK;
/* 0, JOURNAL_E_END, or a failure, logged. Key and value are borrowed until the next call. */
int cursor_next(struct journal_cursor *cursor, const void **ret_key, size_t *ret_key_length,
		const void **ret_value, size_t *ret_value_length) MUST_CHECK;
enum column cursor_column(const struct journal_cursor *cursor);

static inline void cleanup_cursor_(struct journal_cursor **cursor)
{
	*cursor = journal_cursor_close(*cursor);
}
#define _cleanup_cursor_ _cleanup_(cleanup_cursor_)
