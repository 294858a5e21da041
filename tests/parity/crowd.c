/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Crowds: many that do one thing to the same names, for some time.
 *
 * crowd DIR unlinked SECONDS	open, unlink and use 50 names: nothing of it is left
 * crowd DIR saved COUNT	saves by new files that are renamed; its last words are "saved COUNT"
 * crowd DIR owners COUNT	two users create; no file is ever seen as another's
 * crowd DIR nameless READY GO	files without a name, some of which get one when GO is there
 * crowd DIR handles		no handles are given out, and none is taken
 * crowd DIR looked READY	looks at DIR all the time, until READY is there
 * crowd DIR watched READY GO	says what inotify says, before and after GO is there
 *
 * Exits 1 and says why if something is wrong.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "util/attr.h"

enum {
	THREADS = 16,
	NAMES = 50,
	USERS = 2,
	USER_FIRST = 1000,
};

static void die(const char *format, ...) PRINTF_LIKE(1, 2) __attribute__((noreturn));

static void die(const char *format, ...)
{
	int error = errno;
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, ": %s\n", strerror(error));
	exit(1);
}

#define MUST(call)                                           \
	({                                                   \
		typeof(call) result_ = (call);               \
		if (result_ < 0)                             \
			die("line %d: %s", __LINE__, #call); \
		result_;                                     \
	})

static void wait_for(const char *path)
{
	while (access(path, F_OK) < 0)
		usleep(10 * 1000);
}

static void make_empty(const char *path)
{
	close(MUST(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644)));
}

/* Runs it with the numbers below @count, each in a process; true if all end well. */
static bool run_all(void (*run)(int number), int count)
{
	pid_t pids[USERS];
	int status, failed = 0;

	fflush(NULL);
	for (int i = 0; i < count; i++) {
		pids[i] = MUST(fork());
		if (pids[i] == 0) {
			run(i);
			exit(0);
		}
	}
	for (int i = 0; i < count; i++)
		failed += waitpid(pids[i], &status, 0) != pids[i] || status != 0;
	return failed == 0;
}

/* ---- unlinked ------------------------------------------------------------- */

static time_t deadline;

static void *unlink_all_the_time(void *argument)
{
	unsigned seed = (unsigned)(uintptr_t)argument;
	char name[32], found[8];

	while (time(NULL) < deadline) {
		struct stat st;
		int fd;

		snprintf(name, sizeof(name), "name%d", rand_r(&seed) % NAMES);
		fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
		if (fd < 0)
			die("cannot open '%s'", name);
		if (unlink(name) < 0 && errno != ENOENT)
			die("cannot unlink '%s'", name);
		/* Others may have the same file open, and cut it to nothing. */
		MUST(pwrite(fd, "mine", 4, 0));
		MUST(fchmod(fd, 0600));
		MUST(fstat(fd, &st));
		MUST(pread(fd, found, 4, 0));
		MUST(ftruncate(fd, 0));
		close(fd);
	}
	return NULL;
}

static int unlinked(int seconds)
{
	pthread_t threads[THREADS];
	char name[32];

	deadline = time(NULL) + seconds;
	for (uintptr_t i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, unlink_all_the_time, (void *)(i + 1)) != 0)
			die("cannot make a thread");
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < NAMES; i++) {
		snprintf(name, sizeof(name), "name%d", i);
		(void)unlink(name);
	}
	return 0;
}

/* ---- saved ---------------------------------------------------------------- */

