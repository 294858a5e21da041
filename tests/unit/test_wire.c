/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "tools/wire.h"

static int setup(void **state)
{
	static int fds[2];

	*state = fds;
	return socketpair(AF_UNIX, SOCK_STREAM, 0, fds);
}

static int teardown(void **state)
{
	int *fds = *state;

	close(fds[0]);
	close(fds[1]);
	return 0;
}

static void a_message_arrives_as_it_was(void **state)
{
	json_t *sent = json_pack("{s:s, s:I}", "command", "x\ny", "n", (json_int_t)INT64_MAX),
	       *got = NULL;
	int *fds = *state;

	assert_int_equal(wire_send(fds[0], sent, 0), 0);
	assert_int_equal(wire_receive(fds[1], 1000, &got), 0);
	assert_true(json_equal(sent, got));
	json_decref(sent);
	json_decref(got);
}

static void *send_rest(void *argument)
{
	int *fds = argument;

	assert_int_equal(send(fds[0], ": 1}\n{", 6, 0), 6);
	return NULL;
}

static void a_message_in_pieces_is_put_together(void **state)
{
	int *fds = *state;
	json_t *got = NULL;
	pthread_t sender;

	assert_int_equal(send(fds[0], "{\"a\"", 4, 0), 4);
	assert_int_equal(pthread_create(&sender, NULL, send_rest, fds), 0);
	assert_int_equal(wire_receive(fds[1], 1000, &got), 0);
	pthread_join(sender, NULL);
	assert_int_equal(json_integer_value(json_object_get(got, "a")), 1);
	json_decref(got);
}

static void waiting_has_an_end(void **state)
{
	int *fds = *state;
	json_t *got = NULL;

	assert_int_equal(wire_receive(fds[1], 20, &got), -ETIMEDOUT);
}

static void what_is_no_object_is_refused(void **state)
{
	static const char *const bad[] = {
		"\n", "1\n", "[]\n", "{\n", "{\"a\": 1, \"a\": 2}\n", "{} x\n", "\xff\n"
	};
	int *fds = *state;
	json_t *got = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_int_equal(send(fds[0], bad[i], strlen(bad[i]), 0), (int)strlen(bad[i]));
		assert_int_equal(wire_receive(fds[1], 1000, &got), -EBADMSG);
	}
	assert_null(got);
}

static void the_end_of_the_other_side_is_seen(void **state)
{
	int *fds = *state;
	json_t *got = NULL;

	shutdown(fds[0], SHUT_WR);
	assert_int_equal(wire_receive(fds[1], 1000, &got), -ECONNRESET);
}

static void *send_much(void *argument)
{
	static char much[2 * WIRE_LINE_MAX];
	int *fds = argument;
	ssize_t n;

	memset(much, ' ', sizeof(much));
	n = send(fds[0], much, sizeof(much), MSG_NOSIGNAL); /* the reader gives up before its end */
	return (void *)n;
}

static void lines_are_bounded(void **state)
{
	char *text = malloc(WIRE_LINE_MAX);
	int *fds = *state;
	json_t *big, *got = NULL;
	pthread_t sender;

	assert_non_null(text);
	memset(text, 'x', WIRE_LINE_MAX - 1);
	text[WIRE_LINE_MAX - 1] = '\0';
	big = json_pack("{s:s}", "a", text);
	assert_int_equal(wire_send(fds[0], big, 0), -EMSGSIZE);
	json_decref(big);
	free(text);

	assert_int_equal(pthread_create(&sender, NULL, send_much, fds), 0);
	assert_int_equal(wire_receive(fds[1], 1000, &got), -EMSGSIZE);
	shutdown(fds[1], SHUT_RDWR);
	pthread_join(sender, NULL);
}

static void bytes_that_are_no_text_become_text(void **state)
{
	json_t *plain = wire_text("a\\b \xc3\xbc"), *strange = wire_text("a\xff");

	(void)state;
	assert_string_equal(json_string_value(plain), "a\\b \xc3\xbc");
	assert_string_equal(json_string_value(strange), "a\\xff");
	json_decref(plain);
	json_decref(strange);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_message_arrives_as_it_was, setup, teardown),
		cmocka_unit_test_setup_teardown(a_message_in_pieces_is_put_together, setup,
						teardown),
		cmocka_unit_test_setup_teardown(waiting_has_an_end, setup, teardown),
		cmocka_unit_test_setup_teardown(what_is_no_object_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(the_end_of_the_other_side_is_seen, setup, teardown),
		cmocka_unit_test_setup_teardown(lines_are_bounded, setup, teardown),
		cmocka_unit_test(bytes_that_are_no_text_become_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
