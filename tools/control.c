/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/control.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/wire.h"
#include "util/cleanup.h"
#include "util/log.h"

enum { DIR_TRIES_MAX = 8, BACKLOG_MAX = 64 };

struct client {
	int fd;		/* -1: free */
	uint64_t id;	/* never used twice */
	bool is_asking; /* its request is being worked on: no other is read */
	size_t length;	/* of what has come of the next request */
	char *line;	/* WIRE_LINE_MAX bytes */
};

struct job {
	const struct control_command *command; /* NULL: none */
	uint64_t client;
	json_t *request;
	int outcome;
	json_t *reply;
	bool is_done; /* the reply waits to be sent */
};

struct control {
	char name[128]; /* of the migration */
	const struct control_command *commands;
	void *context;
	int dir_fd, listen_fd, wake_fd;

	struct client clients[CONTROL_CLIENTS_MAX]; /* the talker's alone */
	uint64_t last_id;

	pthread_mutex_t lock;
	pthread_cond_t is_changed;
	struct job job;	  /* guarded by lock */
	bool is_stopping; /* guarded by lock */

	bool is_started;
	pthread_t talker, worker;
};

/* ---- the socket's life --------------------------------------------------- */

/* Opens and locks WIRE_DIR, which the last daemon to end removes. */
static int lock_dir(int *ret_fd)
{
	for (unsigned i = 0; i < DIR_TRIES_MAX; i++) {
		_cleanup_close_ int fd = -1;
		struct stat st;

		if (mkdir(WIRE_DIR, 0700) < 0 && errno != EEXIST)
			return log_error_errno(errno, "cannot make '%s'", WIRE_DIR);
		fd = open(WIRE_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0 && errno == ENOENT)
			continue;
		if (fd < 0)
			return log_error_errno(errno, "cannot open '%s'", WIRE_DIR);
		if (flock(fd, LOCK_EX) < 0 || fstat(fd, &st) < 0)
			return log_error_errno(errno, "cannot lock '%s'", WIRE_DIR);
		if (st.st_nlink == 0)
			continue;
		if (st.st_uid != 0 || fchmod(fd, 0700) < 0) {
			log_error("'%s' is not root's: remove it", WIRE_DIR);
			return -EPERM;
		}
		*ret_fd = TAKE_FD(fd);
		return 0;
	}
	log_error("'%s' comes and goes", WIRE_DIR);
	return -EBUSY;
}

