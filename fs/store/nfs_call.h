/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * One NFSv3 call as its caller sees it: blocking, on top of connections that work
 * asynchronously. It lives on the caller's stack. Many callers at once, or one caller
 * that starts several before it finishes the first, fill the connections.
 *
 * What a lost connection means is decided here:
 * - a call that changes nothing is sent again;
 * - a changing call of a store that reports unknowns gives STORE_E_UNKNOWN;
 * - a changing call of any other store is sent again, with the same transaction id so
 *   that the server may recognise it; was_lost then tells that an answer like EEXIST
 *   may be about our own first attempt.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/attr.h"

struct nfsstore;
struct nfsconn;

enum nfscall_state { NFSCALL_IDLE, NFSCALL_QUEUED, NFSCALL_SENT, NFSCALL_DONE };

enum nfscall_outcome {
	NFSCALL_ANSWERED, /* status is set, and the reply was taken */
	NFSCALL_REFUSED,  /* answered, but not carried out: error is set */
	NFSCALL_GARBAGE,  /* answered, unreadable */
	NFSCALL_LOST,	  /* sent, and no answer will come */
	NFSCALL_UNSENT,	  /* never sent */
};

struct nfscall {
	/* Set by the caller. */
	int procedure; /* NFS3_* */
	void *args;    /* NFS3_* args; borrowed until the call is finished */
	/* Copies what is wanted of the reply (as libnfs decoded it, status NFS3_OK) into
	 * @result, in the connection's thread. May be NULL. 0 or negative errno. */
	int (*take)(void *result, const void *reply);
	void *result;
	size_t bytes; /* of payload, either way: bounds what is under way */

	/* Set when finished. */
	int status;    /* nfsstat3 of the last answer */
	bool was_lost; /* an attempt before the last may have been carried out */

	/* Private to nfs_call.c and nfs_conn.c. */
	enum nfscall_state state;     /* guarded by the connection's lock */
	enum nfscall_outcome outcome; /* guarded by the connection's lock */
	int error;
	uint32_t xid;
	uint64_t start_ms, sent_ms;
	unsigned jukebox_count, garbage_count;
	struct nfsconn *conn;
	pthread_cond_t done_cond;
	struct nfscall *previous, *next; /* in the connection's queue, or of those under way */
};

/* Does @procedure change something on the server? COMMIT does not: it may be repeated. */
bool nfscall_is_change(int procedure);

/* Starts @call. It must be finished. */
void nfscall_start(struct nfsstore *store, struct nfscall *call);

/* Waits for it. Returns 0, STORE_E_UNKNOWN, or negative errno: what the server said, or
 * -EHOSTDOWN when a store that reports unknowns could not reach it within its timeout
 * (nothing was changed then), or -EAGAIN when it said for too long that it is busy. */
int nfscall_finish(struct nfsstore *store, struct nfscall *call) MUST_CHECK;

/* Both. */
int nfscall_run(struct nfsstore *store, struct nfscall *call) MUST_CHECK;
