/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/store/nfs_reply.h"

#include <string.h>

#include "fs/store/nfs_error.h"
#include "fs/store/nfs_lib.h"
#include "fs/store/nfs_list.h"
#include "util/clock.h"
#include "util/log.h"

enum { HALVE_MS_MIN = 200 }; /* one burst of "later" halves once */

/* ---- what the server bears ------------------------------------------------ */

static void adapt(struct nfsconn *conn, bool is_jukebox, uint64_t now_ms)
{
	if (is_jukebox) {
		if (now_ms < conn->halved_ms + HALVE_MS_MIN)
			return;
		conn->halved_ms = now_ms;
		conn->answers_since_growth = 0;
		conn->calls_max = conn->calls_max / 2 > NFSCONN_CALLS_MIN ? conn->calls_max / 2
									  : NFSCONN_CALLS_MIN;
		log_debug("the NFS server is busy, at most %u calls under way", conn->calls_max);
	} else if (conn->calls_max < NFSCONN_CALLS_MAX &&
		   ++conn->answers_since_growth >= conn->calls_max) {
		conn->answers_since_growth = 0;
		conn->calls_max++;
	}
}

static void note_verifier(struct nfsconn *conn, const char *verifier)
{
	memcpy(conn->verifier, verifier, sizeof(conn->verifier));
	conn->has_verifier = true;
	nfsloss_seen(conn->loss, conn->connected_ms, verifier);
}

/* ---- callbacks of libnfs --------------------------------------------------- */

static void take_reply(struct nfsconn *conn, struct nfscall *call, const void *reply)
{
	/* Every result of NFSv3 begins with its status. */
	call->outcome = NFSCALL_ANSWERED;
	call->status = (int)*(const nfsstat3 *)reply;
	call->error = 0;
	if (call->status == NFS3_OK) {
		if (call->procedure == NFS3_WRITE)
			note_verifier(conn, ((const WRITE3res *)reply)->WRITE3res_u.resok.verf);
		else if (call->procedure == NFS3_COMMIT)
			note_verifier(conn, ((const COMMIT3res *)reply)->COMMIT3res_u.resok.verf);
		if (call->take)
			call->error = call->take(call->result, reply);
	}
	conn->heard_ms = clock_ms();
	adapt(conn, call->status == NFS3ERR_JUKEBOX, conn->heard_ms);
}

/* Called by rpc_service(), and for each call under way when a context ends. */
static void replied(struct rpc_context *rpc UNUSED, int status, void *data, void *private)
{
	struct nfscall *call = private;
	struct nfsconn *conn = call->conn;
	int r;

	nfslist_remove(&conn->under_way, call);
	assert(conn->bytes >= call->bytes);
	conn->bytes -= call->bytes;

	if (status == RPC_STATUS_SUCCESS && data) {
		take_reply(conn, call, data);
	} else if (status == RPC_STATUS_ERROR && (r = nfserror_of_refusal(data)) < 0) {
		call->outcome = NFSCALL_REFUSED;
		call->error = r;
	} else if (status == RPC_STATUS_ERROR && nfserror_is_garbage(data)) {
		call->outcome = NFSCALL_GARBAGE;
	} else {
		call->outcome = NFSCALL_LOST;
	}
	nfslist_append(&conn->answered, call);
}

static int send_call(struct rpc_context *rpc, struct nfscall *call)
{
	rpc_set_next_xid(rpc, call->xid);
	switch (call->procedure) {
	case NFS3_GETATTR:
		return rpc_nfs3_getattr_async(rpc, replied, call->args, call);
	case NFS3_SETATTR:
		return rpc_nfs3_setattr_async(rpc, replied, call->args, call);
	case NFS3_LOOKUP:
		return rpc_nfs3_lookup_async(rpc, replied, call->args, call);
	case NFS3_READLINK:
		return rpc_nfs3_readlink_async(rpc, replied, call->args, call);
	case NFS3_READ:
		return rpc_nfs3_read_async(rpc, replied, call->args, call);
	case NFS3_WRITE:
		return rpc_nfs3_write_async(rpc, replied, call->args, call);
	case NFS3_CREATE:
		return rpc_nfs3_create_async(rpc, replied, call->args, call);
	case NFS3_MKDIR:
		return rpc_nfs3_mkdir_async(rpc, replied, call->args, call);
	case NFS3_SYMLINK:
		return rpc_nfs3_symlink_async(rpc, replied, call->args, call);
	case NFS3_MKNOD:
		return rpc_nfs3_mknod_async(rpc, replied, call->args, call);
	case NFS3_REMOVE:
		return rpc_nfs3_remove_async(rpc, replied, call->args, call);
	case NFS3_RMDIR:
		return rpc_nfs3_rmdir_async(rpc, replied, call->args, call);
	case NFS3_RENAME:
		return rpc_nfs3_rename_async(rpc, replied, call->args, call);
	case NFS3_LINK:
		return rpc_nfs3_link_async(rpc, replied, call->args, call);
	case NFS3_READDIRPLUS:
		return rpc_nfs3_readdirplus_async(rpc, replied, call->args, call);
	case NFS3_FSSTAT:
		return rpc_nfs3_fsstat_async(rpc, replied, call->args, call);
	case NFS3_FSINFO:
		return rpc_nfs3_fsinfo_async(rpc, replied, call->args, call);
	case NFS3_COMMIT:
		return rpc_nfs3_commit_async(rpc, replied, call->args, call);
	default:
		assert(false);
		return -1;
	}
}

int nfsreply_issue(struct nfsconn *conn, struct nfscall *call)
{
	int r = send_call(conn->rpc, call);

	if (r < 0)
		return r;
	nfslist_append(&conn->under_way, call);
	conn->bytes += call->bytes;
	return 0;
}
