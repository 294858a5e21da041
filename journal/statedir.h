/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The state directory: made, locked against a second process, and unmade again when
 * what was to be built in it failed. Not thread-safe: its owner is the journal.
 */

#include <stdbool.h>

#include "util/attr.h"

#define STATE_DIR_DATABASE "db"
#define STATE_DIR_WATERMARK "watermark"
#define STATE_DIR_PHASE "phase"

struct state_dir; /* opaque */

/* Opens and locks @path, and makes it and its parents (0700) if need be. Failures are
 * logged: -EBUSY (locked by another process), -ENOTEMPTY (holds something else),
 * -ENOTDIR, -EACCES, -ENOSPC, ... */
int state_dir_open(const char *path, struct state_dir **ret_dir) MUST_CHECK;

int state_dir_fd(const struct state_dir *dir);
const char *state_dir_path(const struct state_dir *dir);
/* Whether it has no database. */
bool state_dir_is_new(const struct state_dir *dir);

/* Unlocks. With @undo everything goes that was not there before state_dir_open(). */
struct state_dir *state_dir_close(struct state_dir *dir, bool undo);
