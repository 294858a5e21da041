/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Appends, and what else has an end in it: sizes that change under an open file, maps
 * beside them, limits, and other file systems.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/parity/parity.h"

enum { APPENDERS = 8, RECORDS = 1000, RECORD = 100, BLOCK = 4096 };

#ifndef RWF_APPEND
#define RWF_APPEND 0x10
#endif

/* ---- appends -------------------------------------------------------------- */

static void lines(void)
{
	int fd;

	put("t", 0644, "foo\n");
	fd = open("t", O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
	DO(write(fd, "bar\n", 4));
	close(fd);
	say_file("t");
	fd = open("t", O_WRONLY | O_APPEND | O_TRUNC | O_CLOEXEC, 0644);
	DO(write(fd, "s\n", 2));
	say_file("t");
	DO(truncate("t", 0));
	DO(write(fd, "after a truncation\n", 19));
	say_file("t");
	put("t", 0644, "x");
	DO(write(fd, "after another opened truncating\n", 32));
	say_file("t");
	DO(lseek(fd, 0, SEEK_SET));
	DO(write(fd, "wherever it stands\n", 19));
	DO(lseek(fd, 0, SEEK_CUR));
	DO(pwrite(fd, "not at 0\n", 9, 0));
	say_file("t");
	DO(fcntl(fd, F_SETFL, 0));
	DO(pwrite(fd, "at 0\n", 5, 0));
	say_file("t");
	DO(fcntl(fd, F_SETFL, O_APPEND));
	DO(pwrite(fd, "at the end again\n", 17, 0));
	say_file("t");
	close(fd);
}

/* Two descriptors, of which one does not append, and a map. */
static void appends_beside_others(void)
{
	int append, other;
	char *map, buffer[32] = "";

	put("f", 0644, "0123456789");
	append = open("f", O_RDWR | O_APPEND | O_CLOEXEC);
	other = open("f", O_RDWR | O_CLOEXEC);
	DO(pwrite(other, "far", 3, 100000));
	DO(write(append, "behind it", 9));
	DO(ftruncate(other, 5));
	DO(write(append, "in the middle", 13));
	say_fd(other);
	DO(fallocate(other, 0, 0, 200));
	DO(write(append, "behind the space", 16));
	say_fd(other);
	DO(fallocate(other, FALLOC_FL_KEEP_SIZE, 0, 20000));
	DO(write(append, "not behind this", 15));
	map = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, other, 0);
	DO(write(append, "seen in the map", 15));
	say("%.15s", map + 231);
	memcpy(map + 231, "SEEN", 4);
	DO(write(append, "!", 1));
	DO(pread(append, buffer, 16, 231));
	say("%s", buffer);
	say_fd(other);
	munmap(map, 8192);
	close(append);
	close(other);
	say_file("f");
}

static void appends_in_other_ways(void)
{
	struct iovec iov[2] = { { (char[]){ "one " }, 4 }, { (char[]){ "two " }, 4 } };
	int fd, plain, in, pipes[2];
	off_t at = 0, from = 0;

	put("in", 0644, "0123456789");
	put("f", 0644, "start ");
	in = open("in", O_RDONLY | O_CLOEXEC);
	fd = open("f", O_RDWR | O_APPEND | O_CLOEXEC);
	plain = open("f", O_RDWR | O_CLOEXEC);
	DO(writev(fd, iov, 2));
	DO(pwritev(fd, iov, 2, 0));
	DO(pwritev2(plain, iov, 2, 0, RWF_APPEND));
	DO(pwritev2(plain, iov, 2, -1, RWF_APPEND));
	say_fd(plain);
	if (pipe2(pipes, O_CLOEXEC) < 0 || write(pipes[1], "spliced", 7) != 7)
		exit(1);
	DO(splice(pipes[0], NULL, fd, NULL, 7, 0));
	DO(splice(pipes[0], NULL, plain, &at, 7, 0));
	DO(copy_file_range(in, &from, fd, &at, 5, 0));
	DO(sendfile(fd, in, NULL, 5));
	say_fd(plain);
	DO(write(fd, "", 0));
	DO(ftruncate(fd, 3));
	DO(write(fd, "end", 3));
	say_fd(plain);
	close(pipes[0]);
	close(pipes[1]);
	close(in);
	close(plain);
	close(fd);
}