static int bind_socket(const char *name, int fd)
{
	struct sockaddr_un address = wire_address(name);
	int other = -1, r;

	r = wire_connect(name, &other, NULL);
	if (r == 0) {
		(void)fd_close(other); /* it was only to see whether somebody answers */
		log_error("somebody listens at '%s' already", address.sun_path);
		return -EADDRINUSE;
	}
	if (unlink(address.sun_path) < 0 && errno != ENOENT)
		return log_error_errno(errno, "cannot remove the old '%s'", address.sun_path);
	/* The mode of the socket's file is that of the fd: it is never open to others. */
	if (fchmod(fd, 0600) < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		return log_error_errno(errno, "cannot make the socket '%s'", address.sun_path);
	if (listen(fd, BACKLOG_MAX) < 0) {
		r = log_error_errno(errno, "cannot listen at '%s'", address.sun_path);
		(void)unlink(address.sun_path); /* the directory is root's alone anyway */
		return r;
	}
	return 0;
}

/* Takes the name away, and the directory with the last one. */
static void unbind_socket(struct control *control)
{
	struct sockaddr_un address = wire_address(control->name);

	if (control->listen_fd < 0)
		return;
	(void)flock(control->dir_fd,
		    LOCK_EX);		/* cannot fail but by a signal, and those are blocked */
	(void)unlink(address.sun_path); /* if it is gone, somebody was quicker */
	(void)rmdir(WIRE_DIR);		/* not empty: others live */
	control->listen_fd = fd_close(control->listen_fd);
	control->dir_fd = fd_close(control->dir_fd);
}

int control_open(const char *name, struct control **ret_control)
{
	struct control *control = calloc(1, sizeof(*control));
	int r;

	if (!control)
		return log_error_errno(ENOMEM, "cannot make the control socket");
	assert(strlen(name) < sizeof(control->name));
	strcpy(control->name, name);
	control->dir_fd = control->listen_fd = control->wake_fd = -1;
	for (size_t i = 0; i < CONTROL_CLIENTS_MAX; i++)
		control->clients[i].fd = -1;
	pthread_mutex_init(&control->lock, NULL);
	pthread_cond_init(&control->is_changed, NULL);

	control->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r = control->wake_fd < 0 ? log_error_errno(errno, "cannot make an eventfd") : 0;
	if (r == 0)
		r = lock_dir(&control->dir_fd);
	if (r == 0) {
		int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

		r = fd < 0 ? log_error_errno(errno, "cannot make a socket") : bind_socket(name, fd);
		if (r == 0)
			control->listen_fd = fd;
		else
			(void)fd_close(fd);	       /* unused */
		(void)flock(control->dir_fd, LOCK_UN); /* closing would do it too */
	}
	if (r < 0) {
		if (control->dir_fd >= 0)
			(void)rmdir(WIRE_DIR); /* not empty: others live */
		control_close(control, NULL);
		return r;
	}
	*ret_control = control;
	return 0;
}

/* ---- long commands ------------------------------------------------------- */

static void wake(struct control *control)
{
	if (eventfd_write(control->wake_fd, 1) < 0)
		abort(); /* only a bug fills an eventfd or closes it */
}

static void *work(void *argument)
{
	struct control *control = argument;
	struct job *job = &control->job;

	pthread_setname_np(pthread_self(), "control-work");
	pthread_mutex_lock(&control->lock);
	for (;;) {
		int outcome;

		while ((!job->command || job->is_done) && !control->is_stopping)
			pthread_cond_wait(&control->is_changed, &control->lock);
		if (!job->command || job->is_done)
			break;
		pthread_mutex_unlock(&control->lock);
		/* The request is ours until is_done. */
		outcome = job->command->run(control->context, job->request, &job->reply);
		pthread_mutex_lock(&control->lock);
		job->outcome = outcome;
		job->is_done = true;
		wake(control);
	}
	pthread_mutex_unlock(&control->lock);
	return NULL;
}

/* Hands a request over; false when there is one already, @*ret_busy names it. */
static bool start_job(struct control *control, const struct control_command *command,
		      struct client *client, json_t *request, const char **ret_busy)
{
	bool is_free;

	pthread_mutex_lock(&control->lock);
	*ret_busy = control->job.command ? control->job.command->name : "stop";
	is_free = !control->job.command && !control->is_stopping;
	if (is_free) {
		control->job = (struct job){
			.command = command,
			.client = client->id,
			.request = json_incref(request),
		};
		pthread_cond_signal(&control->is_changed);
	}
	pthread_mutex_unlock(&control->lock);
	return is_free;
}

bool control_is_busy(struct control *control)
{
	bool is_busy;

	pthread_mutex_lock(&control->lock);
	is_busy = control->job.command;
	pthread_mutex_unlock(&control->lock);
	return is_busy;
}

/* ---- clients ------------------------------------------------------------- */

static void client_close(struct client *client)
{
	client->fd = fd_close(client->fd);
	free(client->line);
	*client = (struct client){ .fd = -1 };
}

/* Answers; @reply is taken. A reply fits the socket's buffer, so nothing waits here. */
static void client_reply(struct client *client, json_t *reply)
{
	_cleanup_json_ json_t *owned = reply;

	client->is_asking = false;
	if (!owned || wire_send(client->fd, owned, MSG_DONTWAIT) < 0)
		client_close(client);
}

static const struct control_command *find_command(const struct control *control, const char *name)
{
	for (const struct control_command *command = control->commands; command->name; command++) {
		if (strcmp(command->name, name) == 0)
			return command;
	}
	return NULL;
}

static void client_ask(struct control *control, struct client *client, json_t *request)
{
	const char *name = json_string_value(json_object_get(request, "command"));
	const struct control_command *command = name ? find_command(control, name) : NULL;
	const char *busy;
	json_t *reply = NULL;

	if (!command) {
		client_reply(
			client,
			wire_error("no such command; is ferry of the same version as ferryfs?"));
		return;
	}
	client->is_asking = true;
	if (!command->is_long) {
		if (command->run(control->context, request, &reply) == 0)
			client_reply(client, reply);
		return;
	}
	if (!start_job(control, command, client, request, &busy))
		client_reply(client, wire_error("busy with another command ('%s'), try again when "
						"it is done",
						busy));
}

/* Takes what has come, and runs the first whole request of it. */
static void client_read(struct control *control, struct client *client)
{
	_cleanup_json_ json_t *request = NULL;
	const char *end;
	ssize_t n;

	n = recv(client->fd, client->line + client->length, WIRE_LINE_MAX - client->length,
		 MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		client_close(client);
		return;
	}
	client->length += (size_t)n;
	end = memchr(client->line, '\n', client->length);
	if (!end && client->length < WIRE_LINE_MAX)
		return;
	if (!end || wire_decode(client->line, (size_t)(end - client->line), &request) < 0) {
		client_reply(client, wire_error("not a request"));
		if (client->fd >= 0)
			client_close(client);
		return;
	}
	client->length = 0; /* one request at a time: what was sent ahead is dropped */
	client_ask(control, client, request);
}

static void client_accept(struct control *control)
{
	_cleanup_close_ int fd = accept4(control->listen_fd, NULL, NULL, SOCK_CLOEXEC);
	struct ucred peer;
	socklen_t length = sizeof(peer);

	if (fd < 0)
		return; /* the client is gone again */
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) < 0 || peer.uid != 0)
		return;
	for (size_t i = 0; i < CONTROL_CLIENTS_MAX; i++) {
		struct client *client = &control->clients[i];

		if (client->fd >= 0)
			continue;
		client->line = malloc(WIRE_LINE_MAX);
		if (!client->line)
			return;
		client->fd = TAKE_FD(fd);
		client->id = ++control->last_id;
		return;
	}
	log_debug("too many clients at the control socket, one is turned away");
}

