/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel does for any file system, and has to do on the mount: notifications,
 * leases, waiting locks, handles, and what others may look at.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fanotify.h>
#include <linux/fs.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fanotify.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/parity/parity.h"

/* ---- notifications -------------------------------------------------------- */

static void say_events(int fd)
{
	char buffer[65536] __attribute__((aligned(8)));
	struct pollfd pollfd = { .fd = fd, .events = POLLIN };
	ssize_t n;

	while (poll(&pollfd, 1, 100) == 1 && (n = read(fd, buffer, sizeof(buffer))) > 0) {
		for (char *at = buffer; at < buffer + n;) {
			struct inotify_event *event = (struct inotify_event *)at;

			say("  watch %d event %x '%s'", event->wd, event->mask,
			    event->len ? event->name : "");
			at += sizeof(*event) + event->len;
		}
	}
}

static void inotify(void)
{
	int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK), file;
	char byte;

	DO(mkdir("d", 0755));
	DO(mkdir("other", 0755));
	put("d/watched", 0644, "x");
	DO(inotify_add_watch(fd, "d", IN_ALL_EVENTS));
	DO(inotify_add_watch(fd, "d/watched", IN_ALL_EVENTS));
	put("d/new", 0644, "y");
	say_events(fd);
	file = open("d/watched", O_RDWR | O_CLOEXEC);
	DO(read(file, &byte, 1));
	DO(write(file, "z", 1));
	DO(ftruncate(file, 0));
	DO(fchmod(file, 0600));
	DO(fchown(file, 1, 1));
	DO(futimens(file, NULL));
	DO(fallocate(file, 0, 0, 100));
	close(file);
	say_events(fd);
	DO(rename("d/new", "other/new"));
	DO(rename("other/new", "d/watched"));
	say_events(fd);
	DO(link("d/watched", "d/linked"));
	DO(symlink("x", "d/symlink"));
	DO(mkdir("d/sub", 0755));
	DO(mkfifo("d/fifo", 0644));
	DO(renameat2(AT_FDCWD, "d/watched", AT_FDCWD, "d/sub", RENAME_EXCHANGE));
	say_events(fd);
	DO(unlink("d/symlink"));
	DO(unlink("d/fifo"));
	DO(unlink("d/linked"));
	DO(unlink("d/sub"));
	DO(rmdir("d/watched"));
	DO(rmdir("d"));
	say_events(fd);
	close(fd);
}

/* A mount that is watched, and asked before each open. */
static void fanotify(void)
{
	int fd = fanotify_init(FAN_CLASS_NOTIF | FAN_CLOEXEC | FAN_NONBLOCK, O_RDONLY),
	    counts[3] = { 0 };
	char buffer[4096] __attribute__((aligned(8)));
	ssize_t n;

	put("f", 0644, "x");
	DO(fd >= 0);
	DO(fanotify_mark(fd, FAN_MARK_ADD, FAN_OPEN | FAN_MODIFY | FAN_CLOSE_WRITE, AT_FDCWD, "f"));
	put("f", 0644, "y");
	say_file("f");
	while ((n = read(fd, buffer, sizeof(buffer))) > 0) {
		struct fanotify_event_metadata *event = (void *)buffer;

		for (; FAN_EVENT_OK(event, n); event = FAN_EVENT_NEXT(event, n)) {
			counts[0] += !!(event->mask & FAN_OPEN);
			counts[1] += !!(event->mask & FAN_MODIFY);
			counts[2] += !!(event->mask & FAN_CLOSE_WRITE);
			say("  %d", event->fd >= 0);
			close(event->fd);
		}
	}
	say("%d opens %d changes %d closes", counts[0], counts[1], counts[2]);
	close(fd);
}

/* ---- leases and locks ----------------------------------------------------- */

static void nothing(int signal)
{
	(void)signal;
}

