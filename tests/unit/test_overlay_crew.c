/* SPDX-License-Identifier: Apache-2.0 */
/* The crew, with a pipe in place of the kernel: each byte is a request. */
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "fs/overlay/crew.h"

enum { THREADS = 4, QUICK = 'q', HELD_UP = 'h', LIMIT_MS = 20000 };

static struct crew *crew;
static int requests[2], replies[2], hold[2];
static pthread_t servers[THREADS], watcher;
static _Atomic unsigned served_by[THREADS];

static void *serve(void *argument)
{
	size_t number = (size_t)(uintptr_t)argument;
	char request, release;

	for (;;) {
		ssize_t n;

		crew_read_begin(crew);
		n = read(requests[0], &request, 1);
		if (crew_read_end(crew) &&
		    poll(&(struct pollfd){ .fd = requests[0], .events = POLLIN }, 1, 0) > 0)
			crew_wake(crew);
		if (n <= 0)
			break;
		atomic_fetch_add(&served_by[number], 1);
		if (request == HELD_UP)
			assert_int_equal(read(hold[0], &release, 1), 1);
		assert_int_equal(write(replies[1], &request, 1), 1);
		crew_rest(crew);
	}
	crew_stop(crew);
	return NULL;
}

static void *watch(void *argument)
{
	crew_watch(argument);
	return NULL;
}

static int set_up(void **state)
{
	(void)state;
	crew = crew_new(THREADS);
	assert_non_null(crew);
	assert_int_equal(pipe(requests) | pipe(replies) | pipe(hold), 0);
	for (size_t i = 0; i < THREADS; i++) {
		atomic_store(&served_by[i], 0);
		assert_int_equal(
			pthread_create(&servers[i], NULL, serve, (void *)(uintptr_t)i), 0);
	}
	assert_int_equal(pthread_create(&watcher, NULL, watch, crew), 0);
	return 0;
}

/* The end of the requests is the end of all. */
static int tear_down(void **state)
{
	(void)state;
	close(requests[1]);
	for (size_t i = 0; i < THREADS; i++)
		pthread_join(servers[i], NULL);
	pthread_join(watcher, NULL);
	crew = crew_free(crew);
	close(requests[0]);
	for (int i = 0; i < 2; i++) {
		close(replies[i]);
		close(hold[i]);
	}
	return 0;
}

static void send(char request)
{
	assert_int_equal(write(requests[1], &request, 1), 1);
}

static void expect(char reply)
{
	struct pollfd fd = { .fd = replies[0], .events = POLLIN };
	char found;

	assert_int_equal(poll(&fd, 1, LIMIT_MS), 1);
	assert_int_equal(read(replies[0], &found, 1), 1);
	assert_int_equal(found, reply);
}

static void one_by_one_wakes_few(void **state)
{
	enum { REQUESTS = 3000 };
	unsigned most = 0;

	(void)state;
	for (unsigned i = 0; i < REQUESTS; i++) {
		send(QUICK);
		expect(QUICK);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		if (served_by[i] > most)
			most = served_by[i];
	}
	/* If they took turns each would have a quarter. */
	assert_true(most > REQUESTS / 2);
}

static void held_up_threads_are_replaced(void **state)
{
	(void)state;
	for (unsigned held = 0; held < THREADS - 1; held++) {
		send(HELD_UP);
		for (unsigned i = 0; i < 20; i++) {
			send(QUICK);
			expect(QUICK);
		}
	}
	for (unsigned held = 0; held < THREADS - 1; held++) {
		assert_int_equal(write(hold[1], "r", 1), 1);
		expect(HELD_UP);
	}
}

static void after_rest_somebody_reads(void **state)
{
	(void)state;
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < 50; i++)
			send(QUICK);
		for (unsigned i = 0; i < 50; i++)
			expect(QUICK);
		usleep(100 * 1000); /* the watcher rests too */
		send(HELD_UP);
		send(QUICK);
		expect(QUICK);
		assert_int_equal(write(hold[1], "r", 1), 1);
		expect(HELD_UP);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(one_by_one_wakes_few, set_up, tear_down),
		cmocka_unit_test_setup_teardown(held_up_threads_are_replaced, set_up, tear_down),
		cmocka_unit_test_setup_teardown(after_rest_somebody_reads, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
