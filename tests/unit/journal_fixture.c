/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/journal_fixture.h"

#include <ftw.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util/attr.h"

extern char **environ;

const struct journal_pair test_pair = {
	.source = "/srv/source",
	.target = "nfs://host/target",
	.source_identity = "posix:1",
	.target_identity = "nfs:2",
};

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw; /* every kind goes the same way */
	return remove(path);
}

void test_remove(const char *path)
{
	(void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS); /* it may not be there */
}

static char top[PATH_MAX];

static void remove_top(void)
{
	test_remove(top);
}

const char *test_dir(void)
{
	const char *tmp = getenv("TMPDIR");

	if (top[0] == '\0') {
		(void)snprintf(top, sizeof(top), "%s/ferryfs-journal.XXXXXX", tmp ? tmp : "/tmp");
		if (!mkdtemp(top))
			abort();
		(void)atexit(remove_top); /* else it stays */
	}
	return top;
}

const char *test_path(const char *name)
{
	static char paths[5][PATH_MAX + 64];
	static unsigned next;
	char *path = paths[next++ % ARRAY_SIZE(paths)];

	(void)snprintf(path, sizeof(paths[0]), "%s/%s", test_dir(), name);
	return path;
}

struct locator locator_of(uint64_t number)
{
	struct locator locator = { .length = 29 };

	memcpy(locator.bytes + 7, &number, sizeof(number));
	return locator;
}

struct journal *open_journal(const char *name)
{
	struct journal *journal;
	bool is_new;

	assert_int_equal(journal_open(test_path(name), &test_pair, &is_new, &journal), 0);
	return journal;
}

int start_task(const char *task, const char *path, int *ret_fd)
{
	char *const argv[] = { (char *)"test", (char *)task, (char *)path, NULL };
	posix_spawn_file_actions_t actions;
	int fds[2], pid;

	assert_int_equal(pipe(fds), 0);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
	posix_spawn_file_actions_addclose(&actions, fds[0]);
	posix_spawn_file_actions_addclose(&actions, fds[1]);
	assert_int_equal(posix_spawn(&pid, "/proc/self/exe", &actions, NULL, argv, environ), 0);
	posix_spawn_file_actions_destroy(&actions);
	close(fds[1]);
	*ret_fd = fds[0];
	return pid;
}

int wait_task(int pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

int run_task(const char *task, const char *path)
{
	int fd, status;

	status = wait_task(start_task(task, path, &fd));
	close(fd);
	return status;
}
