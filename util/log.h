/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Log lines to stderr, or to the file descriptor given to log_to_fd(). One
 * line, one write(2). Thread-safe. Levels: error = gave up, warning = went on,
 * info = a change of state an operator wants to find later, debug = the rest.
 */

#include "util/attr.h"

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG, LOG_LEVEL_MAX };

/* What is below @level is not printed; the default is info. */
void log_set_level(enum log_level level);

/* Later lines go to @fd (borrowed for the rest of the process's life), each with
 * the time in front. */
void log_to_fd(int fd);

/* Prints the message, and for @error != 0 (an errno, either sign) its text after
 * a colon. Returns -abs(error), so that `return log_error_errno(r, ...)` works. */
int log_full(enum log_level level, int error, const char *format, ...) PRINTF_LIKE(3, 4);

#define log_error(...) ((void)log_full(LOG_LEVEL_ERROR, 0, __VA_ARGS__))
#define log_warning(...) ((void)log_full(LOG_LEVEL_WARNING, 0, __VA_ARGS__))
#define log_info(...) ((void)log_full(LOG_LEVEL_INFO, 0, __VA_ARGS__))
#define log_debug(...) ((void)log_full(LOG_LEVEL_DEBUG, 0, __VA_ARGS__))
#define log_error_errno(error, ...) log_full(LOG_LEVEL_ERROR, error, __VA_ARGS__)
#define log_warning_errno(error, ...) log_full(LOG_LEVEL_WARNING, error, __VA_ARGS__)