static int saved(int count)
{
	unsigned seed = 1;
	char text[32];

	for (int i = 1; i <= count; i++) {
		int fd = MUST(open("saved.tmp", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
		int n = snprintf(text, sizeof(text), "saved %d\n", i);

		if (write(fd, text, (size_t)n) != n)
			die("cannot write");
		close(fd);
		if (rand_r(&seed) % 4 == 0)
			usleep((useconds_t)(rand_r(&seed) % 5000));
		MUST(rename("saved.tmp", "saved"));
	}
	return 0;
}

/* ---- owners --------------------------------------------------------------- */

static int creations;

static void create_as_user(int number)
{
	uid_t uid = (uid_t)(USER_FIRST + number);
	char name[64];
	struct stat st;

	MUST(setgroups(0, NULL));
	MUST(setresgid(uid, uid, uid));
	MUST(setresuid(uid, uid, uid));
	umask(0);
	for (int i = 0; i < creations; i++) {
		snprintf(name, sizeof(name), "%u-%d", uid, i);
		switch (i % 4) {
		case 0:
			MUST(mkdir(name, 0755));
			break;
		case 1:
			MUST(mkfifo(name, 0644));
			break;
		case 2:
			MUST(symlink("x", name));
			break;
		default:
			close(MUST(open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 06755)));
		}
		MUST(lstat(name, &st));
		if (st.st_uid != uid || st.st_gid != uid)
			die("'%s' belongs to %u:%u", name, st.st_uid, st.st_gid);
	}
}

/* Looks for what for an instant is not its maker's, or is suid and another's. */
static void watch_owners(const char *end)
{
	char name[64];
	struct stat st;

	while (access(end, F_OK) < 0) {
		for (uid_t uid = USER_FIRST; uid < USER_FIRST + USERS; uid++) {
			for (int i = 0; i < creations; i++) {
				snprintf(name, sizeof(name), "%u-%d", uid, i);
				if (lstat(name, &st) < 0)
					break;
				if (st.st_uid != uid || st.st_gid != uid)
					die("'%s' was seen as %u:%u's", name, st.st_uid, st.st_gid);
			}
		}
	}
}

static int owners(int count)
{
	int status;
	pid_t pid;
	bool are_right;

	creations = count;
	MUST(chmod(".", 0777));
	pid = MUST(fork());
	if (pid == 0) {
		watch_owners("end");
		exit(0);
	}
	are_right = run_all(create_as_user, USERS);
	make_empty("end");
	return waitpid(pid, &status, 0) == pid && status == 0 && are_right ? 0 : 1;
}

/* ---- nameless ------------------------------------------------------------- */

static int nameless(const char *ready, const char *go)
{
	enum { FILES = 20 };
	int fds[FILES];
	char path[64], name[64];

	for (int i = 0; i < FILES; i++) {
		fds[i] = MUST(open(".", O_TMPFILE | O_RDWR | O_CLOEXEC | (i % 4 == 3 ? O_EXCL : 0),
				   0640));
		snprintf(name, sizeof(name), "nameless %d\n", i);
		if (write(fds[i], name, strlen(name)) != (ssize_t)strlen(name))
			die("cannot write");
	}
	make_empty(ready);
	wait_for(go);
	for (int i = 0; i < FILES; i++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fds[i]);
		snprintf(name, sizeof(name), "named-%d", i);
		if (i % 4 == 3) {
			if (linkat(AT_FDCWD, path, AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0 ||
			    errno != ENOENT)
				die("one that must not get a name got one");
		} else if (i % 4 != 2) {
			MUST(linkat(AT_FDCWD, path, AT_FDCWD, name, AT_SYMLINK_FOLLOW));
		}
		close(fds[i]);
	}
	return 0;
}

/* ---- handles -------------------------------------------------------------- */

static void expect_error(const char *what, long result, int error)
{
	if (result >= 0)
		die("%s did not fail", what);
	if (errno != error)
		die("%s does not say %s", what, strerrorname_np(error));
}

static int handles(void)
{
	_Alignas(struct file_handle) char bytes[sizeof(struct file_handle) + MAX_HANDLE_SZ];
	struct file_handle *handle = (struct file_handle *)bytes;
	int mount_id, fd = MUST(open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));

	make_empty("f");
	handle->handle_bytes = MAX_HANDLE_SZ;
	expect_error("name_to_handle_at", name_to_handle_at(AT_FDCWD, "f", handle, &mount_id, 0),
		     EOPNOTSUPP);
	/* As the kernel's FUSE makes them where it exports. */
	memset(bytes, 0, sizeof(bytes));
	handle->handle_bytes = 12;
	handle->handle_type = 0x81;
	handle->f_handle[0] = 1;
	errno = 0;
	if (open_by_handle_at(fd, handle, O_RDONLY | O_CLOEXEC) >= 0 ||
	    (errno != EOPNOTSUPP && errno != ESTALE))
		die("open_by_handle_at took a handle");
	return 0;
}

/* ---- looked at ------------------------------------------------------------ */

static int looked(const char *dir, const char *ready)
{
	unsigned long looks = 0;
	char path[4096];
	struct statfs statfs_;
	struct stat st;

	snprintf(path, sizeof(path), "%s/nothing", dir);
	while (access(ready, F_OK) < 0) {
		int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		if (fd < 0 || stat(dir, &st) < 0 || statfs(dir, &statfs_) < 0 ||
		    access(dir, R_OK) < 0)
			die("cannot look at '%s'", dir);
		(void)stat(path, &st);
		close(fd);
		looks++;
	}
	printf("%lu\n", looks);
	return looks > 0 ? 0 : 1;
}

/* ---- watched -------------------------------------------------------------- */

static void print_events(int fd)
{
	char buffer[65536] __attribute__((aligned(8)));
	struct pollfd pollfd = { .fd = fd, .events = POLLIN };
	ssize_t n;

	while (poll(&pollfd, 1, 500) == 1 && (n = read(fd, buffer, sizeof(buffer))) > 0) {
		for (char *at = buffer; at < buffer + n;) {
			struct inotify_event *event = (struct inotify_event *)at;

			printf("%x %s\n", event->mask, event->len ? event->name : "");
			at += sizeof(*event) + event->len;
		}
	}
	fflush(stdout);
}

static int watched(const char *ready, const char *go)
{
	int fd = MUST(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));

	MUST(inotify_add_watch(fd, ".", IN_CREATE | IN_DELETE | IN_MODIFY | IN_MOVE | IN_ATTRIB));
	make_empty(ready);
	wait_for(go);
	print_events(fd);
	close(fd);
	return 0;
}

int main(int argc, char **argv)
{
	const char *what = argc > 2 ? argv[2] : "";

	if (argc == 4 && strcmp(what, "looked") == 0)
		return looked(argv[1], argv[3]);
	if (argc < 3 || chdir(argv[1]) < 0) {
		fprintf(stderr, "usage: crowd DIR WHAT [ARGUMENT]...\n");
		return 2;
	}
	if (argc == 4 && strcmp(what, "unlinked") == 0)
		return unlinked(atoi(argv[3]));
	if (argc == 4 && strcmp(what, "saved") == 0)
		return saved(atoi(argv[3]));
	if (argc == 4 && strcmp(what, "owners") == 0)
		return owners(atoi(argv[3]));
	if (argc == 5 && strcmp(what, "nameless") == 0)
		return nameless(argv[3], argv[4]);
	if (argc == 5 && strcmp(what, "watched") == 0)
		return watched(argv[3], argv[4]);
	if (argc == 3 && strcmp(what, "handles") == 0)
		return handles();
	fprintf(stderr, "crowd: what is '%s'?\n", what);
	return 2;
}
