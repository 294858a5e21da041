/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The phase record: which side is authoritative, and where the migration stands.
 * A preallocated file of two slots (sequence number, CRC) in the state directory,
 * beside RocksDB and not in it, so that a lost journal cannot forget it. Writing
 * overwrites the older slot and syncs; a torn write leaves the newer one.
 *
 * Not thread-safe: one owner (the cutover), others read its copy.
 */

#include <stdbool.h>
#include <stdint.h>

#include "journal/journal.h"
#include "util/attr.h"

enum phase {
	PHASE_BASELINE,
	PHASE_CONVERGE,
	PHASE_GUARD,
	PHASE_FINISHED,
	PHASE_MAX,
};

struct phase_record {
	enum side active;	/* the authority */
	enum phase phase;
	bool has_gap;		/* marks may be missing: everything must be compared */
	bool is_running;	/* set by a start, cleared by a clean stop */
	uint32_t last_freeze_ms;
};

struct phase_file; /* opaque */

/* Opens the file in @state_dir, or makes it with @initial when there is none.
 * What is read is written back, synced, before it is returned (a record that a dying
 * daemon wrote may not have reached the disk). -EBADMSG when both slots are torn. */
int phase_file_open(const char *state_dir, const struct phase_record *initial,
		    struct phase_record *ret_record, struct phase_file **ret_file) MUST_CHECK;

/* Writes @record and syncs. On an error it is unknown which of the two a restart
 * would read: the caller stays as it is and writes again. */
int phase_file_write(struct phase_file *file, const struct phase_record *record) MUST_CHECK;

struct phase_file *phase_file_close(struct phase_file *file);
