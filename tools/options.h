/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* The command line of ferryfs. */

#include <stdbool.h>

#include "fs/overlay/overlay.h"
#include "util/attr.h"

struct options {
	const char *source, *target; /* as given; borrowed from argv, as are the others */
	const char *at;		     /* NULL: over the source */
	const char *name;	     /* NULL: from the source's path */
	const char *state;	     /* NULL: by the name */
	const char *log;	     /* NULL: in the state directory, or stderr in the foreground */
	bool is_foreground, is_debug, is_adopting, is_writeback;
	enum overlay_opens opens;
	unsigned workers;     /* 0: as many as suits the target */
	unsigned connections; /* of an nfs target */
	unsigned threads;     /* that serve the mount */
	unsigned hold_down_s;
};

enum {
	OPTIONS_WORKERS_MAX = 256,
	OPTIONS_CONNECTIONS_MAX = 8, /* store_nfs_open() */
	OPTIONS_THREADS_MAX = 64,
	OPTIONS_HOLD_DOWN_S_MAX = 3600,
};

/* Outcomes the direct caller must handle. */
enum {
	OPTIONS_E_DONE = 1, /* help or version was asked for, and printed */
	OPTIONS_E_USAGE,    /* what is wrong has been printed */
};

int options_parse(int argc, char *argv[], struct options *ret_options) MUST_CHECK;

/* Whether @target is a URL and not a directory. */
bool options_is_url(const char *target);
