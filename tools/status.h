/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* What a migration is doing, as `ferry status --json` prints it. */

#include <jansson.h>

#include "tools/service.h"

/* NULL: no memory. Thread-safe. */
json_t *status_json(struct service *service);
