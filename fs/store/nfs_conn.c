/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread sleeps in poll() on the connection and on two eventfds. Each turn sends
 * what may be sent, lets libnfs read and write, and hands back what was answered.
 *
 * libnfs 4 resumes a broken connection in the middle of a reply and then returns wrong
 * data. So whatever goes wrong ends the connection for good: the context is destroyed,
 * which calls back everything under way as cancelled, and a new one is made. Nor are
 * libnfs's own timeouts used: they corrupt its queues. A request is handed to libnfs
 * only when the one before has left for the kernel; so at most one is cut in two, and
 * what waits in our queue was certainly not sent.
 */
#include "fs/store/nfs_conn.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fs/store/nfs_connect.h"
#include "fs/store/nfs_lib.h"
#include "fs/store/nfs_list.h"
#include "fs/store/nfs_reply.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/log.h"

enum {
	STABLE_MS = 2000, /* a connection that lived so long is followed at once */
	CHECK_MS_MAX = 1000,
};

static void hand_back_locked(struct nfscall *call, enum nfscall_outcome outcome)
{
	call->outcome = outcome;
	call->state = NFSCALL_DONE;
	pthread_cond_signal(&call->done_cond);
}

/* The calls are gone from here once their callers were woken. */
static void hand_back_answered(struct nfsconn *conn)
{
	struct nfscall *call;

	if (conn->answered.count == 0)
		return;
	pthread_mutex_lock(&conn->lock);
	while ((call = conn->answered.first)) {
		nfslist_remove(&conn->answered, call);
		hand_back_locked(call, call->outcome);
	}
	pthread_mutex_unlock(&conn->lock);
}

/* ---- losing and making the connection --------------------------------------- */

/* Has what is under way been with a silent server for too long? */
static bool is_overdue(const struct nfsconn *conn, uint64_t now_ms)
{
	/* A hard mount waits longer for a server that keeps the connection: whatever a reset
	 * leaves behind may still land, after what is sent then. */
	uint64_t patience = atomic_load(conn->reports_unknown) ? 1 : NFSCONN_PATIENCE;

	for (const struct nfscall *call = conn->under_way.first; call; call = call->next) {
		uint64_t since_ms = call->sent_ms > conn->heard_ms ? call->sent_ms : conn->heard_ms;
		uint64_t factor = call->procedure == NFS3_COMMIT ? NFSCONN_PATIENCE : patience;

		if (now_ms >= since_ms + factor * conn->timeout_ms ||
		    now_ms >= call->sent_ms + 2 * factor * NFSCONN_PATIENCE * conn->timeout_ms)
			return true;
	}
	return false;
}

/* Gives back what is queued, so that it may try another connection. */
static void flush_queue(struct nfsconn *conn)
{
	struct nfscall *call;

	pthread_mutex_lock(&conn->lock);
	while ((call = conn->queue.first)) {
		nfslist_remove(&conn->queue, call);
		call->error = 0;
		hand_back_locked(call, NFSCALL_UNSENT);
	}
	pthread_mutex_unlock(&conn->lock);
}

static void lose(struct nfsconn *conn, const char *why)
{
	const struct nfscall *call;
	uint64_t now_ms;
	unsigned changes = 0;

	assert(conn->rpc);
	atomic_store(&conn->is_up, false);
	for (call = conn->under_way.first; call; call = call->next)
		changes += nfscall_is_change(call->procedure);
	for (call = conn->answered.first; call; call = call->next)
		changes += call->outcome == NFSCALL_LOST && nfscall_is_change(call->procedure);
	/* Servers close what is idle; that is no news. */
	conn->is_quiet = atomic_load(&conn->is_stopping) ||
			 conn->under_way.count + conn->answered.count == 0;
	if (!conn->is_quiet)
		log_warning(
			"lost NFS connection %u to '%s': %s; %u changing calls were under way, reconnecting",
			conn->index, conn->url->host, why, changes);

	rpc_destroy_context(conn->rpc); /* resets it, and calls back what is under way */
	conn->rpc = NULL;
	assert(conn->under_way.count == 0 && conn->bytes == 0);

	now_ms = clock_ms();
	if (changes > 0)
		nfsloss_note(conn->loss, conn->index, now_ms,
			     conn->has_verifier ? conn->verifier : NULL);
	conn->has_verifier = false;
	if (now_ms >= conn->connected_ms + STABLE_MS)
		conn->backoff_ms = 0;
	conn->retry_ms = now_ms + conn->backoff_ms;
	hand_back_answered(conn); /* only now, so that its caller finds the loss noted */
	flush_queue(conn);
}

