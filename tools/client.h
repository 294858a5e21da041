/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * What the subcommands of ferry share: finding the daemon that is meant, asking it,
 * and saying what is wrong. Everything that fails here has been printed.
 */

#include <jansson.h>
#include <stdbool.h>

#include "tools/text.h"
#include "tools/wire.h"
#include "util/attr.h"

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

/* A subcommand: @argv[0] is its name. Returns the exit code. */
struct ferry_command {
	const char *name, *arguments, *summary;
	int (*run)(int argc, char *argv[]);
};

int ferry_list(int argc, char *argv[]);
int ferry_status(int argc, char *argv[]);
int ferry_wait(int argc, char *argv[]);
int ferry_failover(int argc, char *argv[]);
int ferry_pause(int argc, char *argv[]);
int ferry_resume(int argc, char *argv[]);
int ferry_stop(int argc, char *argv[]);
int ferry_explain(int argc, char *argv[]);

/* "ferry: ..." on stderr. Return the exit code. */
int client_failed(const char *format, ...) PRINTF_LIKE(1, 2);
int client_usage(const char *format, ...) PRINTF_LIKE(1, 2);

/* getopt_long() for a subcommand: -1 at the end, '?' after what is wrong was printed. */
struct option;
int client_option(int argc, char *argv[], const struct option *options);

/* The operand after the options that names a migration, NULL if there is none; more
 * than one is a usage error: non-zero. */
int client_operand(int argc, char *argv[], const char **ret_name) MUST_CHECK;

/* Finds the migration meant by @wanted: a name, the path of a mount or source, or
 * NULL for the only one there is. 0, or the exit code. */
int client_find(const char *wanted, char ret_name[static TEXT_NAME_MAX + 1]) MUST_CHECK;

/* Asks @name for @command with @arguments (taken, may be NULL) and waits for ever. 0 and
 * a reply that is ok (the caller's), or the exit code. */
int client_call(const char *name, const char *command, json_t *arguments,
		json_t **ret_reply) MUST_CHECK;

/* A member of @object, by a path like "backlog.bytes"; "", 0, or false where there is none. */
const char *client_string(json_t *object, const char *path);
uint64_t client_number(json_t *object, const char *path);
double client_real(json_t *object, const char *path);
bool client_bool(json_t *object, const char *path);
bool client_has(json_t *object, const char *path); /* and it is not null */

/* Prints @json for scripts. 0, or the exit code. */
int client_print_json(json_t *json) MUST_CHECK;

/* Prints @string with nothing in it that a terminal obeys. */
void client_print(const char *string);
