/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * RocksDB as the journal uses it: how it is opened, its options, and its errors
 * turned into errno. All functions are thread-safe but for open and close.
 */

#include <rocksdb/c.h>
#include <stdbool.h>
#include <stdint.h>

#include "journal/keys.h"
#include "util/attr.h"
#include "util/cleanup.h"

/* What to do with a write-ahead log that does not end well. */
enum rocks_recovery {
	/* The process died, the machine did not: the last record may be cut short, and
	 * anything else that is wrong with the log is an error. */
	ROCKS_RECOVER_PROCESS,
	/* The machine died: what was not synced may be there in any part and order. The
	 * log is read to the first flaw and forgotten from there. */
	ROCKS_RECOVER_MACHINE,
};

struct rocks {
	rocksdb_t *db;
	rocksdb_column_family_handle_t *column[COLUMN_MAX];
	rocksdb_column_family_handle_t **strange; /* of a later version, left alone */
	size_t strange_count;
	rocksdb_readoptions_t *read;
	rocksdb_writeoptions_t *write;
};

#define ROCKS_NULL ((struct rocks){ .db = NULL })

/* Opens the database in the directory @path, or makes it. Failures are logged:
 * -EBADMSG (damaged), -EBUSY, -ENOSPC, -ENOMEM, -EIO. */
int rocks_open(struct rocks *rocks, const char *path, enum rocks_recovery recovery) MUST_CHECK;
void rocks_close(struct rocks *rocks);

/* Logs @text (taken) after @what, and returns the errno for it, negative. */
int rocks_error(char *text, const char *what);

/* A value in the database's own memory, held until rocks_value_done(). */
struct rocks_value {
	rocksdb_pinnableslice_t *slice;
	const void *bytes;
	size_t length;
};

/* 0, JOURNAL_E_NONE, or a failure, logged. *@ret_value is ended by rocks_value_done(). */
int rocks_get(const struct rocks *rocks, enum column column, const void *key, size_t length,
	      struct rocks_value *ret_value) MUST_CHECK;
void rocks_value_done(struct rocks_value *value);
#define _cleanup_rocks_value_ _cleanup_(rocks_value_done)

/* Logs that what stands under @key in @column is none of ours; returns -EBADMSG. */
int rocks_bad_record(enum column column, const void *key, size_t length);
