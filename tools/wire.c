/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wire.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/text.h"
#include "util/clock.h"

static_assert(sizeof(WIRE_DIR "/") + TEXT_NAME_MAX + sizeof(WIRE_SUFFIX) <=
		      sizeof(((struct sockaddr_un *)NULL)->sun_path),
	      "every name has a socket");

struct sockaddr_un wire_address(const char *name)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	assert(text_is_name(name));
	(void)snprintf(address.sun_path, sizeof(address.sun_path), WIRE_DIR "/%s" WIRE_SUFFIX,
		       name);
	return address;
}

int wire_connect(const char *name, int *ret_fd, pid_t *ret_pid)
{
	struct sockaddr_un address = wire_address(name);
	_cleanup_close_ int fd = -1;
	struct ucred peer;
	socklen_t length = sizeof(peer);

	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		return -errno;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) < 0)
		return -errno;
	if (ret_pid)
		*ret_pid = peer.pid;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

int wire_send(int fd, json_t *message, int flags)
{
	_cleanup_free_ char *line = json_dumps(message, JSON_COMPACT);
	size_t length, sent = 0;

	if (!line)
		return -ENOMEM;
	length = strlen(line);
	if (length + 1 > WIRE_LINE_MAX)
		return -EMSGSIZE;
	line[length++] = '\n'; /* over the NUL: sent by length */
	while (sent < length) {
		ssize_t n = send(fd, line + sent, length - sent, flags | MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		sent += (size_t)n;
	}
	return 0;
}

int wire_decode(const char *line, size_t length, json_t **ret_message)
{
	_cleanup_json_ json_t *message = json_loadb(line, length, JSON_REJECT_DUPLICATES, NULL);

	if (!json_is_object(message))
		return -EBADMSG;
	*ret_message = TAKE_PTR(message);
	return 0;
}

/* Waits until @fd can be read: 0, or -ETIMEDOUT at @deadline_ms (0: never). */
static int wait_readable(int fd, uint64_t deadline_ms)
{
	struct pollfd wait = { .fd = fd, .events = POLLIN };

	for (;;) {
		int timeout = -1, n;

		if (deadline_ms) {
			uint64_t now = clock_ms();

			timeout = now < deadline_ms ? (int)(deadline_ms - now) : 0;
		}
		n = poll(&wait, 1, timeout);
		if (n > 0)
			return 0;
		if (n == 0)
			return -ETIMEDOUT;
		if (errno != EINTR)
			return -errno;
	}
}

int wire_receive(int fd, int timeout_ms, json_t **ret_message)
{
	_cleanup_free_ char *line = malloc(WIRE_LINE_MAX);
	uint64_t deadline_ms = timeout_ms < 0 ? 0 : clock_ms() + (uint64_t)timeout_ms;
	size_t length = 0;

	if (!line)
		return -ENOMEM;
	while (length < WIRE_LINE_MAX) {
		const char *end;
		ssize_t n;
		int r;

		r = wait_readable(fd, deadline_ms);
		if (r < 0)
			return r;
		n = recv(fd, line + length, WIRE_LINE_MAX - length, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -ECONNRESET;
		end = memchr(line + length, '\n', (size_t)n);
		if (end)
			return wire_decode(line, (size_t)(end - line), ret_message);
		length += (size_t)n;
	}
	return -EMSGSIZE;
}

int wire_call(const char *name, json_t *request, int timeout_ms, json_t **ret_reply, pid_t *ret_pid)
{
	_cleanup_close_ int fd = -1;
	int r;

	r = wire_connect(name, &fd, ret_pid);
	if (r < 0)
		return r;
	r = wire_send(fd, request, 0);
	if (r < 0)
		return r;
	return wire_receive(fd, timeout_ms, ret_reply);
}

json_t *wire_text(const char *bytes)
{
	_cleanup_free_ char *text = NULL;
	json_t *string = json_string(bytes); /* NULL if it is not UTF-8 */

	if (string)
		return string;
	text = text_escape(bytes);
	return text ? json_string(text) : NULL;
}

json_t *wire_error(const char *format, ...)
{
	_cleanup_free_ char *text = NULL;
	va_list args;
	int n;

	va_start(args, format);
	n = vasprintf(&text, format, args);
	va_end(args);
	if (n < 0) {
		text = NULL;
		return NULL;
	}
	return json_pack("{s:b, s:o}", "ok", 0, "error", wire_text(text));
}

int wire_each(int (*each)(void *context, const char *name), void *context)
{
	struct dirent **entries = NULL;
	int count = scandir(WIRE_DIR, &entries, NULL, alphasort);
	int r = 0;

	if (count < 0)
		return errno == ENOENT ? 0 : -errno;
	for (int i = 0; i < count; i++) {
		char *name = entries[i]->d_name;
		size_t length = strlen(name), suffix = strlen(WIRE_SUFFIX);

		if (r == 0 && length > suffix && strcmp(name + length - suffix, WIRE_SUFFIX) == 0) {
			name[length - suffix] = '\0';
			if (text_is_name(name))
				r = each(context, name);
		}
		free(entries[i]);
	}
	free(entries);
	return r;
}
