/* SPDX-License-Identifier: Apache-2.0 */
/* ferry list: those that run, and those that were stopped or killed and keep state. */

#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/about.h"
#include "tools/client.h"
#include "util/cleanup.h"

static int add_running(void *context, const char *name)
{
	_cleanup_json_ json_t *request = json_pack("{s:s}", "command", "status");
	json_t *list = context, *status = NULL;
	int r;

	if (!request)
		return -ENOMEM;
	r = wire_call(name, request, 2000, &status, NULL);
	if (r == -ETIMEDOUT)
		status = json_pack("{s:s, s:s}", "name", name, "phase", "not answering");
	else if (r < 0)
		return 0; /* the socket of a daemon that was killed */
	return status && json_array_append_new(list, status) == 0 ? 0 : -ENOMEM;
}

static bool has(json_t *list, const char *name)
{
	json_t *item;
	size_t i;

	json_array_foreach(list, i, item)
	{
		if (strcmp(client_string(item, "name"), name) == 0)
			return true;
	}
	return false;
}

/* Of what does not run: one that was killed leaves its socket. */
static const char *ended_phase(const char *name)
{
	int fd = -1, r = wire_connect(name, &fd, NULL);

	(void)fd_close(fd); /* it may have come back this moment: then the next look shows it */
	return r == -ECONNREFUSED ? "died" : "stopped";
}

static void add_stopped(json_t *list, const char *name)
{
	_cleanup_json_ json_t *about = NULL;
	char path[sizeof(ABOUT_STATE_DIR) + TEXT_NAME_MAX + 2];

	if (!text_is_name(name) || has(list, name))
		return;
	(void)snprintf(path, sizeof(path), ABOUT_STATE_DIR "/%.*s", TEXT_NAME_MAX, name); /* fits */
	if (about_read(path, &about) < 0)
		return;
	(void)json_object_set_new(about, "phase",
				  json_string(ended_phase(name))); /* then it is shown without */
	(void)json_array_append(list, about);
}

static int collect(json_t *list)
{
	struct dirent **entries = NULL;
	int count, r;

	r = wire_each(add_running, list);
	if (r < 0)
		return client_failed("cannot list '%s': %s", WIRE_DIR, strerror(-r));
	count = scandir(ABOUT_STATE_DIR, &entries, NULL, alphasort);
	if (count < 0 && errno != ENOENT)
		return client_failed("cannot list '%s': %s", ABOUT_STATE_DIR, strerror(errno));
	for (int i = 0; i < count; i++) {
		add_stopped(list, entries[i]->d_name);
		free(entries[i]);
	}
	free(entries);
	return 0;
}

static void print(json_t *list)
{
	json_t *item;
	size_t i;

	if (json_array_size(list) == 0) {
		puts("no migrations");
		return;
	}
	printf("%-20s %-13s %10s  %s\n", "NAME", "PHASE", "BACKLOG", "SOURCE -> TARGET");
	json_array_foreach(list, i, item)
	{
		char backlog[TEXT_NUMBER_BYTES] = "-";

		if (client_has(item, "backlog"))
			text_put_bytes(backlog, client_number(item, "backlog.bytes"));
		printf("%-20s %-13s %10s  ", client_string(item, "name"),
		       client_string(item, "phase"), backlog);
		client_print(client_string(item, "source"));
		fputs(" -> ", stdout);
		client_print(client_string(item, "target"));
		putchar('\n');
	}
}

int ferry_list(int argc, char *argv[])
{
	static const struct option options[] = { { "json", no_argument, NULL, 'j' }, { 0 } };
	_cleanup_json_ json_t *list = json_array();
	bool is_json = false;
	int option, r;

	while ((option = client_option(argc, argv, options)) != -1) {
		if (option == '?')
			return EXIT_USAGE;
		is_json = true;
	}
	if (argc > optind)
		return client_usage("'list' takes no '%s'", argv[optind]);
	if (!list)
		return client_failed("out of memory");
	r = collect(list);
	if (r != 0)
		return r;
	if (is_json)
		return client_print_json(list);
	print(list);
	return EXIT_DONE;
}