static void leases(void)
{
	int fd, writer;

	put("f", 0644, "x");
	signal(SIGIO, nothing);
	fd = open("f", O_RDONLY | O_CLOEXEC);
	DO(fcntl(fd, F_SETLEASE, F_RDLCK));
	DO(fcntl(fd, F_GETLEASE));
	DO(open("f", O_WRONLY | O_NONBLOCK | O_CLOEXEC));
	DO(fcntl(fd, F_SETLEASE, F_UNLCK));
	writer = open("f", O_WRONLY | O_CLOEXEC);
	DO(fcntl(fd, F_SETLEASE, F_RDLCK));
	DO(fcntl(fd, F_SETLEASE, F_WRLCK));
	close(writer);
	DO(fcntl(fd, F_SETLEASE, F_WRLCK));
	DO(fcntl(fd, F_SETLEASE, F_UNLCK));
	close(fd);
}

static struct flock range(short type, off_t start, off_t length)
{
	return (struct flock){
		.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length
	};
}

/* A child that holds a lock until it is told to go. */
static pid_t hold_lock(int is_flock, int *ret_end)
{
	int ready[2], end[2];
	struct flock lock = range(F_WRLCK, 100, 100);
	char byte;
	pid_t pid;

	if (pipe2(ready, O_CLOEXEC) < 0 || pipe2(end, O_CLOEXEC) < 0)
		exit(1);
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		int fd = open("f", O_RDWR | O_CLOEXEC);

		close(end[1]);
		if ((is_flock ? flock(fd, LOCK_EX) : fcntl(fd, F_SETLK, &lock)) < 0 ||
		    write(ready[1], "r", 1) != 1)
			_exit(1);
		(void)!read(end[0], &byte, 1);
		_exit(0);
	}
	(void)!read(ready[0], &byte, 1);
	close(ready[0]);
	close(ready[1]);
	close(end[0]);
	*ret_end = end[1];
	return pid;
}

static void waiting_locks(void)
{
	struct flock lock = range(F_WRLCK, 0, 0);
	struct sigaction action = { .sa_handler = nothing };
	int fd, end, status;
	pid_t pid;

	put("f", 0644, "x");
	fd = open("f", O_RDWR | O_CLOEXEC);
	sigaction(SIGALRM, &action, NULL);

	pid = hold_lock(/* is_flock= */ 0, &end);
	DO(fcntl(fd, F_GETLK, &lock));
	say("held by the child %d, from %d, %d bytes", lock.l_pid == pid, (int)lock.l_start,
	    (int)lock.l_len);
	lock = range(F_WRLCK, 150, 1);
	DO(fcntl(fd, F_SETLK, &lock));
	alarm(1); /* waits, and is interrupted */
	DO(fcntl(fd, F_SETLKW, &lock));
	alarm(60);
	close(end);
	DO(fcntl(fd, F_SETLKW, &lock)); /* the child's end frees it */
	waitpid(pid, &status, 0);
	say("%d", status);

	pid = hold_lock(/* is_flock= */ 1, &end);
	DO(flock(fd, LOCK_SH | LOCK_NB));
	kill(pid, SIGKILL);
	DO(flock(fd, LOCK_EX));
	waitpid(pid, &status, 0);
	say("%d", status);
	close(end);
	DO(lockf(fd, F_TLOCK, 10));
	DO(lockf(fd, F_ULOCK, 10));
	close(fd);
}

/* Two that wait for each other: one of them is told. */
static void deadlocks(void)
{
	struct flock first = range(F_WRLCK, 0, 1), second = range(F_WRLCK, 1, 1);
	int fd, pipes[2], status;
	char byte;
	pid_t pid;

	put("f", 0644, "xx");
	fd = open("f", O_RDWR | O_CLOEXEC);
	if (pipe2(pipes, O_CLOEXEC) < 0)
		exit(1);
	DO(fcntl(fd, F_SETLK, &first));
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		if (fcntl(fd, F_SETLK, &second) < 0 || write(pipes[1], "r", 1) != 1)
			_exit(1);
		_exit(fcntl(fd, F_SETLKW, &first) == 0 ? 0 : 2); /* until we give up */
	}
	(void)!read(pipes[0], &byte, 1);
	usleep(200 * 1000);
	DO(fcntl(fd, F_SETLKW, &second));
	first.l_type = F_UNLCK;
	DO(fcntl(fd, F_SETLK, &first));
	waitpid(pid, &status, 0);
	say("%d", status);
	close(fd);
}

