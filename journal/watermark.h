/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The watermark: how far the journal had come, beside it and not in it, so that a
 * journal that lost something it had acknowledged is found out.
 *
 * A log can lose its end without a trace: a flipped length, a file cut short or gone
 * looks like a record that was not finished. After each commit the database's sequence
 * number is put into a file of one sector; it is not synced, as the commit is not, and
 * so it lives through the death of the process exactly as the commit does. After a
 * death of the machine only the number of the last sync counts. It is told by the
 * kernel's boot id which of the two it was.
 *
 * Setting is thread-safe; the rest belongs to the owner.
 */

#include <stdbool.h>
#include <stdint.h>

#include "util/attr.h"

struct watermark; /* opaque */

/* Reads the file @name in @dir_fd, or makes it. One that cannot be read as such is
 * taken for none, with a warning. */
int watermark_open(int dir_fd, const char *name, struct watermark **ret_watermark) MUST_CHECK;
struct watermark *watermark_close(struct watermark *watermark);

/* Whether the machine went down with commits that had not been synced. */
bool watermark_has_lost_power(const struct watermark *watermark);
/* What the database must have reached; 0: nothing is known. */
uint64_t watermark_expected(const struct watermark *watermark);

/* Begins anew at @seq, of this boot. @is_synced: the database stands there on the disk. */
void watermark_reset(struct watermark *watermark, uint64_t seq, bool is_synced);
/* The database has committed, or synced, up to @seq. A file that cannot be written keeps
 * an earlier number: it demands less, and is not worth a failure. */
void watermark_set_flushed(struct watermark *watermark, uint64_t seq);
uint64_t watermark_flushed(struct watermark *watermark);
void watermark_set_synced(struct watermark *watermark, uint64_t seq);
