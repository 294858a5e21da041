/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * journal/rocks.h and the part of RocksDB's C API that the journal uses, in the world's memory: linked in the
 * place of the library, it makes a run a hundred times as fast, and lets the checks look
 * at the records at any moment. A program with the real library links norocks.c instead.
 */

#include <stdbool.h>
#include <stddef.h>

/* Whether there is something to look at. */
bool memrocks_is_there(void);
/* Calls for each record of the family @name, in the order of keys. */
void memrocks_each(const char *name,
		   void (*call)(void *context, const void *key, size_t key_length,
				const void *value, size_t value_length),
		   void *context);
