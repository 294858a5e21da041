/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libnfs's own rpc_connect_program_async() allocates what a connection given up
 * half-way leaks, and nfs_mount() has no time limit while it connects. So the steps
 * are our own: resolve, connect, ask. Each is an asynchronous call of libnfs that is
 * driven by wait_for() until its callback has run.
 */
#include "fs/store/nfs_connect.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "fs/store/nfs_error.h"
#include "fs/store/nfs_handle.h"
#include "fs/store/nfs_lib.h"
#include "util/clock.h"

enum {
	PORTMAPPER_PORT = 111,
	PORTMAPPER_MS_MAX = 3000, /* may be behind a firewall that says nothing */
	NFS_DEFAULT_PORT = 2049,
	KEEPALIVE_IDLE_S = 20,
	KEEPALIVE_INTERVAL_S = 5,
	KEEPALIVE_PROBES = 4,
	USER_TIMEOUT_MS = 60 * 1000, /* unacknowledged bytes: the peer's machine is gone */
};

static pthread_mutex_t libnfs_lock = PTHREAD_MUTEX_INITIALIZER;

/* One asynchronous step, and what its callback found. */
struct step {
	const struct nfsurl *url;
	uint64_t deadline_ms;
	int stop_fd;
	struct rpc_context *rpc; /* owned */
	struct nfsconnect_error *error;
	bool is_done;
	int r;
	uint32_t port;	     /* of the portmapper's answer */
	struct locator root; /* of the MOUNT service's answer */
};

static void PRINTF_LIKE(2, 3) step_explain(struct step *step, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	(void)vsnprintf(step->error->text, sizeof(step->error->text), format,
			args); /* may be cut */
	va_end(args);
}

static void step_drop(struct step *step)
{
	if (!step->rpc)
		return;
	pthread_mutex_lock(&libnfs_lock);
	rpc_destroy_context(step->rpc);
	pthread_mutex_unlock(&libnfs_lock);
	step->rpc = NULL;
}

/* The first address of the host, as digits: libnfs resolves names under our lock, and
 * that may take long. */
static int resolve(struct step *step, char *ret_address, size_t size)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *found = NULL;
	int r;

	r = getaddrinfo(step->url->host, NULL, &hints, &found);
	if (r != 0) {
		step_explain(step, "no address found for host '%s': %s", step->url->host,
			     gai_strerror(r));
		return -EHOSTUNREACH;
	}
	r = getnameinfo(found->ai_addr, found->ai_addrlen, ret_address, (socklen_t)size, NULL, 0,
			NI_NUMERICHOST);
	freeaddrinfo(found);
	return r == 0 ? 0 : -EHOSTUNREACH;
}

/* Serves the connection until the step's callback has run or the time is over. */
static int wait_for(struct step *step)
{
	while (!step->is_done) {
		uint64_t now_ms = clock_ms();
		struct pollfd fds[2] = { { .fd = rpc_get_fd(step->rpc) },
					 { .fd = step->stop_fd, .events = POLLIN } };
		int r, events;

		if (now_ms >= step->deadline_ms)
			return -ETIMEDOUT;
		fds[0].events = (short)rpc_which_events(step->rpc);
		r = poll(fds, 2, (int)(step->deadline_ms - now_ms));
		if (r < 0 && errno != EINTR)
			return -errno;
		if (r <= 0)
			continue;
		if (fds[1].revents)
			return -ECANCELED;

		events = fds[0].revents;
		if (events & POLLERR) {
			socklen_t length = sizeof(r);

			if (getsockopt(fds[0].fd, SOL_SOCKET, SO_ERROR, &r, &length) == 0 && r != 0)
				return -r;
		}
		pthread_mutex_lock(&libnfs_lock);
		r = rpc_service(step->rpc, events);
		pthread_mutex_unlock(&libnfs_lock);
		if (r < 0 && !step->is_done)
			return -ECONNRESET;
	}
	return step->r;
}

static void connected(struct rpc_context *rpc UNUSED, int status, void *data UNUSED, void *private)
{
	struct step *step = private;

	step->is_done = true;
	step->r = status == RPC_STATUS_SUCCESS ? 0 : -ECONNREFUSED;
}

static void answered(struct rpc_context *rpc UNUSED, int status, void *data, void *private)
{
	struct step *step = private;
	int r = 0;

	if (status == RPC_STATUS_ERROR)
		r = nfserror_of_refusal(data);
	step->is_done = true;
	step->r = status == RPC_STATUS_SUCCESS ? 0 : r < 0 ? r : -ECONNRESET;
}

static void port_answered(struct rpc_context *rpc, int status, void *data, void *private)
{
	struct step *step = private;

	answered(rpc, status, data, private);
	if (step->r == 0)
		step->port = *(uint32_t *)data;
}

static void mount_answered(struct rpc_context *rpc, int status, void *data, void *private)
{
	struct step *step = private;
	const struct mountres3 *reply = data;
	const struct mountres3_ok *ok;
	bool is_sys;

	answered(rpc, status, data, private);
	if (step->r < 0)
		return;
	step->r = nfserror_of_mount(reply->fhs_status);
	if (step->r < 0)
		return;

	ok = &reply->mountres3_u.mountinfo;
	is_sys = ok->auth_flavors.auth_flavors_len == 0; /* old servers name none */
	for (unsigned i = 0; i < ok->auth_flavors.auth_flavors_len; i++)
		is_sys |= ok->auth_flavors.auth_flavors_val[i] == AUTH_UNIX;
	if (!is_sys)
		step->r = -EPROTONOSUPPORT;
	else
		step->r = nfshandle_locator(ok->fhandle.fhandle3_val, ok->fhandle.fhandle3_len,
					    &step->root);
}

