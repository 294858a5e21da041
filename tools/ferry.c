/* SPDX-License-Identifier: Apache-2.0 */
/* ferry: asks and commands the migrations that run (ferryfs). */

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "tools/client.h"
#include "util/cleanup.h"
#include "version.h"

static const struct ferry_command commands[] = {
	{ "list", "[--json]", "the migrations there are", ferry_list },
	{ "status", "[NAME] [--json] [--watch]", "how far one is", ferry_status },
	{ "wait", "[NAME] --converged [--timeout 60s]", "until it could fail over at once",
	  ferry_wait },
	{ "failover", "[NAME] [--max-freeze 2s]", "go on from the target", ferry_failover },
	{ "pause", "[NAME]", "copy nothing for a while", ferry_pause },
	{ "resume", "[NAME]", "copy again", ferry_resume },
	{ "stop", "[NAME]", "unmount and end; ferryfs resumes it", ferry_stop },
	{ "explain", "[NAME] PATH [--json]", "what is known of one path", ferry_explain },
};

static void print_help(void)
{
	printf("Usage: ferry COMMAND [NAME] [options]\n"
	       "\n"
	       "NAME is a migration's name, or the path of its mount; it may be left out when\n"
	       "there is only one.\n"
	       "\n");
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		printf("  %-8s %-37s %s\n", commands[i].name, commands[i].arguments,
		       commands[i].summary);
	printf("\n"
	       "Exit code: 0 done, 1 failed, 2 wrong usage.\n");
}

/* The command nearest to @word, if it is near at all. */
static const char *nearest(const char *word)
{
	const char *best = NULL;
	unsigned distance = (unsigned)strlen(word) / 2 + 1;

	for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
		unsigned d = text_distance(word, commands[i].name);

		if (d < distance) {
			distance = d;
			best = commands[i].name;
		}
	}
	return best;
}

static int run(int argc, char *argv[])
{
	const char *guess;

	for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
		if (strcmp(argv[0], commands[i].name) == 0)
			return commands[i].run(argc, argv);
	}
	guess = nearest(argv[0]);
	if (guess)
		return client_usage("there is no command '%s'; is '%s' meant?", argv[0], guess);
	return client_usage("there is no command '%s' (see 'ferry --help')", argv[0]);
}

static bool is_option(const char *word, const char *brief, const char *full)
{
	return strcmp(word, brief) == 0 || strcmp(word, full) == 0;
}

int main(int argc, char *argv[])
{
	int code = EXIT_DONE;

	if (argc < 2)
		return client_usage("a command is missing (see 'ferry --help')");
	if (is_option(argv[1], "-h", "--help") || strcmp(argv[1], "help") == 0)
		print_help();
	else if (is_option(argv[1], "-V", "--version"))
		printf("ferry %s\n", FERRYFS_VERSION);
	else if (argc > 2 && is_option(argv[2], "-h", "--help"))
		print_help();
	else
		code = run(argc - 1, argv + 1);
	/* A status that did not reach the disk or the pipe is no status. */
	if (fflush(stdout) != 0)
		return client_failed("cannot write the output: %s", strerror(errno));
	return code;
}
