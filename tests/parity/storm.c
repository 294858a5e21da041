/* SPDX-License-Identifier: Apache-2.0 */
/*
 * storm DIR SECONDS [SEED]
 * storm DIR hold COUNT
 *
 * Processes that do everything at once in DIR and check what they can know: the bytes
 * of files that are theirs alone, through writes, maps, truncations and O_DIRECT; that a
 * file which was unlinked or renamed over while open keeps its bytes; and that names
 * which all fight for fail only as they may. Signals arrive all the time: a call may be
 * interrupted, but never lost or done by half. Exits 1 and says where if not.
 *
 * hold: COUNT files that are all unlinked while they are open.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "util/attr.h"

enum {
	OWN_BYTES = 1 << 20,
	NAMES = 50,
	BLOCK = 4096,
};

static uint64_t state;
static time_t deadline;

static uint64_t rng(void)
{
	uint64_t z = (state += 0x9e3779b97f4a7c15u);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static unsigned below(unsigned bound)
{
	return (unsigned)(rng() % bound);
}

static bool is_time(void)
{
	return time(NULL) < deadline;
}

static void fail(const char *what) __attribute__((noreturn));

static void fail(const char *what)
{
	fprintf(stderr, "storm %d: %s: %s\n", (int)getpid(), what, strerror(errno));
	_exit(1);
}

static void check(bool is_right, const char *what)
{
	if (!is_right)
		fail(what);
}

static void nothing(int signal)
{
	(void)signal;
}

/* Signals that interrupt: no SA_RESTART. */
static void be_interrupted(void)
{
	struct sigaction action = { .sa_handler = nothing };
	struct itimerval timer = { { 0, 7000 }, { 0, 7000 } };

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &timer, NULL);
}

/* Calls that say EINTR have done nothing: they are made again. */
#define RETRY(call)                                    \
	({                                             \
		long result_;                          \
		do                                     \
			result_ = (long)(call);        \
		while (result_ < 0 && errno == EINTR); \
		result_;                               \
	})

/* ---- a file of its own, and its model ------------------------------------ */

struct own {
	int fd, direct_fd;
	unsigned char *model, *buffer;
	size_t size;
};

static void own_write(struct own *own, bool is_direct)
{
	size_t at = below(OWN_BYTES - 70000), n = 1 + below(65536);
	ssize_t done;

	if (is_direct) {
		at &= ~(size_t)(BLOCK - 1);
		n = (n + BLOCK - 1) & ~(size_t)(BLOCK - 1);
	}
	for (size_t i = 0; i < n; i++)
		own->buffer[i] = (unsigned char)rng();
	done = RETRY(pwrite(is_direct ? own->direct_fd : own->fd, own->buffer, n, (off_t)at));
	check(done > 0, "write");
	memcpy(own->model + at, own->buffer, (size_t)done);
	if (at + (size_t)done > own->size)
		own->size = at + (size_t)done;
}

static void own_truncate(struct own *own)
{
	size_t size = below(OWN_BYTES);

	check(RETRY(ftruncate(own->fd, (off_t)size)) == 0, "truncate");
	if (size < own->size)
		memset(own->model + size, 0, own->size - size);
	own->size = size;
}

static void own_map(struct own *own)
{
	unsigned char *map;

	if (own->size == 0)
		return;
	map = mmap(NULL, own->size, PROT_READ | PROT_WRITE, MAP_SHARED, own->fd, 0);
	check(map != MAP_FAILED, "mmap");
	for (int i = 0; i < 5; i++) {
		size_t at = below((unsigned)own->size);

		map[at] = own->model[at] = (unsigned char)rng();
	}
	if (below(2))
		check(RETRY(msync(map, own->size, MS_SYNC)) == 0, "msync");
	munmap(map, own->size);
}

