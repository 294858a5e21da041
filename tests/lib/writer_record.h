/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The record of a writer: which operation was begun, and how it ended. It is kept outside
 * the mount; the begin of an operation is in it before the operation is made.
 */

#include <stdbool.h>
#include <stdint.h>

#include "tests/lib/writer_model.h"

struct record; /* opaque */

/* Opens @path to go on at its end, or makes it. die()s on failure. */
struct record *record_open(const char *path);
/* Writes out what is left. NULL is allowed. Returns NULL. */
struct record *record_close(struct record *record);

void record_begin(struct record *record, const struct op *op);
/* @result: as model_apply() takes it, or negative errno. */
void record_end(struct record *record, int64_t result);
/* An operation that is a fact by itself (OP_ADOPT, OP_SETBYTES, OP_MTIME). */
void record_fact(struct record *record, const struct op *op, const void *bytes);

/* Builds @model (initialised) from the record at @path. Returns how many operations were
 * acknowledged; *@ret_has_pending and *@ret_pending: the one that was under way at the
 * end. */
uint64_t record_replay(const char *path, struct model *model, bool *ret_has_pending,
		       struct op *ret_pending);