/* Sends the reply of the long command that has ended, if its client is still there. */
static void finish_job(struct control *control)
{
	struct job job = { 0 };

	pthread_mutex_lock(&control->lock);
	if (control->job.is_done) {
		job = control->job;
		control->job = (struct job){ 0 };
	}
	pthread_mutex_unlock(&control->lock);
	if (!job.command)
		return;
	json_decref(job.request);
	for (size_t i = 0; i < CONTROL_CLIENTS_MAX && job.outcome == 0; i++) {
		if (control->clients[i].fd >= 0 && control->clients[i].id == job.client) {
			client_reply(&control->clients[i], job.reply);
			return;
		}
	}
	json_decref(job.reply);
}

static bool is_stopping(struct control *control)
{
	bool is_it;

	pthread_mutex_lock(&control->lock);
	is_it = control->is_stopping && !control->job.command;
	pthread_mutex_unlock(&control->lock);
	return is_it;
}

static void *talk(void *argument)
{
	enum { LISTEN, WAKE, CLIENTS };
	struct control *control = argument;
	struct pollfd fds[CLIENTS + CONTROL_CLIENTS_MAX];

	pthread_setname_np(pthread_self(), "control-talk");
	while (!is_stopping(control)) {
		eventfd_t count;

		fds[LISTEN] = (struct pollfd){ .fd = control->listen_fd, .events = POLLIN };
		fds[WAKE] = (struct pollfd){ .fd = control->wake_fd, .events = POLLIN };
		for (size_t i = 0; i < CONTROL_CLIENTS_MAX; i++) {
			const struct client *client = &control->clients[i];

			/* Of one that is being worked for only the hang-up matters (POLLHUP). */
			fds[CLIENTS + i] = (struct pollfd){
				.fd = client->fd,
				.events = client->is_asking ? 0 : POLLIN,
			};
		}
		if (poll(fds, ARRAY_SIZE(fds), -1) < 0)
			continue; /* interrupted */
		if (fds[WAKE].revents) {
			(void)eventfd_read(control->wake_fd, &count); /* once is as good as often */
			finish_job(control);
		}
		for (size_t i = 0; i < CONTROL_CLIENTS_MAX; i++) {
			struct client *client = &control->clients[i];

			if (!fds[CLIENTS + i].revents || client->fd < 0 ||
			    client->fd != fds[CLIENTS + i].fd)
				continue;
			if (fds[CLIENTS + i].events == 0)
				client_close(client);
			else
				client_read(control, client);
		}
		if (fds[LISTEN].revents)
			client_accept(control);
	}
	return NULL;
}

/* ---- the whole ----------------------------------------------------------- */

int control_start(struct control *control, const struct control_command *commands, void *context)
{
	int r;

	control->commands = commands;
	control->context = context;
	r = pthread_create(&control->worker, NULL, work, control);
	if (r != 0)
		return log_error_errno(r, "cannot start a thread");
	r = pthread_create(&control->talker, NULL, talk, control);
	if (r != 0) {
		pthread_mutex_lock(&control->lock);
		control->is_stopping = true;
		pthread_cond_signal(&control->is_changed);
		pthread_mutex_unlock(&control->lock);
		pthread_join(control->worker, NULL);
		return log_error_errno(r, "cannot start a thread");
	}
	control->is_started = true;
	return 0;
}

void control_stop(struct control *control)
{
	if (!control || !control->is_started)
		return;
	pthread_mutex_lock(&control->lock);
	control->is_stopping = true;
	pthread_cond_signal(&control->is_changed);
	pthread_mutex_unlock(&control->lock);
	pthread_join(control->worker, NULL);
	wake(control);
	pthread_join(control->talker, NULL);
	control->is_started = false;
	unbind_socket(control);
}

struct control *control_close(struct control *control, json_t *farewell)
{
	if (!control)
		return NULL;
	control_stop(control);
	unbind_socket(control);
	for (size_t i = 0; i < CONTROL_CLIENTS_MAX; i++) {
		struct client *client = &control->clients[i];

		if (client->fd >= 0 && client->is_asking && farewell)
			client_reply(client, json_incref(farewell));
		if (client->fd >= 0)
			client_close(client);
	}
	control->wake_fd = fd_close(control->wake_fd);
	control->dir_fd = fd_close(control->dir_fd);
	pthread_cond_destroy(&control->is_changed);
	pthread_mutex_destroy(&control->lock);
	free(control);
	return NULL;
}
