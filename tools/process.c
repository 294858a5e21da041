/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/log.h"

/* Killed after nearly everything else: without the daemon the workload stands still. */
#define OOM_SCORE "-900"

static int wait_for_child(int fd, pid_t pid)
{
	int status = 0;
	ssize_t n;
	char byte;

	do
		n = read(fd, &byte, 1);
	while (n < 0 && errno == EINTR);
	if (n == 1)
		return EXIT_SUCCESS;
	/* Without the byte it ended, and has said why if it could. */
	if (waitpid(pid, &status, 0) == pid && WIFSIGNALED(status))
		log_error("the daemon was ended by signal %d (%s)", WTERMSIG(status),
			  strsignal(WTERMSIG(status)));
	return EXIT_FAILURE;
}

int process_detach(int *ret_ready_fd, int *ret_exit)
{
	int fds[2];
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return log_error_errno(errno, "cannot make a pipe");
	pid = fork();
	if (pid < 0)
		return log_error_errno(errno, "cannot fork"); /* the fds end with us */
	if (pid > 0) {
		(void)fd_close(fds[1]); /* so that we see the child's end */
		*ret_exit = wait_for_child(fds[0], pid);
		return 1;
	}
	(void)fd_close(fds[0]); /* the parent's */
	(void)setsid();		/* fails only for a group's leader, which a child is not */
	*ret_ready_fd = fds[1];
	return 0;
}

int process_ready(int ready_fd)
{
	_cleanup_close_ int null = -1;
	ssize_t n;

	do
		n = write(ready_fd, "", 1);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null < 0)
		return -errno;
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		if (dup2(null, fd) < 0)
			return -errno;
	}
	return 0;
}

static void write_file(const char *path, const char *text)
{
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		log_debug("cannot write '%s' to '%s'", text, path);
}

static int set_limits(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return log_error_errno(errno, "cannot get the limit of open files");
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
		return log_error_errno(errno, "cannot raise the limit of open files");
	/* A full core of the page buffers would fill a disk; asserts speak for themselves. */
	return 0;
}

int process_prepare(int *ret_signal_fd)
{
	sigset_t signals;
	int r, fd;

	r = set_limits();
	if (r < 0)
		return r;
	write_file("/proc/self/oom_score_adj", OOM_SCORE);
	/* Modes are the workload's, and no directory is to be kept busy by us. */
	umask(0);
	if (chdir("/") < 0)
		return log_error_errno(errno, "cannot change to '/'");

	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGHUP);
	if (sigprocmask(SIG_BLOCK, &signals, NULL) < 0)
		return log_error_errno(errno, "cannot block signals");
	fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return log_error_errno(errno, "cannot make a signalfd");
	*ret_signal_fd = fd;
	return 0;
}

void process_log_to(const char *path)
{
	static int log_fd = -1; /* for the rest of the process's life */
	_cleanup_close_ int fd =
		open(path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0) {
		(void)log_warning_errno(errno, "cannot open the log '%s', going on without", path);
		return;
	}
	if (log_fd < 0) {
		log_fd = TAKE_FD(fd);
		log_to_fd(log_fd);
	} else if (dup3(fd, log_fd, O_CLOEXEC) < 0) { /* in one step: other threads write to it */
		(void)log_warning_errno(errno, "cannot change to the log '%s', going on", path);
	}
}

/* Field @number, counted as in proc(5), of what follows the program's name in a stat line. */
static const char *stat_field(const char *line, unsigned number)
{
	const char *field = strrchr(line, ')');

	for (unsigned at = 2; field && at < number; at++) {
		field = strchr(field, ' ');
		if (field)
			field++;
	}
	return field ? field : "";
}

bool process_is_ending(pid_t pid)
{
	enum { FIELD_STATE = 3, FIELD_FLAGS = 9, FIELD_SIGNALS = 31 };
	enum { FLAG_EXITING = 4 }; /* the kernel's PF_EXITING */
	_cleanup_close_ int fd = -1;
	char path[64], line[1024];
	ssize_t n;

	if (pid <= 0)
		return false;
	(void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid); /* always fits */
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, line, sizeof(line) - 1);
	if (n <= 0)
		return true; /* it is gone */
	line[n] = '\0';
	return strchr("ZX", *stat_field(line, FIELD_STATE)) ||
	       strtoull(stat_field(line, FIELD_FLAGS), NULL, 10) & FLAG_EXITING ||
	       strtoull(stat_field(line, FIELD_SIGNALS), NULL, 10) & (1ull << (SIGKILL - 1));
}
