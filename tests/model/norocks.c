/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/model/memrocks.h"

bool memrocks_is_there(void)
{
	return false;
}

void memrocks_each(const char *name,
		   void (*call)(void *context, const void *key, size_t key_length,
				const void *value, size_t value_length),
		   void *context)
{
	(void)name;
	(void)call;
	(void)context;
}