static void reconnect(struct nfsconn *conn)
{
	struct nfsconnect_error error = { 0 };
	uint64_t begin_ms = clock_ms();
	unsigned bound_ms = conn->timeout_ms < NFSCONN_CONNECT_MS_MAX ? conn->timeout_ms
								      : NFSCONN_CONNECT_MS_MAX;
	int r;

	r = nfsconnect_nfs(conn->url, begin_ms + bound_ms, conn->stop_fd, &conn->rpc, &error);
	if (r < 0) {
		conn->is_quiet = false;
		if (conn->failure_count++ == 0 && r != -ECANCELED)
			(void)log_warning_errno(r, "%s, retrying", error.text);
		conn->backoff_ms =
			conn->backoff_ms == 0 ? NFSCONN_BACKOFF_MS_MIN : conn->backoff_ms * 2;
		if (conn->backoff_ms > NFSCONN_BACKOFF_MS_MAX)
			conn->backoff_ms = NFSCONN_BACKOFF_MS_MAX;
		conn->retry_ms = clock_ms() + conn->backoff_ms;
		return;
	}
	/* The next loss comes at once only if this one lives. */
	conn->backoff_ms = conn->backoff_ms == 0 ? NFSCONN_BACKOFF_MS_MIN : conn->backoff_ms;
	conn->connected_ms = begin_ms;
	conn->heard_ms = clock_ms();
	if (!conn->is_quiet)
		log_info("NFS connection %u to '%s' is back after %u failed attempts", conn->index,
			 conn->url->host, conn->failure_count);
	conn->failure_count = 0;
	atomic_store(&conn->is_up, true);
}

/* ---- the thread --------------------------------------------------------------- */

static bool may_send(const struct nfsconn *conn)
{
	return conn->under_way.count < conn->calls_max && !(rpc_which_events(conn->rpc) & POLLOUT);
}

/* The next call to send, or NULL: then, if only for want of one, the thread is to be
 * woken when one comes. */
static struct nfscall *next_call(struct nfsconn *conn)
{
	bool may = may_send(conn);
	struct nfscall *call;

	pthread_mutex_lock(&conn->lock);
	call = may ? conn->queue.first : NULL;
	if (call && conn->bytes > 0 && conn->bytes + call->bytes > NFSCONN_BYTES_MAX) {
		call = NULL;
		may = false;
	}
	if (call) {
		nfslist_remove(&conn->queue, call);
		call->state = NFSCALL_SENT;
	}
	conn->is_sleeping = may && !call;
	pthread_mutex_unlock(&conn->lock);
	return call;
}

/* Sends what may be sent; false when that broke the connection. */
static bool send_calls(struct nfsconn *conn)
{
	struct nfscall *call;

	while ((call = next_call(conn))) {
		call->sent_ms = clock_ms();
		if (nfsreply_issue(conn, call) < 0) {
			/* Encoding failed: libnfs's buffer takes only so long a symlink. */
			call->error = call->procedure == NFS3_SYMLINK ? -ENAMETOOLONG : -ENOMEM;
			call->outcome = NFSCALL_UNSENT;
			nfslist_append(&conn->answered, call);
			hand_back_answered(conn);
			continue;
		}
		if (rpc_service(conn->rpc, POLLOUT) < 0)
			return false;
	}
	return true;
}

static void drain(int fd)
{
	uint64_t count;

	(void)!read(fd, &count, sizeof(count)); /* only the wake-up matters */
}

/* Until a connection may be tried again. */
static void wait_for_retry(struct nfsconn *conn)
{
	uint64_t now_ms = clock_ms();
	struct pollfd fd = { .fd = conn->stop_fd, .events = POLLIN };

	if (now_ms < conn->retry_ms)
		(void)poll(&fd, 1, (int)(conn->retry_ms - now_ms)); /* the loop looks again */
}

