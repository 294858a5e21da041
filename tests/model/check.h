/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * What must hold. A check that finds a flaw ends the process with a verdict.
 */

#include "journal/journal.h"
#include "journal/marks.h"
#include "migrate/orphans.h"
#include "tests/model/tree.h"

/* At any moment, also of a dead daemon: whatever differs has a mark in the journal or an
 * intent that names it, and what the source has under a name and the target had got is
 * still there. Looks at the world only; needs memrocks.c. *@ret_why has the flaw. */
bool check_is_covered(const char **ret_why);

/* A good moment for it: what has just changed is not covered by accident. */
void check_ask(void);
bool check_was_asked(void); /* since the last time */

/* The names on both sides with their objects, to stderr. */
void check_dump(void);

/* Before each change of the target: an object that the source still has never loses its
 * last name there (it would have to be copied again). */
void check_target_change(const struct op *op);

/* With no client and no mark left: the trees are equal, the shadow is the target, limbo
 * has the @leftovers and nothing else, the journal has no mark and no intent, and what was
 * synced is what is there. */
void check_equal(struct journal *journal, const char *limbo_name, const struct tree_ref *leftovers,
		 unsigned leftover_count);
