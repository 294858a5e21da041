/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* One call through libnfs, and its reply. For the thread of the connection only. */

#include "fs/store/nfs_conn.h"

/* Hands @call to libnfs and puts it among those under way. It moves on to those answered,
 * with its outcome, when rpc_service() meets its reply or the context ends. Negative: it
 * could not be encoded, and nothing was changed. */
int nfsreply_issue(struct nfsconn *conn, struct nfscall *call) MUST_CHECK;