static void append_many(const char *path, int flags, size_t size, int number)
{
	int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | flags);
	char *record;

	if (posix_memalign((void **)&record, BLOCK, size) != 0)
		_exit(2);
	memset(record, 'a' + number, size);
	for (int i = 0; i < (size == RECORD ? RECORDS : RECORDS / 20); i++)
		if (write(fd, record, size) != (ssize_t)size)
			_exit(1);
	_exit(0);
}

/* Nothing lost, nothing torn. */
static void append_together(const char *path, int flags, size_t size)
{
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644), torn = 0, status;
	int counts[APPENDERS] = { 0 };
	char *record = malloc(size);

	fflush(stdout);
	for (int i = 0; i < APPENDERS; i++)
		if (fork() == 0)
			append_many(path, flags, size, i);
	for (int i = 0; i < APPENDERS; i++) {
		wait(&status);
		say("status %d", status);
	}
	while (read(fd, record, size) == (ssize_t)size) {
		for (size_t i = 1; i < size; i++)
			torn += record[i] != record[0];
		counts[(record[0] - 'a') % APPENDERS]++;
	}
	for (int i = 0; i < APPENDERS; i++)
		say("%d records", counts[i]);
	say("%d torn", torn);
	say_fstat(fd);
	free(record);
	close(fd);
}

static void appends_by_many(void)
{
	append_together("log", 0, RECORD);
	append_together("log-of-blocks", 0, 3 * BLOCK);
	append_together("log-in-sync", O_SYNC, 5000);
}

static void direct_appends_by_many(void)
{
	append_together("direct", O_DIRECT, 2 * BLOCK);
}

/* ---- O_DIRECT ------------------------------------------------------------- */

static void direct_sizes(void)
{
	static const size_t sizes[] = { 512, 4096, 65536, 1 << 20, (1 << 20) + 4096, 8 << 20 };
	int fd = open("f", O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0644), append;
	off_t at = 0;
	char *data;

	if (posix_memalign((void **)&data, BLOCK, 8 << 20) != 0)
		exit(1);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		memset(data, 'a' + (int)i, sizes[i]);
		DO(pwrite(fd, data, sizes[i], at));
		at += (off_t)sizes[i] == 512 ? 4096 : (off_t)sizes[i];
	}
	say_fd(open("f", O_RDONLY | O_CLOEXEC));
	DO(pread(fd, data, 8 << 20, 0));
	DO(pread(fd, data, 4096, at));
	DO(pread(fd, data, 8192, at - 4096));
	append = open("f", O_WRONLY | O_APPEND | O_DIRECT | O_CLOEXEC);
	DO(pwrite(append, data, 4096, 0));
	DO(ftruncate(fd, 4096));
	DO(write(append, data, 4096));
	say_file("f");
	DO(fcntl(append, F_SETFL, O_APPEND));
	DO(write(append, "buffered now", 12));
	say_file("f");
	free(data);
	close(append);
	close(fd);
}

