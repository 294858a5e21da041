/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/client.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/cleanup.h"

enum { STATUS_MS_MAX = 5000 }; /* a daemon that takes longer is stuck */

static void complain(const char *format, va_list args)
{
	_cleanup_free_ char *text = NULL, *safe = NULL;

	if (vasprintf(&text, format, args) < 0)
		text = NULL;
	safe = text ? text_printable(text) : NULL;
	fprintf(stderr, "ferry: %s\n", safe ? safe : "out of memory");
}

int client_failed(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	complain(format, args);
	va_end(args);
	return EXIT_FAILED;
}

int client_usage(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	complain(format, args);
	va_end(args);
	return EXIT_USAGE;
}

int client_option(int argc, char *argv[], const struct option *options)
{
	int option;

	opterr = 0;
	option = getopt_long(argc, argv, ":", options, NULL);
	if (option == ':')
		client_usage("'%s' needs an argument", argv[optind - 1]);
	else if (option == '?' && optopt)
		client_usage("'%s' has no option '-%c' (see 'ferry --help')", argv[0], optopt);
	else if (option == '?')
		client_usage("'%s' has no option '%s' (see 'ferry --help')", argv[0],
			     argv[optind - 1]);
	else
		return option;
	return '?';
}

int client_operand(int argc, char *argv[], const char **ret_name)
{
	if (argc - optind > 1)
		return client_usage("what is '%s'? One migration at a time", argv[optind + 1]);
	*ret_name = argc > optind ? argv[optind] : NULL;
	return 0;
}

/* ---- finding ------------------------------------------------------------- */

struct search {
	const char *path; /* of a mount or a source; NULL: any */
	unsigned count;
	char name[TEXT_NAME_MAX + 1]; /* the last one found */
	char *names;		      /* all of them, for people; owned */
};

static int search_add(struct search *search, const char *name)
{
	char *names;

	if (asprintf(&names, "%s%s%s", search->names ? search->names : "",
		     search->names ? ", " : "", name) < 0)
		return -ENOMEM;
	free(search->names);
	search->names = names;
	strcpy(search->name, name);
	search->count++;
	return 0;
}

static int search_each(void *context, const char *name)
{
	_cleanup_json_ json_t *request = json_pack("{s:s}", "command", "status"), *status = NULL;
	struct search *search = context;
	_cleanup_close_ int fd = -1;

	if (!search->path) {
		/* One that does not answer counts too: it is what the command is about. */
		return wire_connect(name, &fd, NULL) < 0 ? 0 : search_add(search, name);
	}
	if (!request || wire_call(name, request, STATUS_MS_MAX, &status, NULL) < 0)
		return 0;
	if (strcmp(client_string(status, "mount"), search->path) != 0 &&
	    strcmp(client_string(status, "source"), search->path) != 0)
		return 0;
	return search_add(search, name);
}

/* A trailing slash is no part of the name of a directory. */
static char *trim_path(const char *path)
{
	char *trimmed = strdup(path);
	size_t length = strlen(path);

	while (trimmed && length > 1 && trimmed[length - 1] == '/')
		trimmed[--length] = '\0';
	return trimmed;
}

static int search_result(const struct search *search, const char *wanted,
			 char ret_name[static TEXT_NAME_MAX + 1])
{
	if (search->count == 0 && wanted)
		return client_failed(
			"no migration has '%s' as its mount or source: see 'ferry list'", wanted);
	if (search->count == 0)
		return client_failed(
			"no migration is running: start one with 'ferryfs SOURCE TARGET'");
	if (search->count > 1)
		return client_usage("several migrations are running, name one: %s", search->names);
	strcpy(ret_name, search->name);
	return 0;
}

int client_find(const char *wanted, char ret_name[static TEXT_NAME_MAX + 1])
{
	_cleanup_free_ char *path = NULL;
	struct search search = { 0 };
	int r;

	if (wanted && !strchr(wanted, '/')) {
		if (!text_is_name(wanted))
			return client_usage("'%s' cannot be the name of a migration", wanted);
		strcpy(ret_name, wanted);
		return 0;
	}
	if (wanted) {
		search.path = path = trim_path(wanted);
		if (!path)
			return client_failed("out of memory");
	}
	r = wire_each(search_each, &search);
	r = r < 0 ? client_failed("cannot list '%s': %s", WIRE_DIR, strerror(-r))
		  : search_result(&search, wanted, ret_name);
	free(search.names);
	return r;
}

/* ---- asking -------------------------------------------------------------- */

static int call_failed(const char *name, int r)
{
	switch (r) {
	case -ENOENT:
		return client_failed("'%s' is not running: see 'ferry list'", name);
	case -ECONNREFUSED:
		return client_failed(
			"'%s' is not running, it has died: start ferryfs again as before", name);
	case -ECONNRESET:
	case -EPIPE:
		return client_failed("'%s' ended before it answered: see its log", name);
	case -EACCES:
	case -EPERM:
		return client_failed("only root may talk to '%s'", name);
	case -ETIMEDOUT:
		return client_failed("'%s' does not answer", name);
	default:
		return client_failed("cannot talk to '%s': %s", name, strerror(-r));
	}
}

int client_call(const char *name, const char *command, json_t *arguments, json_t **ret_reply)
{
	_cleanup_json_ json_t *request = arguments ? arguments : json_object();
	_cleanup_json_ json_t *reply = NULL;
	bool is_status = strcmp(command, "status") == 0;
	int r;

	if (!request || json_object_set_new(request, "command", json_string(command)) < 0)
		return client_failed("out of memory");
	r = wire_call(name, request, is_status ? STATUS_MS_MAX : -1, &reply, NULL);
	if (r < 0)
		return call_failed(name, r);
	if (!client_bool(reply, "ok"))
		return client_failed("%s", client_string(reply, "error"));
	*ret_reply = TAKE_PTR(reply);
	return 0;
}

/* ---- looking into replies ------------------------------------------------ */

static json_t *member(json_t *object, const char *path)
{
	char key[64];

	while (object && *path) {
		size_t length = strcspn(path, ".");

		assert(length < sizeof(key));
		memcpy(key, path, length);
		key[length] = '\0';
		object = json_object_get(object, key);
		path += length;
		path += *path == '.';
	}
	return object;
}

const char *client_string(json_t *object, const char *path)
{
	const char *string = json_string_value(member(object, path));

	return string ? string : "";
}

uint64_t client_number(json_t *object, const char *path)
{
	json_int_t number = json_integer_value(member(object, path));

	return number > 0 ? (uint64_t)number : 0;
}

double client_real(json_t *object, const char *path)
{
	return json_number_value(member(object, path));
}

bool client_bool(json_t *object, const char *path)
{
	return json_is_true(member(object, path));
}

bool client_has(json_t *object, const char *path)
{
	json_t *found = member(object, path);

	return found && !json_is_null(found);
}

void client_print(const char *string)
{
	_cleanup_free_ char *safe = text_printable(string);

	fputs(safe ? safe : "?", stdout);
}

int client_print_json(json_t *json)
{
	_cleanup_free_ char *text = json_dumps(json, JSON_INDENT(2));

	if (!text)
		return client_failed("out of memory");
	puts(text);
	return 0;
}
