/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * What a start has to know of the state directory before it may open it, and what it
 * removes of it again when a first start fails half-way. The journal owns the
 * directory and locks it (journal/statedir.h).
 */

#include <limits.h>
#include <stdbool.h>

#include "util/attr.h"

struct state_plan {
	char path[PATH_MAX];
	bool is_new;	  /* there is no journal in it */
	bool has_phase;	  /* but a phase record, whatever became of the journal */
	bool is_dir_new;  /* there is no such directory */
	unsigned missing; /* directories of the path that are not there */
};

/* Looks at @path, changes nothing. A process that holds it is waited for if it is
 * about to end (a daemon killed a moment ago), else -EBUSY, logged with its id. */
int state_check(const char *path, struct state_plan *ret_plan) MUST_CHECK;

/* Takes away all that a first start made. Nothing else may be in it: what is not
 * ours stays, and the directories with it. */
void state_discard(const struct state_plan *plan);
