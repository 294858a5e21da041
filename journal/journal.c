/* SPDX-License-Identifier: Apache-2.0 */
#include "journal/journal.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "journal/journal_internal.h"
#include "journal/statedir.h"
#include "journal/watermark.h"
#include "util/cleanup.h"
#include "util/log.h"

/*
 * Opening: the directory and its lock, the watermark, RocksDB, and then the question
 * whether this is our journal, of this pair, in a format that we can read, with all that
 * it once acknowledged. Only then is anything written.
 *
 * How RocksDB is to treat the end of its log depends on who died. If it was the process,
 * the page cache has all that was written: only the last record may be torn, and any other
 * flaw is damage. If it was the machine, what was not synced may be there in part: the log
 * is good up to the first flaw, and the start compares everything anyway. Either way the
 * watermark says how far the journal must reach, and one that does not is refused.
 *
 * A crash while a journal is being made leaves a database without a format: it never held
 * anything, and the next opening makes it again.
 */

enum {
	IDENTITY_BYTES_MAX = 4096,
	/* Less free than this, and RocksDB is not even asked: see INFO_LOG_LEVEL_FATAL. */
	FREE_BYTES_MIN = 4 << 20,
};

#define REMEDY "move '%s/" STATE_DIR_DATABASE "' away to begin a new one and compare everything"

/* ---- meta ---------------------------------------------------------------- */

static int meta_get_u64(struct journal *journal, const char *name, uint64_t *ret_value)
{
	_cleanup_rocks_value_ struct rocks_value value = { 0 };
	size_t length = strlen(name);
	int r;

	r = rocks_get(&journal->rocks, COLUMN_META, name, length, &value);
	if (r != 0)
		return r;
	if (!decode_u64(value.bytes, value.length, ret_value))
		return rocks_bad_record(COLUMN_META, name, length);
	return 0;
}

/* *@ret_text is owned. */
static int meta_get_text(struct journal *journal, const char *name, char **ret_text)
{
	_cleanup_rocks_value_ struct rocks_value value = { 0 };
	size_t length = strlen(name);
	char *text;
	int r;

	r = rocks_get(&journal->rocks, COLUMN_META, name, length, &value);
	if (r < 0)
		return r;
	if (r == JOURNAL_E_NONE || value.length > IDENTITY_BYTES_MAX)
		return rocks_bad_record(COLUMN_META, name, length);
	text = strndup(value.bytes, value.length);
	if (!text)
		return -ENOMEM;
	*ret_text = text;
	return 0;
}

static void put_meta_u64(struct journal *journal, const char *name, uint64_t number)
{
	struct buffer key;

	key_meta(&key, name);
	queue_put_u64(journal, COLUMN_META, &key, number);
}

static void put_meta_text(struct journal *journal, const char *name, const char *text)
{
	struct buffer key;

	key_meta(&key, name);
	queue_put(journal, COLUMN_META, &key, text, strlen(text));
}

/* ---- a new journal ------------------------------------------------------- */

static int make(struct journal *journal, const struct journal_pair *pair)
{
	if (getrandom(&journal->uuid, sizeof(journal->uuid), 0) != (ssize_t)sizeof(journal->uuid))
		return log_error_errno(errno, "cannot get a random number");
	journal->next_id = JOURNAL_FIRST_ID;
	journal->reserved_id = JOURNAL_FIRST_ID;

	journal_compose(journal);
	put_meta_u64(journal, META_FORMAT, JOURNAL_FORMAT);
	put_meta_u64(journal, META_UUID, journal->uuid);
	put_meta_u64(journal, META_RESERVED_ID, journal->reserved_id);
	put_meta_text(journal, META_SOURCE, pair->source);
	put_meta_text(journal, META_TARGET, pair->target);
	put_meta_text(journal, META_SOURCE_IDENTITY, pair->source_identity);
	put_meta_text(journal, META_TARGET_IDENTITY, pair->target_identity);
	return journal_flush(journal, journal_submit(journal));
}

/* ---- a journal that is there --------------------------------------------- */

