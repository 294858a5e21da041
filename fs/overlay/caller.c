/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who a request is from. The groups are asked of /proc, which costs more than the
 * rest of a create; root needs none, since no check is ever made against it.
 */
#include "fs/overlay/overlay_internal.h"

static_assert(sizeof(gid_t) == sizeof(uint32_t), "groups are handed on as they are");

void caller_get(fuse_req_t req, struct caller *ret_caller)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	int count = 0;

	if (ctx->uid != 0)
		count = fuse_req_getgroups(req, CALLER_GROUPS_MAX, ret_caller->groups);
	if (count < 0)
		count = 0; /* the process is gone, or in another pid namespace */
	if (count > CALLER_GROUPS_MAX)
		count = CALLER_GROUPS_MAX;
	ret_caller->cred = (struct store_cred){
		.uid = ctx->uid,
		.gid = ctx->gid,
		.umask = ctx->umask,
		.group_count = (unsigned)count,
		.groups = ret_caller->groups,
	};
}