static void direct_map(void)
{
	int fd = open("f", O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0644);
	char *data, *map;

	if (posix_memalign((void **)&data, BLOCK, 4 * BLOCK) != 0)
		exit(1);
	memset(data, 'd', 4 * BLOCK);
	DO(pwrite(fd, data, 4 * BLOCK, 0));
	map = mmap(NULL, 4 * BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	say("mapped %d", map != MAP_FAILED);
	memset(map + BLOCK, 'm', BLOCK);
	DO(msync(map, 4 * BLOCK, MS_SYNC));
	DO(pread(fd, data, 4 * BLOCK, 0));
	say("%c%c%c", data[0], data[BLOCK], data[2 * BLOCK]);
	memset(map, 'n', BLOCK); /* dirty while it is read and written directly */
	DO(pread(fd, data, BLOCK, 0));
	say("%c", data[0]);
	memset(data, 'w', BLOCK);
	DO(pwrite(fd, data, BLOCK, 2 * BLOCK));
	say("%c", map[2 * BLOCK]);
	munmap(map, 4 * BLOCK);
	free(data);
	close(fd);
	say_file("f");
}

/* ---- maps and sizes ------------------------------------------------------- */

static sigjmp_buf after_signal;

static void jump(int signal)
{
	siglongjmp(after_signal, signal);
}

static void say_access(const char *what, const volatile char *at)
{
	int signal = sigsetjmp(after_signal, 1);

	if (signal == 0)
		say("%s: %d", what, *at);
	else
		say("%s: %s", what, signal == SIGBUS ? "SIGBUS" : "another signal");
}

static void maps_and_sizes(void)
{
	struct sigaction action = { .sa_handler = jump };
	int fd = open("f", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	char *map, buffer[8] = "";

	sigaction(SIGBUS, &action, NULL);
	sigaction(SIGSEGV, &action, NULL);
	DO(ftruncate(fd, 3 * BLOCK));
	map = mmap(NULL, 5 * BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	say_access("within", map);
	say_access("behind the end", map + 4 * BLOCK);
	memset(map, 'x', 3 * BLOCK);
	DO(ftruncate(fd, BLOCK + 10));
	say_access("cut off", map + 2 * BLOCK + 5);
	say_access("in the last page", map + BLOCK + 100);
	DO(ftruncate(fd, 3 * BLOCK));
	say_access("back, as zeros", map + BLOCK + 100);
	say_access("and the page after", map + 2 * BLOCK + 5);
	map[2 * BLOCK] = 'y';
	DO(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 5000));
	say_access("punched", map);
	say_access("not punched", map + 5001);
	say_fd(fd);
	map[100] = 'z';
	DO(msync(map, 4096, MS_SYNC)); /* before, only others than FUSE look into the map */
	DO(lseek(fd, 0, SEEK_DATA));
	DO(pwrite(fd, "W", 1, 101));
	say_access("written", map + 101);
	DO(pread(fd, buffer, 2, 100));
	say("%s", buffer);
	DO(ftruncate(fd, 5 * BLOCK));
	say_access("grown", map + 4 * BLOCK);
	munmap(map, 5 * BLOCK);
	DO((long)mmap(NULL, BLOCK, PROT_READ, MAP_SHARED, open(".", O_RDONLY), 0) < 0);
	close(fd);
	fd = open("f", O_RDONLY | O_CLOEXEC);
	say("%d", mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
	close(fd);
	say_file("f");
}

/* What is dirty in a map is what others copy, send and read. */
static void copies_of_maps(void)
{
	int in = open("in", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	int out = open("out", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	char *from, *to, buffer[16] = "";
	off_t at = 0, at_out = 0;

	DO(ftruncate(in, 100000));
	DO(ftruncate(out, 100000));
	from = mmap(NULL, 100000, PROT_READ | PROT_WRITE, MAP_SHARED, in, 0);
	to = mmap(NULL, 100000, PROT_READ | PROT_WRITE, MAP_SHARED, out, 0);
	memset(from, 'f', 100000);
	memset(to, 't', 100000);
	DO(copy_file_range(in, &at, out, &at_out, 50000, 0));
	say("%c%c", to[49999], to[50000]);
	say_fd(out);
	memset(from, 'g', 100000);
	DO(lseek(out, 60000, SEEK_SET));
	at = 0;
	DO(sendfile(out, in, &at, 10000));
	say("%c%c%c", to[59999], to[60000], to[70000]);
	memset(to + 60000, 'T', 100);
	DO(pread(out, buffer, 10, 60000));
	say("%s", buffer);
	munmap(from, 100000);
	munmap(to, 100000);
	close(in);
	close(out);
	say_file("in");
	say_file("out");
}

/* Maps of two processes. */
static void maps_of_two(void)
{
	int fd = open("f", O_RDWR | O_CREAT | O_CLOEXEC, 0644), status;
	char *map;

	DO(ftruncate(fd, 1 << 20));
	map = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	fflush(stdout);
	if (fork() == 0) {
		int own = open("f", O_RDWR | O_CLOEXEC);
		char *other = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, own, 0);

		for (int i = 1; i < 1 << 20; i += 2)
			other[i] = 'o';
		_exit(0);
	}
	for (int i = 0; i < 1 << 20; i += 2)
		map[i] = 'e';
	wait(&status);
	say("status %d, %c%c", status, map[1000], map[1001]);
	say_fd(fd);
	munmap(map, 1 << 20);
	close(fd);
	say_file("f");
}

/* ---- limits --------------------------------------------------------------- */

static void limits(void)
{
	struct rlimit limit = { 10000, 10000 };
	int fd = open("f", O_RDWR | O_CREAT | O_CLOEXEC, 0644), append;
	char data[20000];

	signal(SIGXFSZ, SIG_IGN);
	memset(data, 'd', sizeof(data));
	DO(setrlimit(RLIMIT_FSIZE, &limit));
	DO(pwrite(fd, data, sizeof(data), 0));
	DO(pwrite(fd, data, 100, 10000));
	DO(ftruncate(fd, 20000));
	DO(truncate("f", 9990));
	DO(fallocate(fd, 0, 0, 20000));
	DO(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 9000));
	append = open("f", O_WRONLY | O_APPEND | O_CLOEXEC);
	DO(write(append, data, 100));
	DO(write(append, data, 100));
	say_fd(fd);
	close(append);
	close(fd);
}

static void great_offsets(void)
{
	static const off_t offsets[] = { (off_t)1 << 31, (off_t)1 << 32, ((off_t)1 << 40) - 1 };
	int fd = open("f", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	char found[4] = "";

	for (size_t i = 0; i < ARRAY_SIZE(offsets); i++) {
		DO(pwrite(fd, "far", 3, offsets[i]));
		say_fstat(fd);
		DO(pread(fd, found, 3, offsets[i]));
		say("%s", found);
		DO(lseek(fd, offsets[i] - (1 << 20), SEEK_DATA) >= 0);
	}
	DO(pwrite(fd, "x", 1, -1));
	DO(pread(fd, found, 1, -1));
	DO(pwrite(fd, "x", 1, INT64_MAX));
	DO(ftruncate(fd, INT64_MAX));
	DO(fallocate(fd, 0, INT64_MAX - 1, 100));
	DO(fallocate(fd, 0, -1, 100));
	DO(pread(fd, found, 1, INT64_MAX - 10));
	say_fstat(fd);
	DO(ftruncate(fd, 10));
	close(fd);
}

/* A write that has a bad address in it, in part or whole. */
static void bad_addresses(void)
{
	int fd = open("f", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	char *map =
		mmap(NULL, 2 * BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memset(map, 'm', 2 * BLOCK);
	DO(munmap(map + BLOCK, BLOCK));
	DO(pwrite(fd, map + BLOCK, 100, 0));
	DO(pwrite(fd, map, BLOCK, 0));
	DO(pread(fd, map + BLOCK, 100, 0));
	say_fd(fd);
	close(fd);
}

/* ---- other file systems --------------------------------------------------- */

/* Programs fall back to copying when they get the right errno. */
static void other_file_systems(void)
{
	int fd, memory = memfd_create("other", MFD_CLOEXEC);
	char outside[] = "/dev/shm/parity.XXXXXX", path[64], proc[64];
	off_t from = 0, to = 0;

	if (!mkdtemp(outside))
		exit(1);
	snprintf(path, sizeof(path), "%s/x", outside);
	put("f", 0644, "from here");
	put(path, 0644, "from there");
	DO(mkdir("d", 0755));
	DO(rename("f", path));
	DO(rename(path, "f"));
	DO(rename("d", outside));
	DO(link("f", path));
	DO(link(path, "g"));
	DO(renameat2(AT_FDCWD, "f", AT_FDCWD, path, 2));
	fd = open("f", O_RDWR | O_CLOEXEC);
	DO(sendfile(memory, fd, &from, 9));
	say_fd(memory);
	DO(ioctl(fd, 0x40049409 /* FICLONE */, memory));
	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", memory);
	DO(linkat(AT_FDCWD, proc, AT_FDCWD, "linked", AT_SYMLINK_FOLLOW));
	from = 0;
	DO(copy_file_range(memory, &from, fd, &to, 9, 0) < 0);
	(void)unlink(path);
	(void)rmdir(outside);
	close(memory);
	close(fd);
	say_file("f");
	say_dir(".");
}

const struct parity_case parity_appends[] = {
	{ "lines are appended, and files cut to nothing", lines },
	{ "appends beside other descriptors and a map", appends_beside_others },
	{ "appends by vectors, flags, splices and copies", appends_in_other_ways },
	{ "appends of eight processes, small, large, and synchronous", appends_by_many },
	{ "appends of eight processes with O_DIRECT", direct_appends_by_many },
	{ "O_DIRECT in sizes from 512 bytes to 8 MiB", direct_sizes },
	{ "a map of a file opened with O_DIRECT", direct_map },
	{ "maps of a file that grows and shrinks", maps_and_sizes },
	{ "dirty maps are copied and sent", copies_of_maps },
	{ "two processes store into one map", maps_of_two },
	{ "the limit of a file's size", limits },
	{ "great offsets", great_offsets },
	{ "bad addresses", bad_addresses },
	{ "from and to other file systems", other_file_systems },
	{ 0 },
};
