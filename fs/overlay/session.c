/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The receive loop. A thread reads one message, looks at its header to find out what kind of
 * request it is, passes the gate (or parks the message there and goes on with another buffer),
 * and has libfuse take it apart and call the operation. Which of the threads reads is up to
 * the crew.
 *
 * Releasers are threads that wait for parked messages to be let through, and serve
 * them as the others serve fresh ones.
 *
 * FUSE_INTERRUPT never reaches libfuse: a request that is parked is answered EINTR
 * here; one that is being served is soon done anyhow.
 */
#include "fs/overlay/overlay_internal.h"

#include <errno.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/clock.h"
#include "util/log.h"

/* What libfuse puts before the data of the largest WRITE, and tells the kernel so. */
enum { LOOK_OUT_NS_MAX = 50 * 1000 };
enum { MESSAGE_BYTES_MAX = OVERLAY_IO_BYTES_MAX + 4096 };

static _Thread_local struct request request;
static _Thread_local void *read_buffer;

const struct request *overlay_request(void)
{
	return &request;
}

void *overlay_read_buffer(void)
{
	if (!read_buffer && posix_memalign(&read_buffer, 4096, OVERLAY_IO_BYTES_MAX) != 0)
		read_buffer = NULL;
	return read_buffer;
}

/* ---- what a message is --------------------------------------------------- */

/* Of kernels that are newer than the headers. */
enum {
	OPCODE_STATX = 52,
	OPCODE_COPY_FILE_RANGE_64 = 53,
};

enum message_class { MESSAGE_FREE, MESSAGE_READS, MESSAGE_CHANGES };

static enum message_class classify(uint32_t opcode)
{
	switch (opcode) {
	case FUSE_LOOKUP:
	case FUSE_GETATTR:
	case FUSE_READLINK:
	case FUSE_READ:
	case FUSE_STATFS:
	case FUSE_GETXATTR:
	case FUSE_LISTXATTR:
	case FUSE_OPENDIR:
	case FUSE_READDIR:
	case FUSE_READDIRPLUS:
	case OPCODE_STATX:
		return MESSAGE_READS;
	case FUSE_INIT: /* from here on they touch no store, or are refused */
	case FUSE_DESTROY:
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_OPEN:
	case FUSE_FLUSH:
	case FUSE_RELEASE:
	case FUSE_RELEASEDIR:
	case FUSE_ACCESS:
	case FUSE_BMAP:
	case FUSE_IOCTL:
	case FUSE_LSEEK:
	case FUSE_POLL:
	case FUSE_GETLK:
	case FUSE_SETLK:
	case FUSE_SETLKW:
		return MESSAGE_FREE;
	default: /* fsync too, for what was written before; and what may come to be */
		return MESSAGE_CHANGES;
	}
}

/* The body of @header if it is at least @size long. */
static const void *body(const struct fuse_in_header *header, size_t size)
{
	return header->len >= sizeof(*header) + size ? header + 1 : NULL;
}

static void note_request(const struct fuse_in_header *header)
{
	const struct fuse_write_in *write;
	const struct fuse_setattr_in *setattr;
	const struct fuse_setxattr_in *setxattr;

	request = (struct request){ .opcode = header->opcode };
	switch (header->opcode) {
	case FUSE_WRITE:
		write = body(header, sizeof(*write));
		request.kills_privileges = write && write->write_flags & FUSE_WRITE_KILL_SUIDGID;
		break;
	case FUSE_SETATTR:
		setattr = body(header, sizeof(*setattr));
		/* With writeback the kernel adds its time of change. */
		request.sets_nothing =
			setattr && !(setattr->valid &
				     ~(uint32_t)(FATTR_FH | FATTR_LOCKOWNER | FATTR_CTIME));
		request.kills_privileges =
			setattr && (setattr->valid & FATTR_KILL_SUIDGID || request.sets_nothing);
		break;
	case FUSE_FALLOCATE:
	case FUSE_COPY_FILE_RANGE:
	case OPCODE_COPY_FILE_RANGE_64:
		/* No flag says it; the kernel has mostly seen to it before. */
		request.kills_privileges = header->uid != 0;
		break;
	case FUSE_SETXATTR:
		setxattr = body(header, sizeof(*setxattr));
		request.acl_kills_sgid =
			setxattr && setxattr->setxattr_flags & FUSE_SETXATTR_ACL_KILL_SGID;
		break;
	}
}

/* ---- serving ------------------------------------------------------------- */

static void serve_message(struct overlay *overlay, void *message, size_t size)
{
	struct fuse_buf buf = { .mem = message, .size = size };

	note_request(message);
	fuse_session_process_buf(overlay->session, &buf);
}

static struct parked *parked_new(const void *message, size_t size, uint64_t unique)
{
	struct parked *parked = malloc(sizeof(*parked) + size);

	if (!parked)
		return NULL;
	parked->unique = unique;
	parked->since_ms = clock_ms();
	parked->size = size;
	memcpy(parked->message, message, size);
	return parked;
}

