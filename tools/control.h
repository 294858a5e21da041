/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The daemon's end of the control socket (wire.h). One thread talks to all clients and
 * runs the short commands; a second one runs the long commands, one at a time, so
 * that the status can be asked meanwhile. A long command goes on when its client
 * leaves.
 *
 * Bounds: CONTROL_CLIENTS_MAX connections, one request at a time on each; more are
 * closed at once. A reply that a client does not take closes its connection.
 */

#include <jansson.h>
#include <stdbool.h>

#include "util/attr.h"

enum { CONTROL_CLIENTS_MAX = 16 };

/* Outcome of a command: its client is answered by control_close(). */
enum { CONTROL_E_LATER = 1 };

struct control; /* opaque */

struct control_command {
	const char *name;
	bool is_long;
	/* Makes the reply, {"ok": ...} (NULL: no memory), or returns CONTROL_E_LATER. */
	int (*run)(void *context, json_t *request, json_t **ret_reply);
};

/* Takes the socket of @name; that of a dead daemon is replaced. -EADDRINUSE: somebody
 * listens there. Errors are logged. Starts nothing; clients wait. */
int control_open(const char *name, struct control **ret_control) MUST_CHECK;

/* Starts to answer by @commands (borrowed until control_stop(), ended by an empty name). */
int control_start(struct control *control, const struct control_command *commands,
		  void *context) MUST_CHECK;

/* Whether a long command is under way. Thread-safe. */
bool control_is_busy(struct control *control);

/* Waits for a long command to end, ends the threads. New clients find no socket. */
void control_stop(struct control *control);

/* Sends @farewell (borrowed, may be NULL) to those that were to be answered later, closes
 * all. NULL is allowed. Returns NULL. */
struct control *control_close(struct control *control, json_t *farewell);
