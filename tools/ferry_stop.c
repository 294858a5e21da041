/* SPDX-License-Identifier: Apache-2.0 */
/* ferry stop: returns when the daemon has unmounted and closed its state. */

#include <getopt.h>
#include <stdio.h>

#include "tools/client.h"

/* The bare source shows again, and after a failover it is out of date. */
static void warn_stale(json_t *reply)
{
	const char *source = client_string(reply, "source"),
		   *target = client_string(reply, "target");

	(void)client_failed(
		"warning: '%s' was serving its target; what stands at '%s' now is the old source, "
		"as it was at the failover: use '%s', or start ferryfs again as before",
		client_string(reply, "name"), source, target);
}

int ferry_stop(int argc, char *argv[])
{
	static const struct option options[] = { { 0 } };
	_cleanup_json_ json_t *reply = NULL;
	char name[TEXT_NAME_MAX + 1];
	const char *wanted;
	int r;

	if (client_option(argc, argv, options) != -1)
		return EXIT_USAGE;
	r = client_operand(argc, argv, &wanted);
	if (r == 0)
		r = client_find(wanted, name);
	if (r == 0)
		r = client_call(name, "stop", NULL, &reply);
	if (r != 0)
		return r;
	if (client_bool(reply, "is_source_stale"))
		warn_stale(reply);
	return EXIT_DONE;
}
