/* SPDX-License-Identifier: Apache-2.0 */
#include "util/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LOG_LINE_MAX = 1024 }; /* bytes; what is longer is cut */

static _Atomic int log_fd = STDERR_FILENO;
static _Atomic bool log_has_time;
static _Atomic int log_level = LOG_LEVEL_INFO;

void log_set_level(enum log_level level)
{
	assert(level < LOG_LEVEL_MAX);
	log_level = (int)level;
}

void log_to_fd(int fd)
{
	assert(fd >= 0);
	log_fd = fd;
	log_has_time = true;
}

static size_t put(char *line, size_t at, const char *format, ...) PRINTF_LIKE(3, 4);

static size_t put_list(char *line, size_t at, const char *format, va_list args) PRINTF_LIKE(3, 0);

static size_t put_list(char *line, size_t at, const char *format, va_list args)
{
	int n = vsnprintf(line + at, LOG_LINE_MAX - at, format, args);

	if (n < 0)
		return at;
	at += (size_t)n;
	return at < LOG_LINE_MAX ? at : LOG_LINE_MAX - 1;
}

static size_t put(char *line, size_t at, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	at = put_list(line, at, format, args);
	va_end(args);
	return at;
}

static size_t put_time(char *line, size_t at)
{
	struct timespec now;
	struct tm tm;

	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	return put(line, at, "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ ", tm.tm_year + 1900, tm.tm_mon + 1,
		   tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, now.tv_nsec / 1000000);
}

int log_full(enum log_level level, int error, const char *format, ...)
{
	static const char *const names[] = { "error", "warning", "info", "debug" };
	int saved = errno;
	char line[LOG_LINE_MAX];
	char text[128];
	va_list args;
	size_t at = 0;

	static_assert(ARRAY_SIZE(names) == LOG_LEVEL_MAX, "a name for each level");
	error = abs(error);
	if ((int)level > log_level)
		return -error;

	if (log_has_time)
		at = put_time(line, at);
	at = put(line, at, "%s: %s: ", program_invocation_short_name, names[level]);
	va_start(args, format);
	at = put_list(line, at, format, args);
	va_end(args);
	if (error)
		at = put(line, at, ": %s", strerror_r(error, text, sizeof(text)));
	if (at > LOG_LINE_MAX - 1)
		at = LOG_LINE_MAX - 1;
	line[at++] = '\n';
	if (write(log_fd, line, at) < 0) {
		/* A log that cannot be written has nowhere to be reported. */
	}
	errno = saved;
	return -error;
}
