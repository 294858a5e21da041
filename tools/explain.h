/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* What the journal knows of one path: `ferry explain`. */

#include <jansson.h>

#include "tools/service.h"

/* The reply for @path (bytes): absolute below the mount, or relative to its root. The
 * path is resolved on the active store, and no symlink is followed; the mount itself
 * is not touched. NULL: no memory. May block as long as a store's call does. */
json_t *explain_json(struct service *service, const char *path);