static void own_check(struct own *own)
{
	struct stat st;
	ssize_t n;

	check(RETRY(fstat(own->fd, &st)) == 0, "fstat");
	check((size_t)st.st_size == own->size, "size of an own file");
	n = RETRY(pread(own->fd, own->buffer, OWN_BYTES, 0));
	check(n == (ssize_t)own->size, "length of a read");
	check(memcmp(own->buffer, own->model, own->size) == 0, "bytes of an own file");
}

static void own_file(int number)
{
	struct own own = { .model = calloc(1, OWN_BYTES) };
	char name[32];

	snprintf(name, sizeof(name), "own-%d", number);
	check(posix_memalign((void **)&own.buffer, BLOCK, OWN_BYTES) == 0, "memory");
	own.fd = (int)RETRY(open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
	check(own.fd >= 0, "create");
	own.direct_fd = (int)RETRY(open(name, O_RDWR | O_DIRECT | O_CLOEXEC));
	check(own.direct_fd >= 0, "open");
	if (number % 2)
		be_interrupted();
	while (is_time()) {
		switch (below(12)) {
		case 0:
			own_truncate(&own);
			break;
		case 1:
			own_map(&own);
			break;
		case 2:
			own_check(&own);
			break;
		case 3:
			check(RETRY(fsync(own.fd)) == 0, "fsync");
			break;
		case 4:
			own_write(&own, /* is_direct= */ true);
			break;
		default:
			own_write(&own, /* is_direct= */ false);
		}
	}
	own_check(&own);
}

/* ---- names that all fight for -------------------------------------------- */

static const char *any_name(char *name)
{
	sprintf(name, "fight/%u", below(NAMES));
	return name;
}

static void may_fail(long result, const char *what)
{
	if (result < 0 && errno != ENOENT && errno != EEXIST && errno != EINTR && errno != EISDIR &&
	    errno != ENOTDIR && errno != EINVAL && errno != ENOTEMPTY && errno != EPERM &&
	    errno != EMLINK)
		fail(what);
}

/* Unlinks or renames over what it has open, and goes on with it. */
static void hold(const char *name, const char *other)
{
	unsigned char bytes[100], found[100];
	int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	struct stat st;

	if (fd < 0) {
		may_fail(-1, "create");
		return;
	}
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (unsigned char)rng();
	check(RETRY(pwrite(fd, bytes, sizeof(bytes), 0)) == (ssize_t)sizeof(bytes), "write");
	if (below(2))
		may_fail(unlink(name), "unlink");
	else
		may_fail(rename(other, name), "rename over");
	check(RETRY(fchmod(fd, 0600)) == 0, "fchmod of an open file");
	check(RETRY(fstat(fd, &st)) == 0, "fstat of an open file");
	check(RETRY(pread(fd, found, sizeof(found), 0)) == (ssize_t)sizeof(found),
	      "read of an open file");
	check(memcmp(bytes, found, sizeof(found)) == 0, "bytes of an open file");
	check(RETRY(ftruncate(fd, 10)) == 0, "ftruncate of an open file");
	close(fd);
}

static void fight(int number)
{
	char a[32], b[32];

	if (number % 2)
		be_interrupted();
	while (is_time()) {
		any_name(a);
		any_name(b);
		switch (below(10)) {
		case 0:
			may_fail(mkdir(a, 0755), "mkdir");
			break;
		case 1:
			may_fail(rmdir(a), "rmdir");
			break;
		case 2:
			may_fail(rename(a, b), "rename");
			break;
		case 3:
			may_fail(link(a, b), "link");
			break;
		case 4:
			may_fail(unlink(a), "unlink");
			break;
		case 5:
			may_fail(renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE), "exchange");
			break;
		case 6:
			may_fail(symlink(a, b), "symlink");
			break;
		default:
			hold(a, b);
		}
	}
}

/* ---- appends ------------------------------------------------------------- */

