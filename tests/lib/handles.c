/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handles DIR --ready FILE --go FILE: opens, maps, locks and enters things below DIR in
 * every way that a program can, makes the file given as --ready, waits for the one given
 * as --go, and then uses all of them: nothing may have changed for it.
 *
 * What is on the target afterwards: in DIR each file NAME whose content is to be
 * "NAME: first\nNAME: second\n", listed on standard output.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/testlib.h"

enum {
	LISTED = 300,	 /* names in the directory that is read half before and half after */
	LOOKED_AT = 100, /* of them, whose attributes must not change */
	MAP_BYTES = 65536,
	LOCK_AT = 100,
	LOCK_BYTES = 50,
};

static unsigned wrong;

static void PRINTF_LIKE(1, 2) complain(const char *format, ...)
{
	va_list args;

	wrong++;
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
}

#define MUST(call)                                                 \
	({                                                         \
		typeof(call) result_ = (call);                     \
		if (result_ < 0)                                   \
			die_errno("line %d: %s", __LINE__, #call); \
		result_;                                           \
	})

/* After the failover: a failure is noted, and the rest still looked at. */
#define CHECK(condition)                                                           \
	do {                                                                       \
		errno = 0;                                                         \
		if (!(condition))                                                  \
			complain("line %d: not so: %s (%s)", __LINE__, #condition, \
				 strerror(errno));                                 \
	} while (0)

static void text_of(const char *name, const char *part, char text[static 128])
{
	snprintf(text, 128, "%s: %s\n", name, part);
}

static int make(const char *name, int flags)
{
	int fd = MUST(open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | flags, 0644));
	char text[128];

	text_of(name, "first", text);
	if (write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		die_errno("cannot write '%s'", name);
	return fd;
}

/* Writes the second line where the descriptor stands, and reads both back. */
static void go_on(int fd, const char *name)
{
	char first[128], second[128], found[256];
	ssize_t n;

	text_of(name, "first", first);
	text_of(name, "second", second);
	n = write(fd, second, strlen(second));
	if (n != (ssize_t)strlen(second)) {
		complain("'%s': cannot go on writing: %s", name, strerror(errno));
		return;
	}
	n = pread(fd, found, sizeof(found), 0);
	strcat(first, second);
	if (n != (ssize_t)strlen(first) || memcmp(found, first, (size_t)n) != 0)
		complain("'%s': reads back %zd bytes, and not what was written", name, n);
}

static void expect_on_target(const char *name)
{
	printf("%s\n", name);
}

/* ---- files -------------------------------------------------------------------- */

struct kept {
	const char *name;
	int fd;
	ino_t ino;
	nlink_t nlink;
};

static struct kept keep(const char *name, int fd)
{
	struct stat st;

	MUST(fstat(fd, &st));
	return (struct kept){ name, fd, st.st_ino, st.st_nlink };
}

static void check_kept(const struct kept *kept)
{
	struct stat st;

	CHECK(fstat(kept->fd, &st) == 0);
	if (st.st_ino != kept->ino)
		complain("'%s': inode number %llu has become %llu", kept->name,
			 (unsigned long long)kept->ino, (unsigned long long)st.st_ino);
	if (st.st_nlink != kept->nlink)
		complain("'%s': %u links have become %u", kept->name, (unsigned)kept->nlink,
			 (unsigned)st.st_nlink);
	go_on(kept->fd, kept->name);
}

enum { PLAIN, APPEND, UNLINKED, RENAMED, REPLACED, LINKED, TMPFILE, NEVER_NAMED, READ_ONLY, KEPT };

static struct kept files[KEPT];

static int open_tmpfile(const char *name)
{
	int fd = MUST(open(".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0644));
	char text[128];

	text_of(name, "first", text);
	if (write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		die_errno("cannot write a file without a name");
	return fd;
}

static void open_files(void)
{
	files[PLAIN] = keep("plain", make("plain", 0));
	files[APPEND] = keep("append", make("append", O_APPEND));
	files[UNLINKED].fd = make("unlinked", 0);
	MUST(unlink("unlinked"));
	files[UNLINKED] = keep("unlinked", files[UNLINKED].fd);
	files[RENAMED].fd = make("renamed", 0);
	MUST(rename("renamed", "renamed-away"));
	files[RENAMED] = keep("renamed", files[RENAMED].fd);
	files[REPLACED].fd = make("replaced", 0);
	close(make("over", 0));
	MUST(rename("over", "replaced"));
	files[REPLACED] = keep("replaced", files[REPLACED].fd);
	files[LINKED].fd = make("linked", 0);
	MUST(link("linked", "linked-too"));
	files[LINKED] = keep("linked", files[LINKED].fd);
	files[TMPFILE] = keep("tmpfile", open_tmpfile("tmpfile"));
	files[NEVER_NAMED] = keep("never-named", open_tmpfile("never-named"));
	/* Made without the right to write to it. */
	files[READ_ONLY] = keep("read-only", make("read-only", 0));
	MUST(fchmod(files[READ_ONLY].fd, 0400));
}

static void use_files(void)
{
	char proc[64];
	struct stat st, other;
	unsigned i;

	for (i = 0; i < KEPT; i++)
		check_kept(&files[i]);
	/* Without a name all else still works, too. */
	CHECK(ftruncate(files[UNLINKED].fd, 5) == 0);
	CHECK(fchmod(files[UNLINKED].fd, 0600) == 0);
	CHECK(fchown(files[UNLINKED].fd, 1000, 1000) == 0);
	CHECK(fsync(files[UNLINKED].fd) == 0);
	CHECK(fstat(files[UNLINKED].fd, &st) == 0 && st.st_size == 5 && st.st_nlink == 0 &&
	      (st.st_mode & 07777) == 0600 && st.st_uid == 1000);
	CHECK(access("unlinked", F_OK) < 0 && errno == ENOENT);
	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", files[TMPFILE].fd);
	CHECK(linkat(AT_FDCWD, proc, AT_FDCWD, "tmpfile", AT_SYMLINK_FOLLOW) == 0);
	CHECK(stat("linked", &st) == 0 && stat("linked-too", &other) == 0 &&
	      st.st_ino == other.st_ino && st.st_nlink == 2);
	CHECK(stat("read-only", &st) == 0 && (st.st_mode & 07777) == 0400);
	for (i = 0; i < KEPT; i++)
		CHECK(close(files[i].fd) == 0);
	for (i = 0; i < KEPT; i++)
		if (i != UNLINKED && i != REPLACED && i != NEVER_NAMED && i != RENAMED)
			expect_on_target(files[i].name);
	CHECK(unlink("replaced") == 0);
}

/* ---- maps --------------------------------------------------------------------- */

static uint8_t *map, *private_map;

static void open_maps(void)
{
	int fd = MUST(open("mapped", O_RDWR | O_CREAT | O_CLOEXEC, 0644));

	MUST(ftruncate(fd, MAP_BYTES));
	map = mmap(NULL, MAP_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	private_map = mmap(NULL, MAP_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	if (map == MAP_FAILED || private_map == MAP_FAILED)
		die_errno("cannot map");
	close(fd);
	fill_bytes(map, MAP_BYTES / 2, 1, 0);
	MUST(msync(map, MAP_BYTES, MS_SYNC));
	fill_bytes(map, MAP_BYTES / 4, 2, 0); /* not synced: it is dirty at the failover */
}

static void use_maps(void)
{
	uint8_t *wanted = xcalloc(1, MAP_BYTES), *found = xcalloc(1, MAP_BYTES);
	int fd;

	fill_bytes(wanted, MAP_BYTES / 2, 1, 0);
	fill_bytes(wanted, MAP_BYTES / 4, 2, 0);
	CHECK(memcmp(map, wanted, MAP_BYTES) == 0);
	CHECK(memcmp(private_map, wanted, MAP_BYTES) == 0);
	fill_bytes(map + MAP_BYTES / 2, MAP_BYTES / 2, 3, 0);
	fill_bytes(wanted + MAP_BYTES / 2, MAP_BYTES / 2, 3, 0);
	CHECK(msync(map, MAP_BYTES, MS_SYNC) == 0);
	fd = open("mapped", O_RDWR | O_CLOEXEC);
	CHECK(fd >= 0);
	CHECK(pread(fd, found, MAP_BYTES, 0) == MAP_BYTES && memcmp(found, wanted, MAP_BYTES) == 0);
	/* What is written is seen through the map. */
	fill_bytes(wanted + 4096, 100, 4, 0);
	CHECK(pwrite(fd, wanted + 4096, 100, 4096) == 100);
	CHECK(memcmp(map, wanted, MAP_BYTES) == 0);
	close(fd);
	CHECK(munmap(map, MAP_BYTES) == 0);
	CHECK(munmap(private_map, MAP_BYTES) == 0);
	free(wanted);
	free(found);
}

/* ---- locks -------------------------------------------------------------------- */

static int flocked = -1, fcntled = -1, ofd_locked = -1;

static void take_locks(void)
{
	struct flock range = { .l_type = F_WRLCK, .l_start = LOCK_AT, .l_len = LOCK_BYTES };

	flocked = make("flocked", 0);
	MUST(flock(flocked, LOCK_EX | LOCK_NB));
	fcntled = make("fcntled", 0);
	MUST(fcntl(fcntled, F_SETLK, &range));
	ofd_locked = make("ofd-locked", 0);
	range = (struct flock){ .l_type = F_WRLCK, .l_start = LOCK_AT, .l_len = LOCK_BYTES };
	MUST(fcntl(ofd_locked, F_OFD_SETLK, &range));
}

/* What another process finds. */
static int look_at_locks(pid_t owner)
{
	struct flock range = { .l_type = F_WRLCK, .l_start = 0, .l_len = 0 };
	int fd = open("flocked", O_RDWR | O_CLOEXEC);

	CHECK(flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK);
	fd = open("fcntled", O_RDWR | O_CLOEXEC);
	CHECK(fcntl(fd, F_GETLK, &range) == 0 && range.l_type == F_WRLCK &&
	      range.l_start == LOCK_AT && range.l_len == LOCK_BYTES && range.l_pid == owner);
	range = (struct flock){ .l_type = F_WRLCK, .l_start = LOCK_AT + 10, .l_len = 1 };
	CHECK(fcntl(fd, F_SETLK, &range) < 0 && (errno == EAGAIN || errno == EACCES));
	range = (struct flock){ .l_type = F_WRLCK, .l_start = 0, .l_len = LOCK_AT };
	CHECK(fcntl(fd, F_SETLK, &range) == 0);
	fd = open("ofd-locked", O_RDWR | O_CLOEXEC);
	range = (struct flock){ .l_type = F_WRLCK, .l_start = LOCK_AT, .l_len = 1 };
	CHECK(fcntl(fd, F_OFD_SETLK, &range) < 0 && (errno == EAGAIN || errno == EACCES));
	return wrong > 0;
}

static void use_locks(void)
{
	pid_t owner = getpid(), child;
	int status, fd;

	fflush(NULL);
	child = MUST(fork());
	if (child == 0)
		_exit(look_at_locks(owner));
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	go_on(flocked, "flocked");
	go_on(fcntled, "fcntled");
	go_on(ofd_locked, "ofd-locked");
	CHECK(flock(flocked, LOCK_UN) == 0);
	fd = open("flocked", O_RDWR | O_CLOEXEC);
	CHECK(flock(fd, LOCK_EX | LOCK_NB) == 0);
	close(fd);
	expect_on_target("flocked");
	expect_on_target("fcntled");
	expect_on_target("ofd-locked");
}

/* ---- directories -------------------------------------------------------------- */

static struct {
	DIR *stream;
	bool was_seen[LISTED];
	unsigned seen;
	struct stat before[LOOKED_AT];
	int dir_fd, path_fd, removed_fd;
	ino_t cwd_ino;
} dirs;

static void list_some(unsigned most)
{
	struct dirent *entry;
	unsigned number;

	while (most-- > 0 && (entry = readdir(dirs.stream))) {
		if (sscanf(entry->d_name, "entry%u", &number) != 1 || number >= LISTED)
			continue;
		if (dirs.was_seen[number])
			complain("'%s' is listed twice", entry->d_name);
		dirs.was_seen[number] = true;
		dirs.seen++;
	}
}

static void open_dirs(void)
{
	struct stat st;
	char name[64];
	unsigned i;

	MUST(mkdir("listed", 0755));
	for (i = 0; i < LISTED; i++) {
		snprintf(name, sizeof(name), "listed/entry%u", i);
		close(MUST(open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644)));
		if (i < LOOKED_AT)
			MUST(stat(name, &dirs.before[i]));
	}
	dirs.stream = opendir("listed");
	if (!dirs.stream)
		die_errno("cannot open a directory");
	list_some(LISTED / 2);
	dirs.dir_fd = MUST(open("listed", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	dirs.path_fd = MUST(open("listed/entry0", O_PATH | O_CLOEXEC));
	MUST(mkdir("removed", 0755));
	dirs.removed_fd = MUST(open("removed", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	MUST(rmdir("removed"));
	MUST(mkdir("entered", 0755));
	MUST(chdir("entered"));
	MUST(stat(".", &st));
	dirs.cwd_ino = st.st_ino;
}

static void check_unchanged(void)
{
	struct stat st, *before;
	char name[64];
	unsigned i;

	for (i = 0; i < LOOKED_AT; i++) {
		before = &dirs.before[i];
		snprintf(name, sizeof(name), "entry%u", i);
		CHECK(fstatat(dirs.dir_fd, name, &st, 0) == 0);
		if (st.st_ino != before->st_ino || st.st_nlink != before->st_nlink ||
		    st.st_mode != before->st_mode || st.st_dev != before->st_dev)
			complain("'%s' has another inode, link count, mode or device", name);
		if (memcmp(&st.st_mtim, &before->st_mtim, sizeof(st.st_mtim)) != 0)
			complain("'%s' has another mtime", name);
		if (memcmp(&st.st_ctim, &before->st_ctim, sizeof(st.st_ctim)) != 0)
			complain("'%s' has another ctime", name);
	}
}

static void use_dirs(void)
{
	char cwd[PATH_MAX];
	struct stat st;

	CHECK(getcwd(cwd, sizeof(cwd)) && strstr(cwd, "/entered"));
	CHECK(stat(".", &st) == 0 && st.st_ino == dirs.cwd_ino);
	CHECK(mkdir("made-after", 0755) == 0);
	CHECK(chdir("..") == 0);
	list_some(10 * LISTED);
	CHECK(dirs.seen == LISTED);
	rewinddir(dirs.stream);
	memset(dirs.was_seen, 0, sizeof(dirs.was_seen));
	dirs.seen = 0;
	list_some(10 * LISTED);
	CHECK(dirs.seen == LISTED);
	check_unchanged();
	CHECK(fstatat(dirs.path_fd, "", &st, AT_EMPTY_PATH) == 0 &&
	      st.st_ino == dirs.before[0].st_ino);
	CHECK(mkdirat(dirs.dir_fd, "made-after", 0755) == 0);
	CHECK(unlinkat(dirs.dir_fd, "entry1", 0) == 0);
	CHECK(fsync(dirs.dir_fd) == 0);
	CHECK(openat(dirs.removed_fd, "x", O_CREAT | O_WRONLY, 0644) < 0 && errno == ENOENT);
	CHECK(fstat(dirs.removed_fd, &st) == 0 && st.st_nlink == 0);
}

/* ---- fifos and sockets ---------------------------------------------------------- */

static int fifo = -1, listener = -1;

static void open_special(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = "socket" };

	MUST(mkfifo("fifo", 0600));
	fifo = MUST(open("fifo", O_RDWR | O_CLOEXEC));
	MUST(write(fifo, "before", 6));
	listener = MUST(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
	MUST(bind(listener, (struct sockaddr *)&address, sizeof(address)));
	MUST(listen(listener, 1));
}

static void use_special(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = "socket" };
	int other = open("fifo", O_RDWR | O_CLOEXEC), client;
	char text[16] = "";

	CHECK(other >= 0 && write(other, "+after", 6) == 6);
	CHECK(read(fifo, text, sizeof(text)) == 12 && strcmp(text, "before+after") == 0);
	client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK(connect(client, (struct sockaddr *)&address, sizeof(address)) == 0);
	close(client);
	close(other);
	close(fifo);
	close(listener);
}

/* ---- a program ------------------------------------------------------------------ */

static pid_t running;

static void copy_file(const char *from, const char *to)
{
	int in = MUST(open(from, O_RDONLY | O_CLOEXEC)), out;
	char buffer[65536];
	ssize_t n;

	out = MUST(open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0755));
	while ((n = MUST(read(in, buffer, sizeof(buffer)))) > 0)
		if (write(out, buffer, (size_t)n) != n)
			die_errno("cannot write '%s'", to);
	close(in);
	close(out);
}

static pid_t start_program(const char *seconds)
{
	pid_t pid;

	fflush(NULL);
	pid = MUST(fork());
	if (pid == 0) {
		execl("program", "program", seconds, NULL);
		_exit(127);
	}
	return pid;
}

static void run_program(void)
{
	copy_file("/bin/sleep", "program");
	running = start_program("1000");
}

static void use_program(void)
{
	int status;
	pid_t other;

	CHECK(waitpid(running, &status, WNOHANG) == 0);
	CHECK(open("program", O_WRONLY | O_CLOEXEC) < 0 && errno == ETXTBSY);
	other = start_program("0");
	CHECK(waitpid(other, &status, 0) == other && status == 0);
	CHECK(kill(running, SIGTERM) == 0);
	CHECK(waitpid(running, &status, 0) == running && WIFSIGNALED(status));
}

/* ---- all of it -------------------------------------------------------------------- */

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "ready", required_argument, NULL, 'r' },
		{ "go", required_argument, NULL, 'g' },
		{ 0 },
	};
	const char *ready = NULL, *go = NULL;
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option == 'r')
			ready = optarg;
		else if (option == 'g')
			go = optarg;
		else
			return TEST_TROUBLE;
	}
	if (argc - optind != 1 || !ready || !go)
		die(TEST_TROUBLE, "usage: handles DIR --ready FILE --go FILE");

	MUST(chdir(argv[optind]));
	open_files();
	open_maps();
	take_locks();
	open_special();
	run_program();
	open_dirs();
	close(MUST(open(ready, O_WRONLY | O_CREAT | O_CLOEXEC, 0644)));
	while (access(go, F_OK) < 0)
		usleep(20 * 1000);
	use_dirs();
	use_files();
	use_maps();
	use_locks();
	use_special();
	use_program();
	return wrong > 0;
}
