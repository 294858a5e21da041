/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The locator of an object on an NFS server: its file handle, and one byte for its type,
 * which no object changes. So what depends on the type costs no call.
 */

#include <sys/types.h>

#include "fs/store/nfs_lib.h"
#include "util/attr.h"
#include "util/locator.h"

static_assert((int)NFS3_FHSIZE + 1 <= (int)LOCATOR_BYTES_MAX,
	      "a handle and its type fit a locator");

/* The file handle as libnfs takes it; borrows @locator, which libnfs does not change. */
nfs_fh3 nfshandle_wire(const struct locator *locator);
diropargs3 nfshandle_wire_name(const struct locator *dir, const char *name);

/* The locator of a file handle, its type not known yet. -EIO if it is no handle. */
int nfshandle_locator(const char *bytes, size_t length, struct locator *ret_locator) MUST_CHECK;

/* A hash for tables in memory, of a handle or a locator: its bytes. */
uint32_t nfshandle_hash(const void *bytes, size_t length);

void nfshandle_set_type(struct locator *locator, mode_t mode);
mode_t nfshandle_type(const struct locator *locator); /* S_IFMT bits */
