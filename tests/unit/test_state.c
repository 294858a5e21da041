/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what a start makes of a state directory, and that a failed first start leaves
 * what was there before. With the processes that hold one.
 */
#include "tools/state.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tools/about.h"
#include "tools/holders.h"
#include "tools/process.h"
#include "tools/wire.h"

static char top[] = "/tmp/unit-state.XXXXXX";

static int setup(void **state)
{
	(void)state;
	strcpy(top, "/tmp/unit-state.XXXXXX");
	return mkdtemp(top) ? 0 : -1;
}

static int teardown(void **state)
{
	char command[128];

	(void)state;
	(void)snprintf(command, sizeof(command), "rm -rf '%s'", top); /* always fits */
	return system(command);
}

static const char *path(const char *name)
{
	static char paths[4][256];
	static unsigned next;
	char *p = paths[next++ % 4];

	(void)snprintf(p, sizeof(paths[0]), "%s/%s", top, name); /* always fits */
	return p;
}

static void make_file(const char *name, const char *text)
{
	FILE *file = fopen(path(name), "we");

	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

/* As the journal leaves it. */
static void make_state(const char *name, const char *lock)
{
	char at[128];

	assert_int_equal(mkdir(path(name), 0700), 0);
	(void)snprintf(at, sizeof(at), "%s/db", name); /* always fits, as below */
	assert_int_equal(mkdir(path(at), 0700), 0);
	(void)snprintf(at, sizeof(at), "%s/db/CURRENT", name);
	make_file(at, "x");
	(void)snprintf(at, sizeof(at), "%s/phase", name);
	make_file(at, "x");
	(void)snprintf(at, sizeof(at), "%s/lock", name);
	make_file(at, lock);
}

static void need_root(void)
{
	if (geteuid() != 0)
		skip();
}

static void a_missing_directory_is_new(void **state)
{
	struct state_plan plan;

	(void)state;
	assert_int_equal(state_check(path("a/b/c"), &plan), 0);
	assert_true(plan.is_new);
	assert_true(plan.is_dir_new);
	assert_false(plan.has_phase);
	assert_int_equal(plan.missing, 3);
}

static void a_journal_makes_it_old(void **state)
{
	struct state_plan plan;

	(void)state;
	need_root();
	make_state("s", "ferryfs 1\n");
	assert_int_equal(state_check(path("s"), &plan), 0);
	assert_false(plan.is_new);
	assert_true(plan.has_phase);
	assert_int_equal(plan.missing, 0);
}

static void a_directory_of_others_is_refused(void **state)
{
	struct state_plan plan;

	(void)state;
	need_root();
	make_state("s", "ferryfs 1\n");
	assert_int_equal(chmod(path("s"), 0770), 0);
	assert_int_equal(state_check(path("s"), &plan), -EPERM);
	make_file("f", "");
	assert_int_equal(state_check(path("f"), &plan), -ENOTDIR);
}

/* A child that holds the lock of "s"; it is there when this returns. */
static pid_t start_holder(void)
{
	int fds[2], fd;
	char byte;
	pid_t pid;

	assert_int_equal(pipe(fds), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		fd = open(path("s/lock"), O_RDWR);
		if (fd < 0 || flock(fd, LOCK_EX) < 0 || dprintf(fd, "ferryfs %d\n", getpid()) < 0 ||
		    write(fds[1], "", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	assert_int_equal(read(fds[0], &byte, 1), 1);
	close(fds[0]);
	close(fds[1]);
	return pid;
}

static void one_in_use_is_refused_until_its_holder_ends(void **state)
{
	struct state_plan plan;
	pid_t pid;

	(void)state;
	need_root();
	make_state("s", "");
	pid = start_holder();
	assert_false(process_is_ending(pid));
	assert_int_equal(state_check(path("s"), &plan), -EBUSY);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(state_check(path("s"), &plan), 0); /* waits for its end */
	assert_true(process_is_ending(pid));		    /* a zombie */
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_true(process_is_ending(pid)); /* gone */
	assert_false(process_is_ending(getpid()));
}

static void a_failed_first_start_leaves_what_was_there(void **state)
{
	struct state_plan plan, old;
	json_t *about = json_pack("{s:s}", "name", "n");

	(void)state;
	need_root();
	assert_int_equal(mkdir(path("a"), 0700), 0);
	assert_int_equal(state_check(path("a/s"), &plan), 0);
	make_state("a/s", "ferryfs 1\n");
	assert_int_equal(about_write(path("a/s"), about), 0);
	json_decref(about);
	state_discard(&plan);
	assert_int_equal(state_check(path("a/s"), &old), 0);
	assert_true(old.is_dir_new);
	assert_int_equal(access(path("a"), F_OK), 0);

	/* What is not ours stays. */
	make_state("a/s", "ferryfs 1\n");
	make_file("a/s/letter", "dear");
	state_discard(&plan);
	assert_int_equal(access(path("a/s/letter"), F_OK), 0);
	assert_int_not_equal(access(path("a/s/db"), F_OK), 0);
}

static void what_is_written_about_it_can_be_read(void **state)
{
	json_t *about = json_pack("{s:s, s:s}", "name", "n", "source", "/a\nb"), *read_back = NULL;

	(void)state;
	assert_int_equal(about_read(top, &read_back), -ENOENT);
	assert_int_equal(about_write(top, about), 0);
	assert_int_equal(about_read(top, &read_back), 0);
	assert_true(json_equal(about, read_back));
	json_decref(about);
	json_decref(read_back);
	make_file(ABOUT_FILE, "[");
	assert_int_equal(about_read(top, &read_back), -EBADMSG);
}

static void whoever_holds_a_directory_is_named(void **state)
{
	char expected[32];
	char *text;
	pid_t pid;

	(void)state;
	assert_int_equal(mkdir(path("m"), 0700), 0);
	make_state("s", "");
	text = holders_of(path("m"));
	assert_string_equal(text, "");
	free(text);
	assert_int_equal(chdir(path("m")), 0);
	pid = start_holder();
	assert_int_equal(chdir("/"), 0);
	text = holders_of(path("m"));
	(void)snprintf(expected, sizeof(expected), "%d (unit_state)", (int)pid); /* always fits */
	assert_string_equal(text, expected);
	free(text);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_missing_directory_is_new, setup, teardown),
		cmocka_unit_test_setup_teardown(a_journal_makes_it_old, setup, teardown),
		cmocka_unit_test_setup_teardown(a_directory_of_others_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(one_in_use_is_refused_until_its_holder_ends, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_failed_first_start_leaves_what_was_there, setup,
						teardown),
		cmocka_unit_test_setup_teardown(what_is_written_about_it_can_be_read, setup,
						teardown),
		cmocka_unit_test_setup_teardown(whoever_holds_a_directory_is_named, setup,
						teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
