/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * A store over one of the world's trees. Each operation is atomic, with a switch point
 * before and after it. The target's fail, lose their replies and forget what was not
 * committed as the plan says; those of a crashed daemon that were under way are done,
 * not done, or still to come.
 */

#include "fs/store/store.h"
#include "journal/journal.h"
#include "tests/model/tree.h"

int memstore_open(enum side side, struct store **ret_store) MUST_CHECK;

struct tree_ref memstore_ref(const struct locator *locator);
void memstore_locator(enum side side, struct tree_ref ref, struct locator *ret_locator);

/* What is due on its way to the target arrives. */
void memstore_land(void);
/* All of it. */
void memstore_land_all(void);
/* The daemon dies now: settles what its threads had under way. */
void memstore_crash(void);
