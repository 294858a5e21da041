/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <errno.h>

#include "journal/journal_internal.h"
#include "journal/statedir.h"
#include "journal/watermark.h"
#include "util/log.h"

/*
 * Compose and commit. Submissions are numbered; all that were made since the last commit
 * stand, in order, in one pending batch. Who needs one to be in RocksDB becomes the
 * committer if there is none: it takes the whole batch, leaves the spare one in its
 * place, and writes, while others go on composing. Who finds a committer at work waits,
 * and has often been written by the next one when it wakes.
 *
 * So there is one writer to RocksDB, batches reach it in the order of their submissions,
 * and a batch is whole or absent. After a crash RocksDB has a prefix of the submissions,
 * with everything that a flush returned for.
 *
 * The first failure is final. What RocksDB has of the failed batch is unknown until it is
 * opened again, so nothing may be written behind it; what is composed later is dropped.
 */

int queue_init(struct journal *journal)
{
	pthread_mutex_init(&journal->queue, NULL);
	pthread_mutex_init(&journal->commit, NULL);
	pthread_mutex_init(&journal->sync, NULL);
	pthread_cond_init(&journal->commit_done, NULL);
	journal->pending = rocksdb_writebatch_create();
	journal->spare = rocksdb_writebatch_create();
	return journal->pending && journal->spare ? 0 : -ENOMEM;
}

void queue_done(struct journal *journal)
{
	assert(journal->composer == 0 && !journal->is_committing);
	if (journal->pending)
		rocksdb_writebatch_destroy(journal->pending);
	if (journal->spare)
		rocksdb_writebatch_destroy(journal->spare);
	pthread_cond_destroy(&journal->commit_done);
	pthread_mutex_destroy(&journal->sync);
	pthread_mutex_destroy(&journal->commit);
	pthread_mutex_destroy(&journal->queue);
}

bool journal_is_failed(const struct journal *journal)
{
	return journal->error != 0;
}

/* Makes the first failure the journal's. */
static int fail(struct journal *journal, int error)
{
	int none = 0;

	assert(error < 0);
	if (atomic_compare_exchange_strong(&journal->error, &none, error))
		log_error("the journal in '%s' has failed: changes are no longer recorded, and "
			  "everything must be compared",
			  state_dir_path(journal->dir));
	return journal->error;
}

/* ---- composing ----------------------------------------------------------- */

bool queue_is_mine(const struct journal *journal)
{
	return journal->composer == pthread_self();
}

static size_t pending_bytes(const struct journal *journal)
{
	size_t bytes;

	(void)rocksdb_writebatch_data(journal->pending, &bytes); /* for its length */
	return bytes;
}

void journal_compose(struct journal *journal)
{
	assert(!queue_is_mine(journal));
	pthread_mutex_lock(&journal->queue);
	while (pending_bytes(journal) > PENDING_BYTES_MAX) {
		uint64_t seq = journal->submitted;

		if (journal_is_failed(journal)) {
			rocksdb_writebatch_clear(journal->pending);
			break;
		}
		pthread_mutex_unlock(&journal->queue);
		if (journal_flush(journal, seq) < 0) {
			/* Found again by whoever flushes what will be composed. */
		}
		pthread_mutex_lock(&journal->queue);
	}
	assert(journal->composer == 0);
	journal->composer = pthread_self();
}

uint64_t queue_next_seq(const struct journal *journal)
{
	return journal->submitted + 1;
}

uint64_t journal_submit(struct journal *journal)
{
	uint64_t seq;

	assert(queue_is_mine(journal));
	if (rocksdb_writebatch_count(journal->pending) > 0)
		journal->submitted++;
	if (journal_is_failed(journal))
		rocksdb_writebatch_clear(journal->pending);
	seq = journal->submitted;
	journal->composer = 0;
	pthread_mutex_unlock(&journal->queue);
	return seq;
}

void queue_put(struct journal *journal, enum column column, const struct buffer *key,
	       const void *value, size_t length)
{
	assert(queue_is_mine(journal));
	rocksdb_writebatch_put_cf(journal->pending, journal->rocks.column[column],
				  (const char *)key->bytes, key->length, value, length);
}

