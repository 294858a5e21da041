/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * A proxy between an NFS client and its server, in threads of the test itself, that does
 * on order what networks and busy servers do by chance. It knows where RPC messages begin
 * and end, and which call a reply belongs to.
 *
 * Thread-safe. The orders hold for all connections together.
 */

#include <stdbool.h>
#include <stdint.h>

struct rpc_proxy;

/* Listens on a free port of 127.0.0.1 and passes on to @server_port there. NULL: failed. */
struct rpc_proxy *rpc_proxy_new(uint16_t server_port);
struct rpc_proxy *rpc_proxy_free(struct rpc_proxy *proxy);
uint16_t rpc_proxy_port(const struct rpc_proxy *proxy);

/* The next reply to NFS procedure @procedure is swallowed (the call has been carried out)
 * and its connection reset. */
void rpc_proxy_swallow(struct rpc_proxy *proxy, unsigned procedure);
/* Was that order carried out? */
bool rpc_proxy_has_swallowed(struct rpc_proxy *proxy);

/* From now on each connection is reset after about @bytes of replies, in the middle of
 * one. 0: no more. */
void rpc_proxy_cut_after(struct rpc_proxy *proxy, uint64_t bytes);
unsigned rpc_proxy_cut_count(struct rpc_proxy *proxy);

/* The next @count calls are answered NFS3ERR_JUKEBOX and do not reach the server. */
void rpc_proxy_jukebox(struct rpc_proxy *proxy, unsigned count);
unsigned rpc_proxy_jukebox_left(struct rpc_proxy *proxy);
