/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The file about.json in a state directory: whose state it is, for people and for
 * `ferry list`, which shows migrations that do not run. Nothing depends on it.
 */

#include <jansson.h>

#include "util/attr.h"

#define ABOUT_STATE_DIR "/var/lib/ferryfs" /* where state directories are by default */
#define ABOUT_FILE "about.json"

/* Replaces the file in @state_dir. */
int about_write(const char *state_dir, json_t *about) MUST_CHECK;
/* The caller owns *@ret_about. -ENOENT, -EBADMSG, ... */
int about_read(const char *state_dir, json_t **ret_about) MUST_CHECK;
