/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Parity: each case is run in a plain directory and in one on the mount, and has to
 * say the same in both. A case works in its current directory, which is empty, 0777,
 * and its own, and says what happened by these functions. It runs in a process of its
 * own, as root; as_user() makes it somebody else.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "util/attr.h"

struct parity_case {
	const char *name; /* a sentence */
	void (*run)(void);
};

/* Ended by one without a name. */
extern const struct parity_case parity_names[], parity_open[], parity_data[], parity_appends[],
	parity_attrs[], parity_privileges[], parity_dirs[], parity_kernel[], parity_suites[],
	parity_async[], parity_full[];

enum { USER = 1000, USER_GROUP = 1000, EXTRA_GROUP = 2000, OTHER_USER = 1001 };

/* Prints a line. */
void say(const char *format, ...) PRINTF_LIKE(1, 2);
/* Prints "what: result" or "what: -1 ERRNO"; returns @result. */
long say_result(const char *what, long result);
#define DO(call) say_result(#call, (long)(call))

/* Type, mode, nlink, owner and, but for directories, size of @path or @fd. */
void say_stat(const char *path);
void say_fstat(int fd);
/* Size and a digest of the contents. */
void say_file(const char *path);
void say_fd(int fd);
/* The names in @path, sorted. */
void say_dir(const char *path);

/* Writes @text to @path, made with @mode. */
void put(const char *path, mode_t mode, const char *text);

/* Runs @run as USER with the groups USER_GROUP and EXTRA_GROUP. */
void as_user(void (*run)(void));
