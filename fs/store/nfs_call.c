/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/store/nfs_call.h"

#include <errno.h>

#include "fs/store/nfs_conn.h"
#include "fs/store/nfs_error.h"
#include "fs/store/nfs_lib.h"
#include "fs/store/nfs_store.h"
#include "util/clock.h"

enum {
	RECHECK_MS = 1000,   /* how often a call that is not sent looks for a better way */
	JUKEBOX_MS_MIN = 20, /* first pause when the server says "later" */
	JUKEBOX_MS_MAX = 2000,
	GARBAGE_MAX = 5, /* unreadable answers to one call */
};

bool nfscall_is_change(int procedure)
{
	switch (procedure) {
	case NFS3_SETATTR:
	case NFS3_WRITE:
	case NFS3_CREATE:
	case NFS3_MKDIR:
	case NFS3_SYMLINK:
	case NFS3_MKNOD:
	case NFS3_REMOVE:
	case NFS3_RMDIR:
	case NFS3_RENAME:
	case NFS3_LINK:
		return true;
	default:
		return false;
	}
}

/* The next connection in turn, leaving out those that are down if one is up. */
static struct nfsconn *choose_conn(struct nfsstore *store)
{
	unsigned turn = atomic_fetch_add(&store->next_conn, 1);

	for (unsigned i = 0; i < store->conn_count; i++) {
		struct nfsconn *conn = &store->conns[(turn + i) % store->conn_count];

		if (atomic_load(&conn->is_up))
			return conn;
	}
	return &store->conns[turn % store->conn_count];
}

static bool is_other_up(struct nfsstore *store, const struct nfsconn *conn)
{
	if (atomic_load(&conn->is_up))
		return false;
	for (unsigned i = 0; i < store->conn_count; i++)
		if (&store->conns[i] != conn && atomic_load(&store->conns[i].is_up))
			return true;
	return false;
}

static bool is_bounded(struct nfsstore *store)
{
	return atomic_load(&store->reports_unknown);
}

static bool is_too_late(struct nfsstore *store, const struct nfscall *call)
{
	return is_bounded(store) && clock_ms() >= call->start_ms + store->timeout_ms;
}

static void enqueue(struct nfsstore *store, struct nfscall *call)
{
	call->conn = choose_conn(store);
	nfsconn_queue(call->conn, call);
}

void nfscall_start(struct nfsstore *store, struct nfscall *call)
{
	pthread_condattr_t attributes;

	assert(call->state == NFSCALL_IDLE);

	(void)pthread_condattr_init(&attributes); /* these cannot fail in glibc */
	(void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&call->done_cond, &attributes);
	(void)pthread_condattr_destroy(&attributes);
	call->was_lost = false;
	call->jukebox_count = 0;
	call->garbage_count = 0;
	call->start_ms = clock_ms();
	call->xid = atomic_fetch_add(&store->xid, 1);
	enqueue(store, call);
}

/* Waits until the connection is through with the call, or it is better taken back. */
static enum nfscall_outcome await(struct nfsstore *store, struct nfscall *call)
{
	struct nfsconn *conn = call->conn;
	enum nfscall_outcome outcome;

	pthread_mutex_lock(&conn->lock);
	while (call->state != NFSCALL_DONE) {
		struct timespec until;

		if (call->state == NFSCALL_SENT) {
			pthread_cond_wait(&call->done_cond, &conn->lock);
			continue;
		}
		until = clock_timespec(clock_ms() + RECHECK_MS);
		(void)pthread_cond_timedwait(&call->done_cond, &conn->lock,
					     &until); /* looked at again */
		if (call->state == NFSCALL_QUEUED &&
		    (is_too_late(store, call) || is_other_up(store, conn)) &&
		    nfsconn_unqueue_locked(conn, call)) {
			call->outcome = NFSCALL_UNSENT;
			call->error = 0;
			call->state = NFSCALL_DONE;
		}
	}
	outcome = call->outcome;
	call->state = NFSCALL_IDLE;
	pthread_mutex_unlock(&conn->lock);
	return outcome;
}

/* The server asked us to come again later. */
static void pause_jukebox(struct nfscall *call)
{
	uint64_t ms = (uint64_t)JUKEBOX_MS_MIN
		      << (call->jukebox_count < 8 ? call->jukebox_count : 8);
	struct timespec until =
		clock_timespec(clock_ms() + (ms < JUKEBOX_MS_MAX ? ms : JUKEBOX_MS_MAX));

	call->jukebox_count++;
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
		;
}

/* A call whose outcome nobody knows, or that was not sent: true if it goes on. */
static bool goes_on(struct nfsstore *store, struct nfscall *call, bool was_sent, int *ret_r)
{
	if (was_sent && nfscall_is_change(call->procedure))
		call->was_lost = true;
	if (call->was_lost && is_bounded(store)) {
		*ret_r = STORE_E_UNKNOWN;
		return false;
	}
	if (is_too_late(store, call)) {
		*ret_r = -EHOSTDOWN;
		return false;
	}
	return true;
}

/* True if the call is to be sent again; else *@ret_r is what it came to. */
static bool is_repeated(struct nfsstore *store, struct nfscall *call, enum nfscall_outcome outcome,
			int *ret_r)
{
	switch (outcome) {
	case NFSCALL_ANSWERED:
		if (call->status != NFS3ERR_JUKEBOX) {
			*ret_r = call->status == NFS3_OK ? call->error
							 : nfserror_of_status(call->status);
			return false;
		}
		if (is_bounded(store) &&
		    clock_ms() >= call->start_ms + (uint64_t)NFSCONN_PATIENCE * store->timeout_ms) {
			*ret_r = -EAGAIN;
			return false;
		}
		pause_jukebox(call);
		/* With the old id the server might answer from its memory. */
		call->xid = atomic_fetch_add(&store->xid, 1);
		return true;
	case NFSCALL_REFUSED:
		*ret_r = call->error;
		return false;
	case NFSCALL_GARBAGE:
		if (++call->garbage_count >= GARBAGE_MAX) {
			*ret_r = -EIO;
			return false;
		}
		return goes_on(store, call, /* was_sent= */ true, ret_r);
	case NFSCALL_LOST:
		return goes_on(store, call, /* was_sent= */ true, ret_r);
	case NFSCALL_UNSENT:
		if (call->error == 0)
			return goes_on(store, call, /* was_sent= */ false, ret_r);
		*ret_r = call->error;
		return false;
	}
	assert(false);
	return false;
}

int nfscall_finish(struct nfsstore *store, struct nfscall *call)
{
	int r = 0;

	while (is_repeated(store, call, await(store, call), &r))
		enqueue(store, call);
	(void)pthread_cond_destroy(&call->done_cond);
	return r;
}

int nfscall_run(struct nfsstore *store, struct nfscall *call)
{
	nfscall_start(store, call);
	return nfscall_finish(store, call);
}
