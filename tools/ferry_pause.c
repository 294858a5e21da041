/* SPDX-License-Identifier: Apache-2.0 */
/* ferry pause, ferry resume: whether anything is copied. Changes are remembered anyway. */

#include <getopt.h>
#include <stddef.h>

#include "tools/client.h"

static int send_plain(int argc, char *argv[], const char *command)
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
		r = client_call(name, command, NULL, &reply);
	return r;
}

int ferry_pause(int argc, char *argv[])
{
	return send_plain(argc, argv, "pause");
}

int ferry_resume(int argc, char *argv[])
{
	return send_plain(argc, argv, "resume");
}
