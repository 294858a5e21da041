/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/store/nfs_handle.h"

#include <errno.h>
#include <sys/stat.h>

enum { TYPE_SHIFT = 12 }; /* S_IFMT in one byte */

nfs_fh3 nfshandle_wire(const struct locator *locator)
{
	assert(locator->length > 1);
	return (nfs_fh3){ .data = { .data_len = locator->length - 1u,
				    .data_val = (char *)(uintptr_t)locator->bytes } };
}

diropargs3 nfshandle_wire_name(const struct locator *dir, const char *name)
{
	return (diropargs3){ .dir = nfshandle_wire(dir), .name = (char *)(uintptr_t)name };
}

/* FNV-1a: handles of one server differ in a few bytes. */
uint32_t nfshandle_hash(const void *bytes, size_t length)
{
	const uint8_t *at = bytes;
	uint32_t hash = 2166136261u;

	for (size_t i = 0; i < length; i++)
		hash = (hash ^ at[i]) * 16777619u;
	return hash;
}

int nfshandle_locator(const char *bytes, size_t length, struct locator *ret_locator)
{
	if (length == 0 || length > NFS3_FHSIZE)
		return -EIO;
	*ret_locator = LOCATOR_NULL;
	ret_locator->length = (uint8_t)(length + 1);
	memcpy(ret_locator->bytes, bytes, length);
	return 0;
}

void nfshandle_set_type(struct locator *locator, mode_t mode)
{
	assert(locator->length > 1);
	assert(mode & S_IFMT);
	locator->bytes[locator->length - 1] = (uint8_t)((mode & S_IFMT) >> TYPE_SHIFT);
}

mode_t nfshandle_type(const struct locator *locator)
{
	assert(locator->length > 1);
	return (mode_t)locator->bytes[locator->length - 1] << TYPE_SHIFT;
}