/* Answers a request that libfuse has never seen. */
static void answer_error(struct overlay *overlay, uint64_t unique, int error)
{
	struct fuse_out_header out = { .len = sizeof(out), .error = -error, .unique = unique };

	/* It fails when the request or the connection is gone: then nobody waits for it. */
	if (write(overlay->device_fd, &out, sizeof(out)) < 0)
		log_debug("cannot answer request %llu", (unsigned long long)unique);
}

/* Returns 0 when the message was parked or answered, GATE_E_OPEN to enter again. */
static int park(struct overlay *overlay, const struct fuse_in_header *header, size_t size)
{
	struct parked *parked = parked_new(header, size, header->unique);
	int r;

	if (!parked) {
		answer_error(overlay, header->unique, ENOMEM);
		return 0;
	}
	r = gate_park(overlay->gate, parked);
	if (r == 0)
		return 0;
	free(parked);
	if (r == GATE_E_INTERRUPTED) {
		answer_error(overlay, header->unique, EINTR);
		return 0;
	}
	return r;
}

int overlay_park_forget(struct overlay *overlay, uint64_t id)
{
	struct parked *parked = parked_new(&id, sizeof(id), 0);
	int r;

	if (!parked)
		return -ENOMEM;
	r = gate_park(overlay->gate, parked);
	if (r != 0)
		free(parked);
	return r;
}

static void interrupt(struct overlay *overlay, const struct fuse_in_header *header)
{
	const struct fuse_interrupt_in *in = body(header, sizeof(*in));
	struct parked *parked = in ? gate_interrupt(overlay->gate, in->unique) : NULL;

	if (!parked)
		return;
	answer_error(overlay, parked->unique, EINTR);
	free(parked);
}

static void dispatch(struct overlay *overlay, void *message, size_t size)
{
	const struct fuse_in_header *header = message;
	enum gate_kind kind;

	if (header->opcode == FUSE_INTERRUPT) {
		interrupt(overlay, header);
		return;
	}
	atomic_fetch_add_explicit(&overlay->requests, 1, memory_order_relaxed);
	switch (classify(header->opcode)) {
	case MESSAGE_FREE:
		serve_message(overlay, message, size);
		return;
	case MESSAGE_READS:
		kind = GATE_READ;
		break;
	default:
		kind = GATE_CHANGE;
		atomic_fetch_add_explicit(&overlay->changes, 1, memory_order_relaxed);
	}

	while (gate_enter(overlay->gate, kind) == GATE_E_CLOSED) {
		if (park(overlay, header, size) != GATE_E_OPEN)
			return;
	}
	serve_message(overlay, message, size);
	gate_leave(overlay->gate, kind);
}

/* Reads a message: its size, 0 to try again, -ENODEV when the mount has ended. */
static ssize_t receive(struct overlay *overlay, void *message)
{
	ssize_t n = read(overlay->device_fd, message, MESSAGE_BYTES_MAX);

	/* ENOENT: the request was taken back while it was read. */
	if (n < 0 && (errno == EINTR || errno == EAGAIN || errno == ENOENT))
		return 0;
	if (n < 0)
		return -errno;
	if ((size_t)n < sizeof(struct fuse_in_header))
		return -EIO;
	return n;
}

static void end(struct overlay *overlay)
{
	uint64_t one = 1;

	crew_stop(overlay->crew);

	if (atomic_exchange(&overlay->is_ended, true))
		return;
	if (write(overlay->ended_fd, &one, sizeof(one)) < 0)
		(void)log_error_errno(errno, "cannot tell that '%s' has ended",
				      overlay->mountpoint);
}

/* Whether serving a message may take more than an instant on a disk that is not slow. */
static bool may_take_long(struct overlay *overlay, const struct fuse_in_header *header)
{
	switch (header->opcode) {
	case FUSE_FSYNC:
	case FUSE_FSYNCDIR:
	case FUSE_FALLOCATE:
	case FUSE_COPY_FILE_RANGE:
		return true;
	default:
		return !store_caps(overlay_store(overlay))->is_local;
	}
}

static bool has_more(const struct overlay *overlay)
{
	struct pollfd fd = { .fd = overlay->device_fd, .events = POLLIN };

	return poll(&fd, 1, 0) > 0;
}

/* A client that has got its answer often has the next request soon. To be woken by it takes
 * longer than to look out for it, above all in a virtual machine; so a thread does that for a
 * while, but for those whom it would keep from the processor, and as long as it pays: a wait
 * that was longer halves the next look-out, one that was shorter makes it full again. */
static ssize_t wait_and_receive(struct overlay *overlay, void *message)
{
	static _Thread_local uint64_t patience_ns = LOOK_OUT_NS_MAX;
	uint64_t start = clock_ns(), now = start;
	ssize_t n;

	while (now - start < patience_ns && !has_more(overlay)) {
		sched_yield();
		now = clock_ns();
	}
	n = receive(overlay, message);
	patience_ns = clock_ns() - start < LOOK_OUT_NS_MAX ? LOOK_OUT_NS_MAX : patience_ns / 2;
	return n;
}

