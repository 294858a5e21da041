/* SPDX-License-Identifier: Apache-2.0 */
/* ferry explain: what stands between one path and its copy. */

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "tools/client.h"
#include "util/cleanup.h"

static void fact(const char *label, const char *text)
{
	printf("  %-10s ", label);
	client_print(text);
	putchar('\n');
}

static bool has_data_mark(json_t *reply)
{
	return client_number(reply, "marks.data_bytes") +
			       client_number(reply, "marks.data_groups") >
		       0 ||
	       client_has(reply, "marks.data_from");
}

static void print_marks(json_t *reply)
{
	char bytes[TEXT_NUMBER_BYTES];
	bool has_any = false;

	if (client_bool(reply, "marks.name")) {
		fact("mark", "name: what this name stands for is yet to be made equal");
		has_any = true;
	}
	if (client_bool(reply, "marks.scan")) {
		fact("mark", "scan: its entries are yet to be looked at");
		has_any = true;
	}
	if (has_data_mark(reply)) {
		printf("  %-10s data: %s to copy%s\n", "mark",
		       text_put_bytes(bytes, client_number(reply, "marks.data_bytes")),
		       client_has(reply, "marks.data_from") &&
				       client_number(reply, "marks.data_from") == 0
			       ? " (all of it)"
			       : "");
		has_any = true;
	}
	if (client_bool(reply, "marks.attr")) {
		fact("mark", "attr: owner, mode, times or xattrs are yet to be made equal");
		has_any = true;
	}
	if (!has_any && client_bool(reply, "found") && client_number(reply, "object") == 0)
		fact("marks",
		     "none, for it has not been seen yet: its directory is still to be listed");
	else if (!has_any)
		fact("marks", "none: both sides are equal here");
	if (client_bool(reply, "marks.being_copied"))
		fact("now", "it is being copied");
	if (client_bool(reply, "marks.being_changed"))
		fact("now", "it is being changed");
	if (client_bool(reply, "marks.resting"))
		fact("now",
		     "it waits for something else on the target, or for a time after an error");
}

static void print_copy(json_t *reply)
{
	const char *at_name = client_string(reply, "at_name");
	bool is_over = strcmp(client_string(reply, "active"), "target") == 0;
	const char *label = is_over ? "source" : "target";

	if (client_has(reply, "copied_to"))
		fact(label, client_string(reply, "copied_to"));
	else if (!client_bool(reply, "found") && strcmp(at_name, "nothing") == 0)
		fact(label, "nothing of this name either");
	else if (client_bool(reply, "found") && strcmp(at_name, "same") != 0)
		fact(label, "it is not there yet");
	if (strcmp(at_name, "other") == 0)
		fact(label, "something else has this name there, for now");
	if (client_has(reply, "last_error"))
		fact("error", client_string(reply, "last_error"));
}

static void print_explanation(json_t *reply)
{
	client_print(client_string(reply, "path"));
	if (client_bool(reply, "found"))
		printf(": %s", client_string(reply, "kind"));
	else
		printf(": nothing of this name on the %s", client_string(reply, "active"));
	if (client_number(reply, "object") > 0)
		printf(", object %llu", (unsigned long long)client_number(reply, "object"));
	putchar('\n');
	print_marks(reply);
	print_copy(reply);
	if (strcmp(client_string(reply, "active"), "target") == 0)
		fact("note", "failed over: the source stays as it was, and no mark is worked off");
}

static int explain(const char *wanted, const char *path, bool is_json)
{
	_cleanup_json_ json_t *reply = NULL;
	_cleanup_free_ char *text = text_escape(path);
	char name[TEXT_NAME_MAX + 1];
	int r;

	if (!text)
		return client_failed("out of memory");
	r = client_find(wanted, name);
	if (r == 0)
		r = client_call(name, "explain", json_pack("{s:s}", "path", text), &reply);
	if (r != 0)
		return r;
	if (!is_json) {
		print_explanation(reply);
		return EXIT_DONE;
	}
	json_object_del(reply, "ok"); /* of the protocol */
	return client_print_json(reply);
}

int ferry_explain(int argc, char *argv[])
{
	static const struct option options[] = { { "json", no_argument, NULL, 'j' }, { 0 } };
	bool is_json = false;
	int option;

	while ((option = client_option(argc, argv, options)) != -1) {
		if (option == '?')
			return EXIT_USAGE;
		is_json = true;
	}
	switch (argc - optind) {
	case 1:
		return explain(NULL, argv[optind], is_json);
	case 2:
		return explain(argv[optind], argv[optind + 1], is_json);
	default:
		return client_usage("'explain' takes a PATH, or a NAME and a PATH");
	}
}
