/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The control protocol between ferry and a ferryfs: over the socket
 * /run/ferryfs/NAME.sock, one JSON object a line each way. A request has "command"
 * and its arguments; a reply has "ok", and "error" (for people) when that is false.
 * Paths are bytes and JSON is not: a request's "path" is as text_escape() makes it.
 *
 * Root only: the directory is 0700, the socket 0600, and the daemon asks the kernel
 * who connects.
 */

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/un.h>

#include "util/attr.h"
#include "util/cleanup.h"

#define WIRE_DIR "/run/ferryfs"
#define WIRE_SUFFIX ".sock"

enum { WIRE_LINE_MAX = 64 * 1024 }; /* bytes of a message with its newline; longer is refused */

static inline void cleanup_json_(json_t **json)
{
	json_decref(*json);
}

#define _cleanup_json_ _cleanup_(cleanup_json_)

/* The address of the daemon @name, which is a name (text_is_name()). */
struct sockaddr_un wire_address(const char *name);

/* Connects to the daemon @name: the fd is the caller's. *@ret_pid (may be NULL): the
 * process that listens. -ENOENT or -ECONNREFUSED: there is none. */
int wire_connect(const char *name, int *ret_fd, pid_t *ret_pid) MUST_CHECK;

/* Sends @message (borrowed) as one line. Blocks only if @flags lacks MSG_DONTWAIT.
 * -EMSGSIZE, -EPIPE, ... */
int wire_send(int fd, json_t *message, int flags) MUST_CHECK;

/* Waits for the next line, at most @timeout_ms (-1: for ever). -ECONNRESET: the other
 * side ended; -ETIMEDOUT; -EBADMSG; -EMSGSIZE. Reads one message a connection: what
 * follows the line in the same read is dropped. */
int wire_receive(int fd, int timeout_ms, json_t **ret_message) MUST_CHECK;

/* Connects, asks, receives the answer. @request is borrowed. */
int wire_call(const char *name, json_t *request, int timeout_ms, json_t **ret_reply,
	      pid_t *ret_pid) MUST_CHECK;

/* One received line, without its newline. -EBADMSG if it is not a JSON object. */
int wire_decode(const char *line, size_t length, json_t **ret_message) MUST_CHECK;

/* A JSON string of @bytes: as they are where they are UTF-8, else the strange ones
 * as \xHH. NULL only without memory. */
json_t *wire_text(const char *bytes);

/* {"ok": false, "error": ...} */
json_t *wire_error(const char *format, ...) PRINTF_LIKE(1, 2);

/* Calls @each for the name of every socket in WIRE_DIR until it returns non-zero,
 * which is then returned. Whether somebody listens there is not known. */
int wire_each(int (*each)(void *context, const char *name), void *context) MUST_CHECK;
