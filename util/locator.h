/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * A locator: how one store finds an object again, whatever its name is by then.
 * Its bytes are that store's own (a file handle with its type; an NFS file
 * handle) and are compared as bytes. Empty (length 0) means "none".
 */

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { LOCATOR_BYTES_MAX = 132 }; /* MAX_HANDLE_SZ and its type; an NFSv3 handle has up to 64 */

struct locator {
	uint8_t length;
	uint8_t bytes[LOCATOR_BYTES_MAX];
};

#define LOCATOR_NULL ((struct locator){ 0 })

static inline bool locator_is_null(const struct locator *l)
{
	return l->length == 0;
}

static inline bool locator_equal(const struct locator *a, const struct locator *b)
{
	return a->length == b->length && memcmp(a->bytes, b->bytes, a->length) == 0;
}