void queue_put_u64(struct journal *journal, enum column column, const struct buffer *key,
		   uint64_t value)
{
	struct buffer bytes;

	bytes.length = 0;
	buffer_put_u64(&bytes, value);
	queue_put(journal, column, key, bytes.bytes, bytes.length);
}

void queue_delete(struct journal *journal, enum column column, const struct buffer *key)
{
	assert(queue_is_mine(journal));
	rocksdb_writebatch_delete_cf(journal->pending, journal->rocks.column[column],
				     (const char *)key->bytes, key->length);
}

/* ---- committing ---------------------------------------------------------- */

/* Takes what is pending; returns the number of its last submission. */
static uint64_t take_pending(struct journal *journal, rocksdb_writebatch_t **ret_batch)
{
	uint64_t seq;

	pthread_mutex_lock(&journal->queue);
	*ret_batch = journal->pending;
	journal->pending = journal->spare;
	journal->spare = NULL;
	seq = journal->submitted;
	pthread_mutex_unlock(&journal->queue);
	return seq;
}

/* By the committer, without a lock. */
static int commit_pending(struct journal *journal)
{
	rocksdb_writebatch_t *batch;
	char *text = NULL;
	uint64_t seq;

	seq = take_pending(journal, &batch);
	assert(seq > journal->flushed);
	rocksdb_set_perf_level(rocksdb_disable); /* this thread's: counting costs a tenth of a put */
	rocksdb_write(journal->rocks.db, journal->rocks.write, batch, &text);
	rocksdb_writebatch_clear(batch);
	journal->spare = batch;
	if (text)
		return fail(journal, rocks_error(text, "cannot write to the journal"));

	watermark_set_flushed(journal->watermark,
			      rocksdb_get_latest_sequence_number(journal->rocks.db));
	journal->flushed = seq;
	locators_settle(journal, seq);
	return 0;
}

int journal_flush(struct journal *journal, uint64_t seq)
{
	int r = 0;

	assert(seq <= journal->submitted);
	assert(!queue_is_mine(journal)); /* the committer will want that lock */
	if (journal->flushed >= seq)
		return 0;

	pthread_mutex_lock(&journal->commit);
	while (journal->flushed < seq) {
		if (journal->is_committing) {
			pthread_cond_wait(&journal->commit_done, &journal->commit);
			continue;
		}
		r = journal->error;
		if (r < 0)
			break;
		journal->is_committing = true;
		pthread_mutex_unlock(&journal->commit);
		r = commit_pending(journal);
		pthread_mutex_lock(&journal->commit);
		journal->is_committing = false;
		pthread_cond_broadcast(&journal->commit_done);
		if (r < 0)
			break;
	}
	pthread_mutex_unlock(&journal->commit);
	return r;
}

uint64_t journal_flushed(const struct journal *journal)
{
	return journal->flushed;
}

/* ---- syncing ------------------------------------------------------------- */

int journal_sync(struct journal *journal)
{
	uint64_t wanted = journal->flushed, seq, rocks_seq;
	char *text = NULL;
	int r = 0;

	if (journal->synced >= wanted)
		return journal->error;
	pthread_mutex_lock(&journal->sync);
	if (journal->error < 0) {
		/* A sync after one that failed proves nothing: the kernel has let the pages go. */
		r = journal->error;
	} else if (journal->synced < wanted) {
		seq = journal->flushed;
		rocks_seq = watermark_flushed(journal->watermark);
		rocksdb_flush_wal(journal->rocks.db, /* sync= */ 1, &text);
		if (text) {
			r = fail(journal, rocks_error(text, "cannot sync the journal"));
		} else {
			watermark_set_synced(journal->watermark, rocks_seq);
			journal->synced = seq;
		}
	}
	pthread_mutex_unlock(&journal->sync);
	return r;
}

uint64_t journal_synced(const struct journal *journal)
{
	return journal->synced;
}
