/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "journal/statedir.h"
#include "tools/about.h"
#include "tools/process.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/log.h"

enum {
	ENDING_MS_MAX = 10000, /* a killed daemon's requests may take so long to end */
	ENDING_POLL_MS = 20,
};

#define LOCK_FILE "lock" /* of journal/statedir.c */

/* The process that the lock file names, 0 if none. */
static pid_t get_holder(int lock_fd)
{
	char text[64];
	ssize_t n = pread(lock_fd, text, sizeof(text) - 1, 0);
	int pid;

	if (n <= 0)
		return 0;
	text[n] = '\0';
	return sscanf(text, "ferryfs %d", &pid) == 1 && pid > 0 ? pid : 0;
}

/* Waits for a holder that was killed: its lock goes with its last thread. There is no
 * event to wait for that a process that is not its parent could get in every case. */
static int wait_unlocked(int dir_fd, const char *path)
{
	_cleanup_close_ int fd = openat(dir_fd, LOCK_FILE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	uint64_t deadline_ms = clock_ms() + ENDING_MS_MAX;
	pid_t pid;

	if (fd < 0)
		return errno == ENOENT
			       ? 0
			       : log_error_errno(errno, "cannot open '%s/%s'", path, LOCK_FILE);
	for (;;) {
		if (flock(fd, LOCK_SH | LOCK_NB) == 0)
			return 0; /* closing the fd lets it go again */
		if (errno != EWOULDBLOCK)
			return log_error_errno(errno, "cannot lock '%s/%s'", path, LOCK_FILE);
		pid = get_holder(fd);
		if (!process_is_ending(pid) || clock_ms() >= deadline_ms)
			break;
		(void)poll(NULL, 0, ENDING_POLL_MS); /* a sleep */
	}
	log_error(
		"the state directory '%s' is in use by process %d: stop that one first, or give another "
		"directory with --state",
		path, (int)pid);
	return -EBUSY;
}

static unsigned count_missing(const char *path)
{
	char at[PATH_MAX];
	unsigned missing = 0;
	struct stat st;

	strcpy(at, path);
	while (stat(at, &st) < 0 && errno == ENOENT && strrchr(at, '/') != at) {
		*strrchr(at, '/') = '\0';
		missing++;
	}
	return missing;
}

int state_check(const char *path, struct state_plan *ret_plan)
{
	struct state_plan plan = { .is_new = true };
	_cleanup_close_ int fd = -1;
	struct stat st;
	int r;

	assert(path[0] == '/' && strlen(path) < sizeof(plan.path));
	strcpy(plan.path, path);
	plan.missing = count_missing(path);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT) {
		plan.is_dir_new = true;
		*ret_plan = plan;
		return 0;
	}
	if (fd < 0)
		return log_error_errno(errno, "cannot open the state directory '%s'", path);
	if (fstat(fd, &st) < 0)
		return log_error_errno(errno, "cannot stat the state directory '%s'", path);
	if (st.st_uid != 0 || (st.st_mode & 022)) {
		log_error("the state directory '%s' can be written by others than root: "
			  "chown root and chmod 700 it, or give another one with --state",
			  path);
		return -EPERM;
	}
	r = wait_unlocked(fd, path);
	if (r < 0)
		return r;
	plan.is_new = faccessat(fd, STATE_DIR_DATABASE "/CURRENT", F_OK, 0) < 0;
	plan.has_phase = faccessat(fd, STATE_DIR_PHASE, F_OK, 0) == 0;
	*ret_plan = plan;
	return 0;
}

/* The database is a flat directory of files. */
static void remove_database(int dir_fd)
{
	int fd =
		openat(dir_fd, STATE_DIR_DATABASE, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *list = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	if (!list) {
		(void)fd_close(fd); /* returns what we do not need */
		return;
	}
	while ((entry = readdir(list)))
		(void)unlinkat(fd, entry->d_name, 0); /* what stays, stays */
	closedir(list);
	(void)unlinkat(dir_fd, STATE_DIR_DATABASE, AT_REMOVEDIR); /* likewise */
}

void state_discard(const struct state_plan *plan)
{
	static const char *const names[] = {
		STATE_DIR_WATERMARK, STATE_DIR_PHASE, STATE_DIR_PHASE ".new",
		ABOUT_FILE,	     "ferryfs.log",   LOCK_FILE,
	};
	char at[PATH_MAX];
	int fd = open(plan->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert(plan->is_new && !plan->has_phase);
	if (fd < 0)
		return;
	remove_database(fd);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		(void)unlinkat(fd, names[i], 0); /* it may not be there */
	(void)fd_close(fd);			 /* returns what we do not need */

	strcpy(at, plan->path);
	for (unsigned i = 0; i < plan->missing && rmdir(at) == 0; i++)
		*strrchr(at, '/') = '\0';
}