static void append(int number)
{
	char record[64];
	int fd = open("appended", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	uint64_t count = 0;

	check(fd >= 0, "open");
	while (is_time()) {
		memset(record, 'a' + number, sizeof(record));
		check(write(fd, record, sizeof(record)) == (ssize_t)sizeof(record), "append");
		count++;
		if (count % 64 == 0)
			usleep(1000);
	}
	snprintf(record, sizeof(record), "count-%d", number);
	close(fd);
	fd = open(record, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	check(write(fd, &count, sizeof(count)) == (ssize_t)sizeof(count), "count");
	close(fd);
}

static void check_appended(int appenders)
{
	uint64_t count, expected[26] = { 0 };
	char record[64];
	FILE *file;

	for (int i = 0; i < appenders; i++) {
		snprintf(record, sizeof(record), "count-%d", i);
		file = fopen(record, "re");
		check(file && fread(&count, sizeof(count), 1, file) == 1, "count");
		expected[i] = count;
		fclose(file);
	}
	file = fopen("appended", "re");
	check(file != NULL, "appended");
	while (fread(record, sizeof(record), 1, file) == 1) {
		for (size_t i = 1; i < sizeof(record); i++)
			check(record[i] == record[0], "torn record");
		expected[record[0] - 'a']--;
	}
	fclose(file);
	for (int i = 0; i < appenders; i++)
		check(expected[i] == 0, "records lost or doubled");
}

/* ---- many at once -------------------------------------------------------- */

static void hold_many(unsigned count)
{
	int *fds = calloc(count, sizeof(*fds));
	unsigned found;
	struct stat st;
	char name[32];

	for (unsigned i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "held-%u", i);
		fds[i] = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		check(fds[i] >= 0, name);
		check(write(fds[i], &i, sizeof(i)) == (ssize_t)sizeof(i), "write");
		check(unlink(name) == 0, "unlink");
	}
	for (unsigned i = 0; i < count; i++) {
		check(fstat(fds[i], &st) == 0 && st.st_nlink == 0, "fstat of an unlinked file");
		/* Not from the cache, but from whoever keeps it. */
		check(posix_fadvise(fds[i], 0, 0, POSIX_FADV_DONTNEED) == 0, "fadvise");
		check(pread(fds[i], &found, sizeof(found), 0) == (ssize_t)sizeof(found) &&
			      found == i,
		      "bytes of an unlinked file");
		check(pwrite(fds[i], &i, sizeof(i), 4096) == (ssize_t)sizeof(i),
		      "write to an unlinked file");
	}
	for (unsigned i = 0; i < count; i++)
		close(fds[i]);
	free(fds);
}

/* ---- all ----------------------------------------------------------------- */

static void start(void (*run)(int number), int number)
{
	pid_t pid = fork();

	check(pid >= 0, "fork");
	if (pid > 0)
		return;
	state += (uint64_t)getpid() << 20;
	run(number);
	_exit(0);
}

int main(int argc, char **argv)
{
	enum { OWNERS = 4, FIGHTERS = 4, APPENDERS = 2 };
	int status, failed = 0;

	if (argc < 3) {
		fprintf(stderr, "usage: storm DIR SECONDS [SEED] | storm DIR hold COUNT\n");
		return 2;
	}
	if (argc == 4 && strcmp(argv[2], "hold") == 0) {
		check(chdir(argv[1]) == 0, argv[1]);
		hold_many((unsigned)atoi(argv[3]));
		return 0;
	}
	state = argc > 3 ? strtoull(argv[3], NULL, 0) : (uint64_t)time(NULL);
	printf("seed %llu\n", (unsigned long long)state);
	fflush(stdout);
	deadline = time(NULL) + atoi(argv[2]);
	check(chdir(argv[1]) == 0, argv[1]);
	(void)unlink("appended"); /* of a run before */
	check(mkdir("fight", 0755) == 0 || errno == EEXIST, "mkdir");
	for (int i = 0; i < OWNERS; i++)
		start(own_file, i);
	for (int i = 0; i < FIGHTERS; i++)
		start(fight, i);
	for (int i = 0; i < APPENDERS; i++)
		start(append, i);
	while (wait(&status) > 0)
		failed += status != 0;
	if (!failed)
		check_appended(APPENDERS);
	printf("%d failed\n", failed);
	return failed != 0;
}