static void turn(struct nfsconn *conn)
{
	struct pollfd fds[3] = { [1] = { .fd = conn->wake_fd, .events = POLLIN },
				 [2] = { .fd = conn->stop_fd, .events = POLLIN } };
	int check_ms =
		conn->timeout_ms / 4 < CHECK_MS_MAX ? (int)conn->timeout_ms / 4 : CHECK_MS_MAX;
	int events;

	if (!send_calls(conn)) {
		lose(conn, rpc_get_error(conn->rpc) ? rpc_get_error(conn->rpc) : "it was closed");
		return;
	}
	fds[0].fd = rpc_get_fd(conn->rpc);
	fds[0].events = (short)rpc_which_events(conn->rpc);
	if (poll(fds, 3, conn->under_way.count > 0 ? check_ms : -1) < 0 && errno != EINTR) {
		lose(conn, "poll() failed");
		return;
	}
	if (fds[1].revents)
		drain(conn->wake_fd);
	events = fds[0].revents;
	if (events & POLLIN)
		events &= POLLIN | POLLOUT; /* what has arrived counts, also before an end */
	if (events != 0 && rpc_service(conn->rpc, events) < 0) {
		const char *why = rpc_get_error(conn->rpc);

		lose(conn, why && *why ? why : "the server closed it");
		return;
	}
	for (const struct nfscall *call = conn->answered.first; call; call = call->next)
		if (call->outcome == NFSCALL_GARBAGE) {
			lose(conn, "the server sent what is no answer");
			return;
		}
	hand_back_answered(conn);
	if (is_overdue(conn, clock_ms()))
		lose(conn, "no answer in time");
}

static void *run(void *private)
{
	struct nfsconn *conn = private;

	(void)pthread_setname_np(pthread_self(), "store-nfs"); /* only for the eye */
	while (!atomic_load(&conn->is_stopping)) {
		if (conn->rpc) {
			turn(conn);
			continue;
		}
		wait_for_retry(conn);
		if (!atomic_load(&conn->is_stopping))
			reconnect(conn);
	}
	if (conn->rpc)
		lose(conn, "closed");
	return NULL;
}

/* ---- for callers ------------------------------------------------------------ */

void nfsconn_queue(struct nfsconn *conn, struct nfscall *call)
{
	uint64_t one = 1;
	bool is_sleeping;

	pthread_mutex_lock(&conn->lock);
	assert(call->state == NFSCALL_IDLE);
	call->state = NFSCALL_QUEUED;
	nfslist_append(&conn->queue, call);
	is_sleeping = conn->is_sleeping;
	conn->is_sleeping = false;
	pthread_mutex_unlock(&conn->lock);

	if (is_sleeping)
		(void)!write(conn->wake_fd, &one, sizeof(one)); /* fails only when it is set */
}

bool nfsconn_unqueue_locked(struct nfsconn *conn, struct nfscall *call)
{
	if (call->state != NFSCALL_QUEUED)
		return false;
	nfslist_remove(&conn->queue, call);
	return true;
}

int nfsconn_init(struct nfsconn *conn, const struct nfsurl *url, struct nfsloss *loss,
		 const atomic_bool *reports_unknown, unsigned index, unsigned timeout_ms,
		 struct rpc_context *rpc)
{
	int r;

	assert(timeout_ms > 0);
	*conn = (struct nfsconn){
		.url = url,
		.loss = loss,
		.reports_unknown = reports_unknown,
		.index = index,
		.timeout_ms = timeout_ms,
		.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
		.stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
		.rpc = rpc,
		.calls_max = NFSCONN_CALLS_MAX,
		.connected_ms = clock_ms(),
		.heard_ms = clock_ms(),
		.is_up = rpc != NULL,
	};
	(void)pthread_mutex_init(&conn->lock, NULL); /* cannot fail with default attributes */
	r = conn->wake_fd < 0 || conn->stop_fd < 0
		    ? -EMFILE
		    : -pthread_create(&conn->thread, NULL, run, conn);
	if (r < 0) {
		nfsconn_done(conn);
		return r;
	}
	conn->has_thread = true;
	return 0;
}

void nfsconn_done(struct nfsconn *conn)
{
	uint64_t one = 1;

	if (!conn->url)
		return;
	assert(conn->queue.count == 0);
	atomic_store(&conn->is_stopping, true);
	if (conn->has_thread) {
		(void)!write(conn->stop_fd, &one, sizeof(one)); /* an eventfd takes it */
		(void)pthread_join(conn->thread, NULL);		/* cannot fail: ours and joinable */
	} else if (conn->rpc) {
		rpc_destroy_context(conn->rpc);
	}
	conn->wake_fd = fd_close(conn->wake_fd);
	conn->stop_fd = fd_close(conn->stop_fd);
	(void)pthread_mutex_destroy(&conn->lock);
	*conn = (struct nfsconn){ 0 };
}
