/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Objects without a name that the workload still holds: unlinked while open, or
 * made by O_TMPFILE. The overlay adds and removes them; to the migrator each is a name
 * in limbo on the active side: name(JOURNAL_LIMBO_ID, orphan_name(id)) stands for the
 * object as long as it is in this set, and for nothing after.
 *
 * The overlay changes the set as it changes the active store: within a change
 * (marks.h) that names the object's limbo name. Thread-safe; one mutex, a leaf.
 */

#include <stdbool.h>
#include <stdint.h>

#include "util/attr.h"

enum { ORPHAN_NAME_BYTES = 17 }; /* 16 hex digits, NUL */

struct orphans; /* opaque */

struct orphans *orphans_new(void); /* NULL: no memory */
struct orphans *orphans_free(struct orphans *orphans);

int orphans_add(struct orphans *orphans, uint64_t id) MUST_CHECK; /* 0 or -ENOMEM */
void orphans_remove(struct orphans *orphans, uint64_t id);	  /* no-op if it is not there */
bool orphans_has(struct orphans *orphans, uint64_t id);
/* All ids now; the caller frees *@ret_ids. */
int orphans_list(struct orphans *orphans, uint64_t **ret_ids, unsigned *ret_count) MUST_CHECK;

void orphan_name(uint64_t id, char ret_name[static ORPHAN_NAME_BYTES]);
/* The id that @name stands for in limbo, 0 if it is no such name. */
uint64_t orphan_id(const char *name);