static int check_format(struct journal *journal, uint64_t format)
{
	if (format == JOURNAL_FORMAT)
		return 0;
	if (format > JOURNAL_FORMAT) {
		log_error("the journal in '%s' has format %" PRIu64
			  ", this program reads %d: use the newer version that wrote it",
			  state_dir_path(journal->dir), format, JOURNAL_FORMAT);
		return -EPROTO;
	}
	return rocks_bad_record(COLUMN_META, META_FORMAT, strlen(META_FORMAT));
}

static int check_pair(struct journal *journal, const struct journal_pair *pair)
{
	_cleanup_free_ char *source = NULL, *target = NULL;
	_cleanup_free_ char *source_identity = NULL, *target_identity = NULL;
	int r;

	r = meta_get_text(journal, META_SOURCE_IDENTITY, &source_identity);
	if (r == 0)
		r = meta_get_text(journal, META_TARGET_IDENTITY, &target_identity);
	if (r == 0)
		r = meta_get_text(journal, META_SOURCE, &source);
	if (r == 0)
		r = meta_get_text(journal, META_TARGET, &target);
	if (r < 0)
		return r;
	if (strcmp(source_identity, pair->source_identity) == 0 &&
	    strcmp(target_identity, pair->target_identity) == 0)
		return 0;
	log_error("the state directory '%s' belongs to the migration of '%s' to '%s', not to that "
		  "of '%s' to '%s': name the same pair, or another state directory",
		  state_dir_path(journal->dir), source, target, pair->source, pair->target);
	return -EXDEV;
}

static int load(struct journal *journal, uint64_t format, const struct journal_pair *pair)
{
	int r;

	r = check_format(journal, format);
	if (r < 0)
		return r;
	r = check_pair(journal, pair);
	if (r < 0)
		return r;
	r = meta_get_u64(journal, META_UUID, &journal->uuid);
	if (r == 0)
		r = meta_get_u64(journal, META_RESERVED_ID, &journal->reserved_id);
	if (r == JOURNAL_E_NONE || (r == 0 && journal->reserved_id < JOURNAL_FIRST_ID))
		r = rocks_bad_record(COLUMN_META, META_RESERVED_ID, strlen(META_RESERVED_ID));
	if (r < 0)
		return r;

	journal->next_id = journal->reserved_id; /* what is below may have been given out */

	/* Names may change, the stores behind them did not. */
	journal_compose(journal);
	put_meta_text(journal, META_SOURCE, pair->source);
	put_meta_text(journal, META_TARGET, pair->target);
	return journal_flush(journal, journal_submit(journal));
}

/* ---- opening ------------------------------------------------------------- */

static int check_watermark(struct journal *journal)
{
	uint64_t expected = watermark_expected(journal->watermark);
	uint64_t found = rocksdb_get_latest_sequence_number(journal->rocks.db);

	if (found >= expected)
		return 0;
	log_error("the journal in '%s' has lost records that it had acknowledged (it ends at %" PRIu64
		  ", not at %" PRIu64 "): " REMEDY,
		  state_dir_path(journal->dir), found, expected, state_dir_path(journal->dir));
	return -EBADMSG;
}

static int check_space(struct journal *journal)
{
	struct statvfs st;

	if (fstatvfs(state_dir_fd(journal->dir), &st) < 0)
		return log_error_errno(errno, "cannot examine '%s'", state_dir_path(journal->dir));
	if ((uint64_t)st.f_bavail * st.f_frsize >= FREE_BYTES_MIN)
		return 0;
	return log_error_errno(ENOSPC, "cannot open the journal in '%s', make room there",
			       state_dir_path(journal->dir));
}

static int open_database(struct journal *journal)
{
	enum rocks_recovery recovery = ROCKS_RECOVER_PROCESS;
	char path[4096 + sizeof(STATE_DIR_DATABASE) + 1];
	int r;

	if (state_dir_is_new(journal->dir)) {
		if (watermark_expected(journal->watermark) > 0)
			log_warning("the journal in '%s' is gone, beginning a new one",
				    state_dir_path(journal->dir));
		watermark_reset(journal->watermark, 0, false);
	} else if (watermark_has_lost_power(journal->watermark)) {
		log_warning("the machine went down with the journal in '%s' in use: what was not "
			    "synced may be lost, and everything must be compared",
			    state_dir_path(journal->dir));
		recovery = ROCKS_RECOVER_MACHINE;
	}
	(void)snprintf(path, sizeof(path), "%s/" STATE_DIR_DATABASE,
		       state_dir_path(journal->dir)); /* both have a bound */
	r = rocks_open(&journal->rocks, path, recovery);
	if (r == -EBADMSG)
		log_error("the journal in '%s' is damaged: " REMEDY, state_dir_path(journal->dir),
			  state_dir_path(journal->dir));
	if (r < 0)
		return r;
	return check_watermark(journal);
}