/* The server must learn of each request at once, and we of a dead peer. */
static void set_options(int fd)
{
	const struct {
		int level, name, value;
	} options[] = {
		{ IPPROTO_TCP, TCP_NODELAY, 1 },
		{ SOL_SOCKET, SO_KEEPALIVE, 1 },
		{ IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S },
		{ IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S },
		{ IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES },
		{ IPPROTO_TCP, TCP_USER_TIMEOUT, USER_TIMEOUT_MS },
	};

	for (size_t i = 0; i < ARRAY_SIZE(options); i++)
		(void)setsockopt(fd, options[i].level, options[i].name, &options[i].value,
				 sizeof(options[i].value)); /* slower without, but right */
}

static int connect_port(struct step *step, const char *address, int port, const char *what)
{
	struct AUTH *auth;
	int r = -ENOMEM;

	step->is_done = false;
	pthread_mutex_lock(&libnfs_lock);
	step->rpc = rpc_init_context();
	auth = step->rpc ? libnfs_authunix_create("ferryfs", 0, 0, 0, NULL) : NULL;
	if (auth) {
		rpc_set_auth(step->rpc, auth); /* taken */
		r = rpc_connect_async(step->rpc, address, port, connected, step) < 0 ? -ECONNREFUSED
										     : 0;
	}
	pthread_mutex_unlock(&libnfs_lock);
	if (r == 0)
		r = wait_for(step);
	if (r < 0) {
		step_explain(step, "cannot connect to the %s service of host '%s' (%s), port %d",
			     what, step->url->host, address, port);
		step_drop(step);
		return r;
	}
	set_options(rpc_get_fd(step->rpc));
	return 0;
}

/* Waits for the answer to a call that was just queued, @queued being libnfs's result. */
static int ask(struct step *step, int queued, const char *what)
{
	int r = queued < 0 ? -ENOMEM : wait_for(step);

	if (r < 0 && step->is_done)
		step_explain(step, "the %s service of host '%s' refuses", what, step->url->host);
	else if (r < 0)
		step_explain(step, "the %s service of host '%s' does not answer", what,
			     step->url->host);
	return r;
}

/* Which port the portmapper names for @program. */
static int ask_port(struct step *step, const char *address, int program, int *ret_port)
{
	int r;

	r = connect_port(step, address, PORTMAPPER_PORT, "portmapper");
	if (r < 0)
		return r;
	step->is_done = false;
	r = ask(step,
		rpc_pmap2_getport_async(step->rpc, program, NFS_V3, IPPROTO_TCP, port_answered,
					step),
		"portmapper");
	step_drop(step);
	if (r < 0)
		return r;
	if (step->port == 0 || step->port > UINT16_MAX) {
		step_explain(step, "the portmapper of host '%s' knows no NFSv3 service over TCP",
			     step->url->host);
		return -EPROTONOSUPPORT;
	}
	*ret_port = (int)step->port;
	return 0;
}

int nfsconnect_nfs(const struct nfsurl *url, uint64_t deadline_ms, int stop_fd,
		   struct rpc_context **ret_rpc, struct nfsconnect_error *ret_error)
{
	struct step step = {
		.url = url, .deadline_ms = deadline_ms, .stop_fd = stop_fd, .error = ret_error
	};
	char address[INET6_ADDRSTRLEN + 16]; /* and a scope */
	int port = url->nfs_port, r;

	r = resolve(&step, address, sizeof(address));
	if (r < 0)
		return r;
	if (port == 0) {
		uint64_t enough_ms = clock_ms() + PORTMAPPER_MS_MAX;

		step.deadline_ms = enough_ms < deadline_ms ? enough_ms : deadline_ms;
		if (ask_port(&step, address, NFS_PROGRAM, &port) < 0)
			port = NFS_DEFAULT_PORT; /* many servers have no portmapper */
		step.deadline_ms = deadline_ms;
	}
	r = connect_port(&step, address, port, "NFS");
	if (r < 0)
		return r;

	/* A server that is stopped or overloaded still accepts connections. */
	step.is_done = false;
	r = ask(&step, rpc_nfs3_null_async(step.rpc, answered, &step), "NFS");
	if (r < 0) {
		step_drop(&step);
		return r;
	}
	*ret_rpc = step.rpc;
	return 0;
}

int nfsconnect_mount(const struct nfsurl *url, uint64_t deadline_ms, struct locator *ret_root,
		     struct nfsconnect_error *ret_error)
{
	struct step step = {
		.url = url, .deadline_ms = deadline_ms, .stop_fd = -1, .error = ret_error
	};
	char address[INET6_ADDRSTRLEN + 16];
	char export[NFSURL_EXPORT_MAX];
	int port = url->mount_port, r;

	r = resolve(&step, address, sizeof(address));
	if (r < 0)
		return r;
	if (port == 0) {
		r = ask_port(&step, address, MOUNT_PROGRAM, &port);
		if (r < 0)
			return r;
	}
	r = connect_port(&step, address, port, "MOUNT");
	if (r < 0)
		return r;

	step.is_done = false;
	memcpy(export, url->export, sizeof(export)); /* libnfs takes it without const */
	r = ask(&step, rpc_mount3_mnt_async(step.rpc, mount_answered, export, &step), "MOUNT");
	step_drop(&step);
	if (r < 0)
		return r;
	nfshandle_set_type(&step.root, S_IFDIR); /* look_at_root() makes sure */
	*ret_root = step.root;
	return 0;
}
