/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which objects have been compared since the gap: one bit an id (ids are given in order
 * and never again). Without memory for it an object counts as not compared, which costs a
 * copy and loses nothing.
 */
#include <stdlib.h>
#include <string.h>

#include "migrate/migrate_internal.h"

void compared_init(struct compared *compared)
{
	pthread_mutex_init(&compared->lock, NULL);
	compared->bits = NULL;
	compared->bytes = 0;
}

void compared_done(struct compared *compared)
{
	free(compared->bits);
	pthread_mutex_destroy(&compared->lock);
}

bool compared_has(struct compared *compared, uint64_t id)
{
	size_t at = (size_t)(id / 8);
	bool is_there;

	pthread_mutex_lock(&compared->lock);
	is_there = at < compared->bytes && compared->bits[at] & 1u << (id % 8);
	pthread_mutex_unlock(&compared->lock);
	return is_there;
}

void compared_add(struct compared *compared, uint64_t id)
{
	size_t at = (size_t)(id / 8), bytes;
	uint8_t *bits;

	pthread_mutex_lock(&compared->lock);
	if (at >= compared->bytes) {
		bytes = at + at / 2 + 64;
		bits = realloc(compared->bits, bytes);
		if (bits) {
			memset(bits + compared->bytes, 0, bytes - compared->bytes);
			compared->bits = bits;
			compared->bytes = bytes;
		}
	}
	if (at < compared->bytes)
		compared->bits[at] |= (uint8_t)(1u << (id % 8));
	pthread_mutex_unlock(&compared->lock);
}
