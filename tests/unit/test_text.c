/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tools/text.h"

static void durations_are_read_with_and_without_unit(void **state)
{
	static const struct {
		const char *text;
		uint64_t ms;
	} good[] = {
		{ "0", 0 },	  { "2", 2000 },    { "2s", 2000 },	{ "500ms", 500 },
		{ "1.5s", 1500 }, { "3m", 180000 }, { "3min", 180000 }, { "1h", 3600000 },
	};
	uint64_t ms;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		assert_int_equal(text_parse_duration(good[i].text, &ms), 0);
		assert_int_equal(ms, good[i].ms);
	}
}

static void bad_durations_are_refused(void **state)
{
	static const char *const bad[] = { "",	   "s",	  "-1",	 "+1", " 1",	"1 s", "1x",
					   "0x10", "inf", "nan", ".5", "1.2.3", "1e3" };
	uint64_t ms = 7;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(text_parse_duration(bad[i], &ms), -EINVAL);
	assert_int_equal(text_parse_duration("99999999999h", &ms), -ERANGE);
	assert_int_equal(ms, 7);
}

static void counts_are_bounded(void **state)
{
	unsigned count = 7;

	(void)state;
	assert_int_equal(text_parse_count("8", 1, 8, &count), 0);
	assert_int_equal(count, 8);
	assert_int_equal(text_parse_count("9", 1, 8, &count), -ERANGE);
	assert_int_equal(text_parse_count("0", 1, 8, &count), -ERANGE);
	assert_int_equal(text_parse_count("99999999999999999999999", 1, 8, &count), -ERANGE);
	assert_int_equal(text_parse_count("", 1, 8, &count), -EINVAL);
	assert_int_equal(text_parse_count("-1", 1, 8, &count), -EINVAL);
	assert_int_equal(text_parse_count("1 ", 1, 8, &count), -EINVAL);
	assert_int_equal(count, 8);
}

static void numbers_are_printed_for_people(void **state)
{
	char text[TEXT_NUMBER_BYTES];

	(void)state;
	assert_string_equal(text_put_count(text, 0), "0");
	assert_string_equal(text_put_count(text, 999), "999");
	assert_string_equal(text_put_count(text, 1000), "1,000");
	assert_string_equal(text_put_count(text, UINT64_MAX), "18,446,744,073,709,551,615");
	assert_string_equal(text_put_bytes(text, 1023), "1023 B");
	assert_string_equal(text_put_bytes(text, 1024), "1.0 KiB");
	assert_string_equal(text_put_bytes(text, 1024 * 1024 - 1), "1.0 MiB");
	assert_string_equal(text_put_bytes(text, UINT64_MAX), "16.0 EiB");
	assert_string_equal(text_put_duration(text, 0), "0 ms");
	assert_string_equal(text_put_duration(text, 999), "999 ms");
	assert_string_equal(text_put_duration(text, 2100), "2.1 s");
	assert_string_equal(text_put_duration(text, 59999), "1 min 0 s");
	assert_string_equal(text_put_duration(text, 200000), "3 min 20 s");
	assert_string_equal(text_put_duration(text, 7500000), "2 h 5 min");
	assert_string_equal(text_put_duration(text, 3 * 86400000ull), "3 d 0 h");
}

static void a_name_is_made_of_a_path(void **state)
{
	char name[TEXT_NAME_MAX + 1] = "as it was";
	char path[TEXT_NAME_MAX + 3];

	(void)state;
	assert_int_equal(text_name_from_path("/", name), -EINVAL);
	memset(path, 'a', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	assert_int_equal(text_name_from_path(path, name), -ENAMETOOLONG);
	assert_string_equal(name, "as it was");
	assert_int_equal(text_name_from_path("/srv/data", name), 0);
	assert_string_equal(name, "srv-data");
	assert_int_equal(text_name_from_path("/srv/.my data\n\xff", name), 0);
	assert_string_equal(name, "srv-.my_data__");
	assert_int_equal(text_name_from_path("/.x", name), 0);
	assert_string_equal(name, "x");
}

static void names_that_could_leave_the_directory_are_none(void **state)
{
	(void)state;
	assert_true(text_is_name("a"));
	assert_true(text_is_name("srv-data_1.x"));
	assert_false(text_is_name(""));
	assert_false(text_is_name(".."));
	assert_false(text_is_name("-x"));
	assert_false(text_is_name("a/b"));
	assert_false(text_is_name("a b"));
	assert_false(
		text_is_name("12345678901234567890123456789012345678901234567890123456789012345"));
}

static void any_bytes_survive_escaping(void **state)
{
	char all[256], *text, *bytes;

	(void)state;
	for (int i = 1; i < 256; i++)
		all[i - 1] = (char)i;
	all[255] = '\0';
	text = text_escape(all);
	assert_non_null(text);
	for (const char *c = text; *c; c++)
		assert_true(*c >= 0x20 && *c < 0x7f);
	bytes = text_unescape(text);
	assert_non_null(bytes);
	assert_string_equal(bytes, all);
	free(bytes);
	free(text);
}

static void utf8_stays_readable(void **state)
{
	char *text = text_escape(
		"gr\xc3\xbc\xc3\x9f\\e \xe2\x82\xac \xf0\x9f\x9a\xa2 \xc2\x9b \x1b[m \xed\xa0\x80 \xc0\x80");

	(void)state;
	assert_string_equal(
		text, "gr\xc3\xbc\xc3\x9f\\\\e \xe2\x82\xac \xf0\x9f\x9a\xa2 \\xc2\\x9b \\x1b[m "
		      "\\xed\\xa0\\x80 \\xc0\\x80");
	free(text);
}

static void what_is_printed_is_escaped_once(void **state)
{
	char *text = text_printable("a\\x0a\n");

	(void)state;
	assert_string_equal(text, "a\\x0a\\x0a");
	free(text);
}

static void what_was_not_escaped_is_not_unescaped(void **state)
{
	static const char *const bad[] = { "\\", "\\x", "\\x1", "\\x00", "\\xAB", "\\y", "a\\" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		errno = 0;
		assert_null(text_unescape(bad[i]));
		assert_int_equal(errno, EINVAL);
	}
}

static void distance_counts_slips(void **state)
{
	(void)state;
	assert_int_equal(text_distance("status", "status"), 0);
	assert_int_equal(text_distance("statsu", "status"), 2);
	assert_int_equal(text_distance("stats", "status"), 1);
	assert_int_equal(text_distance("", "stop"), 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(durations_are_read_with_and_without_unit),
		cmocka_unit_test(bad_durations_are_refused),
		cmocka_unit_test(counts_are_bounded),
		cmocka_unit_test(numbers_are_printed_for_people),
		cmocka_unit_test(a_name_is_made_of_a_path),
		cmocka_unit_test(names_that_could_leave_the_directory_are_none),
		cmocka_unit_test(any_bytes_survive_escaping),
		cmocka_unit_test(utf8_stays_readable),
		cmocka_unit_test(what_is_printed_is_escaped_once),
		cmocka_unit_test(what_was_not_escaped_is_not_unescaped),
		cmocka_unit_test(distance_counts_slips),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
