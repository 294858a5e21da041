/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * From an address to a working RPC connection, within a bounded time. libnfs keeps
 * unguarded statics in its connect path, so all of it runs under one lock of ours
 * (a leaf, never held while waiting).
 */

#include <stdint.h>

#include "fs/store/nfs_url.h"
#include "util/attr.h"
#include "util/locator.h"

struct rpc_context;

/* What went wrong, for the log: the address, the step, and libnfs's text. */
struct nfsconnect_error {
	char text[512];
};

/* Connects to the NFS service (AUTH_SYS as uid 0, gid 0, no further groups; TCP_NODELAY;
 * no reconnecting by libnfs) and makes sure that it answers. Gives up at @deadline_ms
 * (clock_ms()), or when @stop_fd becomes readable (-1: never). The caller owns
 * *@ret_rpc and ends it with rpc_destroy_context(). Returns 0 or negative errno:
 * -EHOSTUNREACH (the name has no address), -ECONNREFUSED, -ETIMEDOUT, -ECANCELED, ... */
int nfsconnect_nfs(const struct nfsurl *url, uint64_t deadline_ms, int stop_fd,
		   struct rpc_context **ret_rpc, struct nfsconnect_error *ret_error) MUST_CHECK;

/* Asks the MOUNT service for the root's locator. As above, and -ENOENT (no such
 * export), -EACCES (we may not), -EPROTONOSUPPORT (not AUTH_SYS). */
int nfsconnect_mount(const struct nfsurl *url, uint64_t deadline_ms, struct locator *ret_root,
		     struct nfsconnect_error *ret_error) MUST_CHECK;
