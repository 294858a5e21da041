/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * One connection to the server and the thread that owns it. Callers put calls into its
 * queue; the thread sends them, as many at once as the server bears, and hands each
 * back when it is answered or lost.
 *
 * Locking: `lock` guards the queue and the state of each call in it; it is a leaf and
 * never held across a call of libnfs. Everything of libnfs belongs to the thread.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "fs/store/nfs_call.h"
#include "fs/store/nfs_loss.h"
#include "fs/store/nfs_url.h"

enum {
	NFSCONN_CALLS_MAX = 64,		      /* under way; more wait in the queue */
	NFSCONN_CALLS_MIN = 2,		      /* however often the server says that it is busy */
	NFSCONN_BYTES_MAX = 16 * 1024 * 1024, /* of payload under way: libnfs holds a copy */
	NFSCONN_BACKOFF_MS_MIN = 100,
	NFSCONN_BACKOFF_MS_MAX = 5000,
	NFSCONN_CONNECT_MS_MAX = 10 * 1000,
	NFSCONN_PATIENCE = 4, /* timeouts that a slow but living server gets */
};

struct rpc_context;

struct nfsconn_list {
	struct nfscall *first, *last;
	unsigned count;
};

struct nfsconn {
	const struct nfsurl *url;	    /* borrowed */
	struct nfsloss *loss;		    /* borrowed */
	const atomic_bool *reports_unknown; /* borrowed */
	unsigned index;
	unsigned timeout_ms;

	pthread_mutex_t lock;
	struct nfsconn_list queue; /* guarded by lock */
	bool is_sleeping;	   /* guarded by lock: a new call must wake the thread */
	atomic_bool is_up;
	atomic_bool is_stopping;
	int wake_fd; /* eventfd: new work */
	int stop_fd; /* eventfd: end */
	pthread_t thread;
	bool has_thread;

	/* The thread's own. */
	struct rpc_context *rpc;
	struct nfsconn_list under_way; /* in the order in which they were sent */
	struct nfsconn_list answered;  /* to be handed back together */
	size_t bytes;
	unsigned calls_max, answers_since_growth;
	uint64_t halved_ms, heard_ms, connected_ms, retry_ms;
	unsigned backoff_ms, failure_count;
	bool is_quiet; /* it was lost without need to tell */
	bool has_verifier;
	char verifier[NFSLOSS_VERIFIER_BYTES];
};

/* Prepares @conn, and starts its thread with @rpc (taken also on failure; NULL: the
 * thread connects by itself). 0 or negative errno. */
int nfsconn_init(struct nfsconn *conn, const struct nfsurl *url, struct nfsloss *loss,
		 const atomic_bool *reports_unknown, unsigned index, unsigned timeout_ms,
		 struct rpc_context *rpc) MUST_CHECK;

/* Ends the thread; no call is queued or under way. Allowed on a zeroed @conn. */
void nfsconn_done(struct nfsconn *conn);

/* Queues @call (borrowed until it is done). Thread-safe. */
void nfsconn_queue(struct nfsconn *conn, struct nfscall *call);

/* Takes @call back if it was not sent yet; false if it was. */
bool nfsconn_unqueue_locked(struct nfsconn *conn, struct nfscall *call);
