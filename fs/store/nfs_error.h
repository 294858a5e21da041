/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* The one place where the server's and libnfs's codes become errno. */

#include <stdbool.h>

#include "fs/store/nfs_lib.h"

/* What an NFS reply means to the caller of a store: 0 or negative errno. */
int nfserror_of_status(nfsstat3 status);

/* What the MOUNT service said. */
int nfserror_of_mount(mountstat3 status);

/* Did the server itself refuse the call at the RPC level, so that it was not carried
 * out? @text is libnfs's message of an RPC_STATUS_ERROR, or NULL. Returns 0 if not:
 * the outcome is unknown, the connection is to be given up. Else negative errno. */
int nfserror_of_refusal(const char *text);

/* Is it the server's answer, but one that libnfs cannot read? */
bool nfserror_is_garbage(const char *text);
