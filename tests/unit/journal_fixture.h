/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* What the tests of journal/ share: directories, locators, a child that dies. */

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "journal/journal.h"

extern const struct journal_pair test_pair;

/* A directory under $TMPDIR, made on first use, and a path in it. */
const char *test_dir(void);
const char *test_path(const char *name); /* valid until the fifth call after it */
void test_remove(const char *path);	 /* with all below it */

/* Any locator: different for each @number. */
struct locator locator_of(uint64_t number);

/* Opens the journal in test_path(@name). */
struct journal *open_journal(const char *name);

/* Composes, with the function in the middle, and flushes. */
#define FLUSHED(journal, ...)                                                           \
	do {                                                                            \
		journal_compose(journal);                                               \
		__VA_ARGS__;                                                            \
		assert_int_equal(journal_flush(journal, journal_submit(journal)), 0);   \
	} while (0)

/* Runs this program again as "<program> @task @path" and returns its pid. A fork would
 * not do: the child would lack RocksDB's threads. *@ret_fd reads its standard output. */
int start_task(const char *task, const char *path, int *ret_fd);
/* Its wait status. */
int wait_task(int pid);
/* Both. */
int run_task(const char *task, const char *path);
