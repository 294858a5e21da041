/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tools/options.h"

enum { WORDS_MAX = 24 };

/* Parses "ferryfs" and @line, split at spaces. */
static int parse(const char *line, struct options *options)
{
	static char copy[512];
	char *argv[WORDS_MAX + 1] = { (char *)"ferryfs" }, *save;
	int argc = 1;

	assert_true(strlen(line) < sizeof(copy));
	strcpy(copy, line);
	for (char *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
		assert_true(argc < WORDS_MAX);
		argv[argc++] = word;
	}
	return options_parse(argc, argv, options);
}

static void two_paths_are_enough(void **state)
{
	struct options options;

	(void)state;
	assert_int_equal(parse("/srv/data /mnt/new", &options), 0);
	assert_string_equal(options.source, "/srv/data");
	assert_string_equal(options.target, "/mnt/new");
	assert_null(options.at);
	assert_null(options.name);
	assert_null(options.state);
	assert_null(options.log);
	assert_false(options.is_foreground);
	assert_int_equal(options.workers, 0);
	assert_true(options.threads > 0);
	assert_true(options.connections > 0);
}

static void every_option_arrives(void **state)
{
	struct options options;

	(void)state;
	assert_int_equal(
		parse("-f -d --at /m --name n --state /s --log /l --workers 3 /a --connections 4 /b",
		      &options),
		0);
	assert_true(options.is_foreground);
	assert_true(options.is_debug);
	assert_string_equal(options.at, "/m");
	assert_string_equal(options.name, "n");
	assert_string_equal(options.state, "/s");
	assert_string_equal(options.log, "/l");
	assert_int_equal(options.workers, 3);
	assert_int_equal(options.connections, 4);
	assert_int_equal(
		parse("--adopt --threads=7 --hold-down 1.5s a nfs://h/e?nfsport=1", &options), 0);
	assert_true(options.is_adopting);
	assert_int_equal(options.threads, 7);
	assert_int_equal(options.hold_down_s, 2);
}

static void bad_lines_are_usage_errors(void **state)
{
	static const char *const bad[] = {
		"",
		"/a",
		"/a /b /c",
		"-x /a /b",
		"--nope /a /b",
		"--name",
		"--name a/b /a /b",
		"--name .. /a /b",
		"--workers 0 /a /b",
		"--workers x /a /b",
		"--workers 257 /a /b",
		"--connections 9 /a /b",
		"--threads 0 /a /b",
		"--hold-down 2h /a /b",
		"nfs://h/e /b",
		"/a smb://h/e",
		"/a http://h/e",
	};
	struct options options = { .name = "as it was" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(parse(bad[i], &options), OPTIONS_E_USAGE);
	assert_string_equal(options.name, "as it was");
}

static void help_and_version_end_the_program(void **state)
{
	struct options options;

	(void)state;
	assert_int_equal(parse("--help", &options), OPTIONS_E_DONE);
	assert_int_equal(parse("-V /a", &options), OPTIONS_E_DONE);
}

static void a_path_with_a_colon_is_no_url(void **state)
{
	(void)state;
	assert_true(options_is_url("nfs://h/e"));
	assert_true(options_is_url("s3://b"));
	assert_false(options_is_url("/a://b"));
	assert_false(options_is_url("://"));
	assert_false(options_is_url("host:/export"));
	assert_false(options_is_url("a b://c"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(two_paths_are_enough),
		cmocka_unit_test(every_option_arrives),
		cmocka_unit_test(bad_lines_are_usage_errors),
		cmocka_unit_test(help_and_version_end_the_program),
		cmocka_unit_test(a_path_with_a_colon_is_no_url),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
