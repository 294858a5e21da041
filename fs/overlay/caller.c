/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who a request is from. The groups stand in /proc, and to read them there costs more
 * than the rest of a create. They would matter for permissions alone (the kernel has
 * checked those, and stripped the sgid bit where the caller is not of the group), so
 * the threads that serve keep their file capabilities while they are somebody else.
 */
#include "fs/overlay/overlay_internal.h"

#include <linux/securebits.h>
#include <sys/prctl.h>

static_assert(sizeof(gid_t) == sizeof(uint32_t), "groups are handed on as they are");

static _Thread_local bool keeps_capabilities;

void caller_init_thread(void)
{
	int bits = prctl(PR_GET_SECUREBITS);

	keeps_capabilities =
		bits >= 0 && prctl(PR_SET_SECUREBITS, bits | SECBIT_NO_SETUID_FIXUP) == 0;
}

void caller_get(fuse_req_t req, struct caller *ret_caller)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	int count = 0;

	if (ctx->uid != 0 && !keeps_capabilities)
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

bool caller_is_in_group(fuse_req_t req, uint32_t group)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	gid_t groups[CALLER_GROUPS_MAX];
	int count;

	if (ctx->uid == 0 || ctx->gid == group)
		return true;
	count = fuse_req_getgroups(req, CALLER_GROUPS_MAX, groups); /* < 0: as above */
	for (int i = 0; i < count && i < CALLER_GROUPS_MAX; i++) {
		if (groups[i] == group)
			return true;
	}
	return false;
}
