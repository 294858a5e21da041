/* SPDX-License-Identifier: Apache-2.0 */
/* ferry failover: the mount goes on from the target. */

#include <getopt.h>
#include <stdio.h>

#include "tools/client.h"

static void print_done(json_t *reply)
{
	char freeze[TEXT_NUMBER_BYTES];

	if (client_bool(reply, "was_done_before")) {
		printf("'%s' was failed over already\n", client_string(reply, "name"));
		return;
	}
	printf("failed over '%s': changes were held for %s, ", client_string(reply, "name"),
	       text_put_duration(freeze, client_number(reply, "freeze_ms")));
	client_print(client_string(reply, "mount"));
	fputs(" is served from ", stdout);
	client_print(client_string(reply, "target"));
	putchar('\n');
}

int ferry_failover(int argc, char *argv[])
{
	static const struct option options[] = { { "max-freeze", required_argument, NULL, 'm' },
						 { 0 } };
	_cleanup_json_ json_t *reply = NULL;
	uint64_t freeze_ms_max = 2000;
	char name[TEXT_NAME_MAX + 1];
	const char *wanted;
	int option, r;

	while ((option = client_option(argc, argv, options)) != -1) {
		if (option == '?')
			return EXIT_USAGE;
		if (text_parse_duration(optarg, &freeze_ms_max) < 0 || freeze_ms_max == 0 ||
		    freeze_ms_max > 3600 * 1000)
			return client_usage(
				"--max-freeze takes a time such as 500ms or 2s, up to an hour, not '%s'",
				optarg);
	}
	r = client_operand(argc, argv, &wanted);
	if (r == 0)
		r = client_find(wanted, name);
	if (r == 0)
		r = client_call(name, "failover",
				json_pack("{s:I}", "max_freeze_ms", (json_int_t)freeze_ms_max),
				&reply);
	if (r != 0)
		return r;
	print_done(reply);
	return EXIT_DONE;
}