/* Reads a message when it is this thread's turn; as receive(). */
static ssize_t take(struct overlay *overlay, void *message)
{
	ssize_t n;
	bool is_last;

	crew_read_begin(overlay->crew);
	n = wait_and_receive(overlay, message);
	is_last = crew_read_end(overlay->crew);
	if (is_last && n > 0 && (may_take_long(overlay, message) || has_more(overlay)))
		crew_wake(overlay->crew);
	return n;
}

static void *serve(void *argument)
{
	struct overlay *overlay = argument;
	_cleanup_free_ void *message = NULL;
	ssize_t n = 0;

	caller_init_thread();
	if (posix_memalign(&message, 4096, MESSAGE_BYTES_MAX) != 0) {
		message = NULL;
		n = log_error_errno(ENOMEM, "cannot serve '%s'", overlay->mountpoint);
	}
	while (n >= 0) {
		n = take(overlay, message);
		if (n > 0)
			dispatch(overlay, message, (size_t)n);
		if (n >= 0)
			crew_rest(overlay->crew);
	}
	if (n != -ENODEV && n != -ENOMEM)
		(void)log_error_errno((int)n, "cannot read requests of '%s'", overlay->mountpoint);
	if (n != -ENOMEM)
		end(overlay); /* also wakes those that rest, to find the same */
	free(read_buffer);
	read_buffer = NULL;
	return NULL;
}

static void *watch(void *argument)
{
	struct overlay *overlay = argument;

	crew_watch(overlay->crew);
	return NULL;
}

static void *notify(void *argument)
{
	struct overlay *overlay = argument;

	notifier_run(overlay->notifier, overlay->session);
	return NULL;
}

static void *release(void *argument)
{
	struct overlay *overlay = argument;
	struct parked *parked;

	caller_init_thread();
	while ((parked = gate_next(overlay->gate))) {
		if (parked->unique) {
			serve_message(overlay, parked->message, parked->size);
		} else {
			uint64_t id;

			memcpy(&id, parked->message, sizeof(id));
			leftover_end(overlay, id);
		}
		gate_leave(overlay->gate, GATE_CHANGE);
		free(parked);
	}
	free(read_buffer);
	read_buffer = NULL;
	return NULL;
}

/* ---- life ---------------------------------------------------------------- */

int overlay_session_greet(struct overlay *overlay)
{
	_cleanup_free_ void *message = NULL;

	if (posix_memalign(&message, 4096, MESSAGE_BYTES_MAX) != 0) {
		message = NULL;
		return -ENOMEM;
	}
	while (!overlay->is_ready && overlay->init_error == 0) {
		ssize_t n = receive(overlay, message);

		if (n < 0)
			return (int)n;
		if (n > 0)
			serve_message(overlay, message, (size_t)n);
	}
	return overlay->init_error;
}

static int start_thread(struct overlay *overlay, void *(*run)(void *), const char *name,
			pthread_t *ret_thread)
{
	sigset_t all, before;
	int r;

	/* Signals are the daemon's. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = -pthread_create(ret_thread, NULL, run, overlay);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r < 0)
		return r;
	(void)pthread_setname_np(*ret_thread, name); /* for people only */
	return 0;
}

static int add_thread(struct overlay *overlay, void *(*run)(void *), const char *name)
{
	int r;

	assert(overlay->thread_count < ARRAY_SIZE(overlay->threads));
	r = start_thread(overlay, run, name, &overlay->threads[overlay->thread_count]);
	if (r == 0)
		overlay->thread_count++;
	return r;
}

int overlay_session_start(struct overlay *overlay, unsigned threads)
{
	unsigned releasers = threads < OVERLAY_RELEASERS_MAX ? threads : OVERLAY_RELEASERS_MAX;
	int r;

	assert(threads > 0 && threads <= OVERLAY_THREADS_MAX);
	r = start_thread(overlay, notify, "notifier", &overlay->notifier_thread);
	overlay->has_notifier = r == 0;
	if (r == 0)
		r = add_thread(overlay, watch, "watcher");
	for (unsigned i = 0; i < releasers && r == 0; i++)
		r = add_thread(overlay, release, "releaser");
	for (unsigned i = 0; i < threads && r == 0; i++)
		r = add_thread(overlay, serve, "overlay");
	return r;
}

void overlay_session_join(struct overlay *overlay)
{
	/* The servers end by themselves; what is parked is nobody's any more. */
	gate_stop(overlay->gate);
	crew_stop(overlay->crew);
	for (unsigned i = 0; i < overlay->thread_count; i++)
		pthread_join(overlay->threads[i], NULL);
	overlay->thread_count = 0;
	/* Whoever had work for it has ended. */
	notifier_stop(overlay->notifier);
	if (overlay->has_notifier)
		pthread_join(overlay->notifier_thread, NULL);
	overlay->has_notifier = false;
}