static int open_all(struct journal *journal, const char *state_dir,
		    const struct journal_pair *pair, bool *ret_is_new)
{
	uint64_t format;
	int r;

	r = state_dir_open(state_dir, &journal->dir);
	if (r < 0)
		return r;
	r = watermark_open(state_dir_fd(journal->dir), STATE_DIR_WATERMARK, &journal->watermark);
	if (r < 0)
		return r;
	r = check_space(journal);
	if (r < 0)
		return r;
	r = open_database(journal);
	if (r < 0)
		return r;

	/* RocksDB has made durable what it recovered, and begun a new log. */
	watermark_reset(journal->watermark, rocksdb_get_latest_sequence_number(journal->rocks.db),
			/* is_synced= */ true);
	r = meta_get_u64(journal, META_FORMAT, &format);
	if (r < 0)
		return r;
	*ret_is_new = r == JOURNAL_E_NONE;
	r = *ret_is_new ? make(journal, pair) : load(journal, format, pair);
	if (r < 0)
		return r;
	r = journal_sync(journal);
	if (r < 0)
		return r;
	if (fsync(state_dir_fd(journal->dir)) < 0)
		return log_error_errno(errno, "cannot sync '%s'", state_dir);
	return 0;
}

static void close_all(struct journal *journal, bool undo)
{
	locators_done(journal);
	queue_done(journal);
	rocks_close(&journal->rocks);
	journal->watermark = watermark_close(journal->watermark);
	journal->dir = state_dir_close(journal->dir, undo);
	free(journal);
}

int journal_open(const char *state_dir, const struct journal_pair *pair, bool *ret_is_new,
		 struct journal **ret_journal)
{
	struct journal *journal;
	bool is_new = false;
	int r;

	assert(state_dir && pair && ret_is_new && ret_journal);
	assert(pair->source && pair->target && pair->source_identity && pair->target_identity);
	if (strlen(pair->source) > IDENTITY_BYTES_MAX || strlen(pair->target) > IDENTITY_BYTES_MAX ||
	    strlen(pair->source_identity) > IDENTITY_BYTES_MAX ||
	    strlen(pair->target_identity) > IDENTITY_BYTES_MAX)
		return log_error_errno(ENAMETOOLONG, "a store's name is too long for the journal");

	journal = calloc(1, sizeof(*journal));
	if (!journal)
		return -ENOMEM;
	r = queue_init(journal);
	if (r == 0)
		r = open_all(journal, state_dir, pair, &is_new);
	if (r < 0) {
		close_all(journal, /* undo= */ true);
		return r;
	}
	*ret_is_new = is_new;
	*ret_journal = journal;
	return 0;
}

struct journal *journal_close(struct journal *journal)
{
	if (!journal)
		return NULL;
	if (journal_flush(journal, journal->submitted) < 0 || journal_sync(journal) < 0) {
		/* It has been logged, and nothing else could be done now. */
	}
	close_all(journal, /* undo= */ false);
	return NULL;
}

uint64_t journal_uuid(const struct journal *journal)
{
	return journal->uuid;
}

/* ---- numbers ------------------------------------------------------------- */

int journal_number_get(struct journal *journal, const char *name, uint64_t *ret_value)
{
	_cleanup_rocks_value_ struct rocks_value value = { 0 };
	struct buffer key;
	int r;

	key_number(&key, name);
	r = rocks_get(&journal->rocks, COLUMN_META, key.bytes, key.length, &value);
	if (r != 0)
		return r;
	if (!decode_u64(value.bytes, value.length, ret_value))
		return rocks_bad_record(COLUMN_META, key.bytes, key.length);
	return 0;
}

void journal_put_number(struct journal *journal, const char *name, uint64_t value)
{
	struct buffer key;

	key_number(&key, name);
	queue_put_u64(journal, COLUMN_META, &key, value);
}