/* ---- being looked at ------------------------------------------------------ */

static void look(void)
{
	struct stat st;
	struct statvfs statvfs_;

	DO(stat("/proc/self/cwd", &st));
	DO(stat(".", &st));
	DO(stat("..", &st));
	DO(statvfs(".", &statvfs_));
	DO(access(".", R_OK | X_OK));
	say_dir(".");
	DO(open("private", O_RDONLY | O_CLOEXEC));
	say_stat("private");
}

static void others(void)
{
	put("private", 0600, "x");
	as_user(look);
}

/* Fields that have to be there; the time of birth is not. */
static void extended_stat(void)
{
	const unsigned wanted = STATX_BASIC_STATS;
	struct statx stx;

	put("f", 0644, "12345");
	DO(statx(AT_FDCWD, "f", 0, STATX_ALL, &stx));
	say("has all %d, mode %o, size %llu, links %u", (stx.stx_mask & wanted) == wanted,
	    stx.stx_mode, (unsigned long long)stx.stx_size, stx.stx_nlink);
	DO(statx(AT_FDCWD, "f", AT_STATX_FORCE_SYNC, STATX_SIZE, &stx));
	say("%llu", (unsigned long long)stx.stx_size);
	DO(statx(AT_FDCWD, "f", AT_STATX_DONT_SYNC, STATX_SIZE, &stx));
	say("%llu", (unsigned long long)stx.stx_size);
}

/* ---- odd descriptors ------------------------------------------------------ */

static void path_descriptors(void)
{
	int fd, dir;
	char buffer[8];
	char proc[64];

	DO(mkdir("d", 0755));
	put("d/f", 0644, "x");
	dir = open("d", O_PATH | O_DIRECTORY | O_CLOEXEC);
	fd = openat(dir, "f", O_PATH | O_CLOEXEC);
	DO(read(fd, buffer, 1));
	DO(write(fd, buffer, 1));
	DO(fchmod(fd, 0600));
	DO(fstatat(fd, "", &(struct stat){ 0 }, AT_EMPTY_PATH));
	DO(rename("d", "e"));
	DO(faccessat(dir, "f", R_OK, 0));
	DO(fchdir(dir));
	say_file("f");
	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
	say_file(proc);
	DO(unlink("f"));
	say_file(proc);
	DO(linkat(AT_FDCWD, proc, AT_FDCWD, "again", AT_SYMLINK_FOLLOW));
	close(fd);
	close(dir);
}

static void advice(void)
{
	char byte = 0;
	int fd;

	put("f", 0644, "0123456789");
	fd = open("f", O_RDWR | O_CLOEXEC);
	DO(posix_fadvise(fd, 0, 0, POSIX_FADV_WILLNEED));
	DO(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
	DO(readahead(fd, 0, 10));
	DO(sync_file_range(fd, 0, 10, SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER));
	DO(pread(fd, &byte, 1, 3));
	say("%c", byte);
	DO(fcntl(fd, F_GETFL) & ~O_LARGEFILE);
	DO(fcntl(fd, F_SETFL, O_NONBLOCK | O_DIRECT));
	DO(fcntl(fd, F_SETFL, O_NOATIME));
	DO(fcntl(fd, F_SETFL, 0));
	DO(fcntl(fd, F_SETPIPE_SZ, 4096));
	close(fd);
}

const struct parity_case parity_kernel[] = {
	{ "inotify", inotify },
	{ "fanotify", fanotify },
	{ "leases", leases },
	{ "locks that are waited for", waiting_locks },
	{ "deadlocks of locks", deadlocks },
	{ "another user looks", others },
	{ "statx", extended_stat },
	{ "O_PATH", path_descriptors },
	{ "advice and flags", advice },
	{ 0 },
};
