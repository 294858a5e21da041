/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whatever clients do, the daemon answers the others, and leaves no socket. Needs
 * root, as the socket's directory does; else all is skipped.
 */
#include "tools/control.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tools/wire.h"

enum { WAIT_MS = 20000 };

struct world {
	char name[64];
	struct control *control;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned started; /* long commands, guarded by lock */
	bool may_end;	  /* guarded by lock */
};

static int run_short(void *context, json_t *request, json_t **ret_reply)
{
	(void)context;
	*ret_reply = json_pack("{s:b, s:O}", "ok", 1, "echo", json_object_get(request, "n"));
	return 0;
}

static int run_long(void *context, json_t *request, json_t **ret_reply)
{
	struct world *world = context;

	(void)request;
	pthread_mutex_lock(&world->lock);
	world->started++;
	pthread_cond_broadcast(&world->changed);
	while (!world->may_end)
		pthread_cond_wait(&world->changed, &world->lock);
	pthread_mutex_unlock(&world->lock);
	*ret_reply = json_pack("{s:b}", "ok", 1);
	return 0;
}

static int run_later(void *context, json_t *request, json_t **ret_reply)
{
	struct world *world = context;

	(void)request;
	(void)ret_reply;
	pthread_mutex_lock(&world->lock);
	world->started++;
	pthread_cond_broadcast(&world->changed);
	pthread_mutex_unlock(&world->lock);
	return CONTROL_E_LATER;
}

static const struct control_command commands[] = {
	{ "short", false, run_short },
	{ "long", true, run_long },
	{ "later", true, run_later },
	{ 0 },
};

static int setup(void **state)
{
	static struct world world;

	world = (struct world){ .lock = PTHREAD_MUTEX_INITIALIZER,
				.changed = PTHREAD_COND_INITIALIZER };
	(void)snprintf(world.name, sizeof(world.name), "unit-control-%d",
		       (int)getpid()); /* always fits */
	*state = &world;
	if (geteuid() != 0)
		return 0;
	if (control_open(world.name, &world.control) < 0)
		return -1;
	return control_start(world.control, commands, &world);
}

static int teardown(void **state)
{
	struct world *world = *state;
	struct sockaddr_un address = wire_address(world->name);

	world->control = control_close(world->control, NULL);
	return access(address.sun_path, F_OK) == 0 ? -1 : 0;
}

static void need_root(void)
{
	if (geteuid() != 0)
		skip();
}

static int ask(const struct world *world, const char *command)
{
	json_t *request = json_pack("{s:s, s:i}", "command", command, "n", 7);
	int fd;

	assert_int_equal(wire_connect(world->name, &fd, NULL), 0);
	assert_int_equal(wire_send(fd, request, 0), 0);
	json_decref(request);
	return fd;
}

/* Takes the answer: whether it is "ok". */
static bool answer(int fd)
{
	json_t *reply = NULL;
	bool is_ok;

	assert_int_equal(wire_receive(fd, WAIT_MS, &reply), 0);
	is_ok = json_is_true(json_object_get(reply, "ok"));
	json_decref(reply);
	return is_ok;
}

static void wait_started(struct world *world, unsigned count)
{
	pthread_mutex_lock(&world->lock);
	while (world->started < count)
		pthread_cond_wait(&world->changed, &world->lock);
	pthread_mutex_unlock(&world->lock);
}

static void let_end(struct world *world)
{
	pthread_mutex_lock(&world->lock);
	world->may_end = true;
	pthread_cond_broadcast(&world->changed);
	pthread_mutex_unlock(&world->lock);
}

static void a_command_is_answered(void **state)
{
	int fd;

	need_root();
	fd = ask(*state, "short");
	assert_true(answer(fd));
	close(fd);
	fd = ask(*state, "nonsense");
	assert_false(answer(fd));
	close(fd);
}

static void a_long_command_holds_no_short_one(void **state)
{
	struct world *world = *state;
	int slow, quick, second;

	need_root();
	slow = ask(world, "long");
	wait_started(world, 1);
	assert_true(control_is_busy(world->control));
	quick = ask(world, "short");
	assert_true(answer(quick));
	second = ask(world, "long");
	assert_false(answer(second)); /* busy */
	let_end(world);
	assert_true(answer(slow));
	assert_false(control_is_busy(world->control));
	close(slow);
	close(quick);
	close(second);
}

static void a_long_command_goes_on_without_its_client(void **state)
{
	struct world *world = *state;
	int fd;

	need_root();
	fd = ask(world, "long");
	wait_started(world, 1);
	close(fd);
	fd = ask(world, "short");
	assert_true(answer(fd));
	assert_true(control_is_busy(world->control));
	let_end(world);
	close(fd);
}

static void what_comes_later_comes_with_the_farewell(void **state)
{
	struct world *world = *state;
	json_t *farewell = json_pack("{s:b}", "ok", 1);
	int fd;

	need_root();
	fd = ask(world, "later");
	wait_started(world, 1);
	control_stop(world->control);
	assert_int_not_equal(access(wire_address(world->name).sun_path, F_OK), 0);
	world->control = control_close(world->control, farewell);
	assert_true(answer(fd));
	json_decref(farewell);
	close(fd);
}

static void too_many_clients_are_turned_away(void **state)
{
	struct world *world = *state;
	int fds[2 * CONTROL_CLIENTS_MAX];

	need_root();
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		assert_int_equal(wire_connect(world->name, &fds[i], NULL), 0);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		close(fds[i]);
	for (;;) { /* those that were let in have to be seen leaving first */
		json_t *request = json_pack("{s:s, s:i}", "command", "short", "n", 7),
		       *reply = NULL;
		int r = wire_call(world->name, request, WAIT_MS, &reply, NULL);

		json_decref(request);
		json_decref(reply);
		if (r == 0)
			break;
		assert_true(r == -ECONNRESET || r == -EPIPE || r == -EAGAIN);
	}
}

static void a_name_is_taken_once(void **state)
{
	struct world *world = *state;
	struct control *second = NULL;

	need_root();
	assert_int_equal(control_open(world->name, &second), -EADDRINUSE);
	assert_null(second);
	assert_int_equal(access(wire_address(world->name).sun_path, F_OK), 0);
}

static void a_dead_socket_is_replaced(void **state)
{
	struct sockaddr_un address = wire_address("unit-control-dead");
	struct control *control = NULL;
	struct stat st;
	int fd;

	(void)state;
	need_root();
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	(void)unlink(address.sun_path); /* of an earlier run */
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	close(fd);
	assert_int_equal(control_open("unit-control-dead", &control), 0);
	assert_int_equal(stat(address.sun_path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	control = control_close(control, NULL);
	assert_int_not_equal(access(address.sun_path, F_OK), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_command_is_answered, setup, teardown),
		cmocka_unit_test_setup_teardown(a_long_command_holds_no_short_one, setup, teardown),
		cmocka_unit_test_setup_teardown(a_long_command_goes_on_without_its_client, setup,
						teardown),
		cmocka_unit_test_setup_teardown(what_comes_later_comes_with_the_farewell, setup,
						teardown),
		cmocka_unit_test_setup_teardown(too_many_clients_are_turned_away, setup, teardown),
		cmocka_unit_test_setup_teardown(a_name_is_taken_once, setup, teardown),
		cmocka_unit_test_setup_teardown(a_dead_socket_is_replaced, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
