/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ferry wait --converged: until the baseline is done, no gap is open, and what changes
 * is copied as fast as it changes. What is "converged" the daemon says (status.c).
 */

#include <getopt.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "tools/client.h"
#include "util/clock.h"

enum { POLL_MS = 200 };

static int timed_out(const char *name, json_t *status)
{
	char bytes[TEXT_NUMBER_BYTES], objects[TEXT_NUMBER_BYTES];

	text_put_bytes(bytes, client_number(status, "backlog.bytes"));
	text_put_count(objects, client_number(status, "backlog.objects") +
					client_number(status, "backlog.names") +
					client_number(status, "backlog.scans"));
	return client_failed("'%s' has not converged: %s%s, %s in %s marks to go%s%s", name,
			     client_string(status, "phase"),
			     client_bool(status, "paused") ? ", paused" : "", bytes, objects,
			     client_has(status, "errors.last") ? "; last error: " : "",
			     client_string(status, "errors.last"));
}

static int wait_converged(const char *name, uint64_t timeout_ms)
{
	uint64_t begin_ms = clock_ms();

	for (;;) {
		_cleanup_json_ json_t *status = NULL;
		uint64_t waited_ms = clock_ms() - begin_ms;
		int r;

		r = client_call(name, "status", NULL, &status);
		if (r != 0)
			return r;
		if (strcmp(client_string(status, "active"), "target") == 0) {
			printf("'%s' was failed over already\n", name);
			return EXIT_DONE;
		}
		if (client_bool(status, "converged"))
			return EXIT_DONE;
		if (client_bool(status, "marks_lost"))
			return client_failed(
				"'%s' cannot converge, marks were lost: 'ferry stop %s', then "
				"start it again",
				name, name);
		if (timeout_ms && waited_ms >= timeout_ms)
			return timed_out(name, status);
		(void)poll(NULL, 0, POLL_MS); /* a sleep */
	}
}

int ferry_wait(int argc, char *argv[])
{
	static const struct option options[] = {
		{ "converged", no_argument, NULL, 'c' },
		{ "timeout", required_argument, NULL, 't' },
		{ 0 },
	};
	bool is_for_converged = false;
	uint64_t timeout_ms = 0; /* for ever */
	char name[TEXT_NAME_MAX + 1];
	const char *wanted;
	int option, r;

	while ((option = client_option(argc, argv, options)) != -1) {
		if (option == '?')
			return EXIT_USAGE;
		is_for_converged |= option == 'c';
		if (option == 't' &&
		    (text_parse_duration(optarg, &timeout_ms) < 0 || timeout_ms == 0))
			return client_usage("--timeout takes a time such as 60s or 5m, not '%s'",
					    optarg);
	}
	if (!is_for_converged)
		return client_usage("say what to wait for: --converged");
	r = client_operand(argc, argv, &wanted);
	if (r == 0)
		r = client_find(wanted, name);
	return r != 0 ? r : wait_converged(name, timeout_ms);
}
