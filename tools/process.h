/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The life of the daemon as a process: into the background, its limits, signals,
 * and log.
 */

#include <stdbool.h>
#include <sys/types.h>

#include "util/attr.h"

/* Forks; call it before there are threads. In the child returns 0 and sets
 * *@ret_ready_fd, in the parent waits for process_ready() of the child, or its end,
 * and returns 1 with the exit code for main() in *@ret_exit. Until then the child
 * writes its errors to the terminal that it shares with the parent. */
int process_detach(int *ret_ready_fd, int *ret_exit) MUST_CHECK;

/* Tells the parent that the mount serves, and lets go of the terminal. -EPIPE: the
 * parent was interrupted. */
int process_ready(int ready_fd) MUST_CHECK;

/* Sets what a daemon needs: working directory, umask, limits, signals blocked. Call
 * it before there are threads. *@ret_signal_fd (owned by the caller): SIGTERM,
 * SIGINT and SIGHUP are read from it. */
int process_prepare(int *ret_signal_fd) MUST_CHECK;

/* Log lines go to @path from now on; again (SIGHUP): to a new file of that name. When
 * that fails it says so in the old place, which stays. */
void process_log_to(const char *path);

/* Whether @pid is gone, or was killed and waits for its last requests. */
bool process_is_ending(pid_t pid);
