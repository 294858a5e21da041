/* SPDX-License-Identifier: Apache-2.0 */
/* Data: reading, writing, sizes, space, maps, appends. */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/parity/parity.h"

static int open_new(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

	if (fd < 0)
		say_result(path, fd);
	return fd;
}

static void fill(int fd, size_t size, unsigned seed)
{
	char *data = malloc(size);

	for (size_t i = 0; i < size; i++)
		data[i] = (char)(i * 7 + i / 251 + seed);
	DO(pwrite(fd, data, size, 0));
	free(data);
}

static void reads_and_writes(void)
{
	char buffer[100] = "";
	int fd = open_new("f"), reader;

	fill(fd, 3000000, 1);
	say_fd(fd);
	DO(pread(fd, buffer, sizeof(buffer), 2999950));
	DO(pread(fd, buffer, sizeof(buffer), 4000000));
	DO(pwrite(fd, "x", 1, 5000000));
	say_fd(fd);
	DO(lseek(fd, 0, SEEK_END));
	DO(lseek(fd, -1, SEEK_SET));
	DO(pwrite(fd, "", 0, 100));
	reader = open("f", O_RDONLY | O_CLOEXEC);
	DO(write(reader, "x", 1));
	DO(ftruncate(reader, 0));
	DO(read(reader, buffer, 10));
	close(reader);
	close(fd);
	fd = open("f", O_WRONLY | O_CLOEXEC);
	DO(read(fd, buffer, 1));
	close(fd);
	fd = open(".", O_RDONLY | O_CLOEXEC);
	DO(read(fd, buffer, 1));
	close(fd);
	say_file("f");
}

static void sizes(void)
{
	int fd = open_new("f");

	fill(fd, 100000, 2);
	DO(ftruncate(fd, 50001));
	say_fd(fd);
	DO(ftruncate(fd, 200000));
	say_fd(fd);
	DO(ftruncate(fd, 200000));
	DO(truncate("f", 3));
	say_fd(fd);
	DO(truncate("f", 10));
	say_fd(fd);
	DO(ftruncate(fd, -1));
	DO(truncate("nothing", 0));
	DO(truncate(".", 0));
	DO(ftruncate(fd, (off_t)1 << 40));
	say_fstat(fd);
	DO(pwrite(fd, "end", 3, ((off_t)1 << 40) - 3));
	DO(ftruncate(fd, 0));
	say_fd(fd);
	close(fd);
}

/* As cp and tar do with files that have holes. */
static void copy_data_alone(int from, const char *to)
{
	static char buffer[1 << 16];
	int fd = open_new(to);
	off_t at = 0, end;
	ssize_t n;

	while ((at = lseek(from, at, SEEK_DATA)) >= 0) {
		end = lseek(from, at, SEEK_HOLE);
		while (at < end) {
			size_t size = (size_t)(end - at) < sizeof(buffer) ? (size_t)(end - at) : sizeof(buffer);

			n = pread(from, buffer, size, at);
			if (n <= 0 || pwrite(fd, buffer, (size_t)n, at) != n) {
				say("cannot copy at %lld", (long long)at);
				break;
			}
			at += n;
		}
		if (at < end)
			break;
	}
	DO(ftruncate(fd, lseek(from, 0, SEEK_END)));
	close(fd);
	say_file(to);
}

static void holes(void)
{
	char block[4096], *map;
	int fd = open_new("f");

	memset(block, 'b', sizeof(block));
	DO(ftruncate(fd, 2 << 20));
	DO(pwrite(fd, block, sizeof(block), 1 << 20));
	copy_data_alone(fd, "copy");
	DO(lseek(fd, 2 << 20, SEEK_DATA));
	DO(lseek(fd, 3 << 20, SEEK_HOLE));
	DO(lseek(fd, 0, SEEK_HOLE) > 0 || lseek(fd, 0, SEEK_DATA) > 0);

	/* What was stored through a map, and is written by nobody yet. */
	map = mmap(NULL, 2 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	map[300000] = 'm';
	copy_data_alone(fd, "copy of the map");
	munmap(map, 2 << 20);
	close(fd);
}

static void space(void)
{
	int fd = open_new("f");

	fill(fd, 65536, 3);
	DO(fsync(fd));
	DO(fallocate(fd, 0, 60000, 20000));
	say_fd(fd);
	DO(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 1 << 20));
	say_fd(fd);
	DO(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 5000, 20000));
	say_fd(fd);
	DO(fallocate(fd, FALLOC_FL_PUNCH_HOLE, 5000, 20000));
	DO(fallocate(fd, FALLOC_FL_ZERO_RANGE, 30000, 1000));
	say_fd(fd);
	DO(fallocate(fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, 70000, 100000));
	say_fd(fd);
	DO(fallocate(fd, FALLOC_FL_ZERO_RANGE, 70000, 100000));
	say_fd(fd);
	/* COLLAPSE_RANGE and INSERT_RANGE are refused by the kernel's FUSE: EOPNOTSUPP. */
	DO(fallocate(fd, 0, 0, 0));
	DO(fallocate(fd, 0x4000, 0, 4096));
	DO(posix_fallocate(fd, 0, 300000));
	say_fd(fd);
	close(fd);
}

static void copies(void)
{
	off_t from = 1000, to = 500;
	int in = open_new("in"), out = open_new("out"), reader;

	fill(in, 300000, 4);
	DO(copy_file_range(in, &from, out, &to, 200000, 0));
	say_fd(out);
	from = 299000;
	DO(copy_file_range(in, &from, out, &to, 200000, 0));
	DO(copy_file_range(in, &from, out, &to, 200000, 0));
	say_fd(out);
	reader = open("out", O_RDONLY | O_CLOEXEC);
	DO(copy_file_range(in, &from, reader, &to, 100, 0));
	from = 0;
	to = 100;
	DO(copy_file_range(in, &from, in, &to, 1000, 0));
	to = 1000;
	from = 0;
	DO(copy_file_range(in, &from, in, &to, 1000, 0));
	say_fd(in);
	close(reader);
	close(in);
	close(out);
}

static void direct(void)
{
	int fd = open("f", O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0644), plain;
	char *data;

	say("O_DIRECT %d", fd >= 0);
	if (posix_memalign((void **)&data, 4096, 8 << 20) != 0)
		exit(1);
	for (int i = 0; i < 8 << 20; i++)
		data[i] = (char)(i ^ (i >> 8));
	DO(pwrite(fd, data, 8 << 20, 0));
	DO(pwrite(fd, data, 4096, 4096));
	DO(pread(fd, data, 1 << 20, 4096));
	plain = open("f", O_RDWR | O_CLOEXEC);
	say_fd(plain);
	DO(pwrite(plain, "buffered", 8, 100));
	DO(pread(fd, data, 4096, 0));
	say("%.8s", data + 100);
	DO(pwrite(fd, data, 4096, 8192));
	DO(pread(plain, data, 8, 8292));
	say("%.8s", data);
	free(data);
	close(plain);
	close(fd);
	say_file("f");
}

static void maps(void)
{
	int fd = open_new("f");
	char *map, *private, buffer[16] = "";

	fill(fd, 100000, 5);
	map = mmap(NULL, 100000, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	private = mmap(NULL, 100000, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	say("mapped %d %d", map != MAP_FAILED, private != MAP_FAILED);
	memcpy(map + 50000, "through the map", 15);
	memcpy(private + 60000, "kept to oneself", 15);
	DO(pread(fd, buffer, 15, 50000));
	say("%s", buffer);
	DO(pwrite(fd, "through write(2)", 16, 70000));
	say("%.16s %.16s", map + 70000, private + 70000);
	DO(msync(map, 100000, MS_SYNC));
	close(fd);
	memcpy(map + 99990, "after", 5);
	munmap(map, 100000);
	munmap(private, 100000);
	say_file("f");
}

static void append_many(int number)
{
	int fd = open("log", O_WRONLY | O_APPEND | O_CLOEXEC);
	char record[100];

	for (int i = 0; i < 500; i++) {
		memset(record, 'a' + number, sizeof(record));
		if (write(fd, record, sizeof(record)) != (ssize_t)sizeof(record))
			_exit(1);
	}
	_exit(0);
}

/* Appends of eight processes: nothing lost, nothing torn. */
static void appends(void)
{
	int fd = open_new("log"), torn = 0, status, counts[8] = { 0 };
	char record[100];

	for (int i = 0; i < 8; i++) {
		if (fork() == 0)
			append_many(i);
	}
	for (int i = 0; i < 8; i++) {
		wait(&status);
		say("status %d", status);
	}
	while (read(fd, record, sizeof(record)) == (ssize_t)sizeof(record)) {
		for (size_t i = 1; i < sizeof(record); i++)
			torn += record[i] != record[0];
		counts[(record[0] - 'a') & 7]++;
	}
	for (int i = 0; i < 8; i++)
		say("%d records", counts[i]);
	say("%d torn", torn);
	say_fstat(fd);
	close(fd);
	fd = open("log", O_RDWR | O_APPEND | O_CLOEXEC);
	DO(pwrite(fd, "at the end all the same", 23, 0));
	say_fstat(fd);
	close(fd);
}

static void vectors(void)
{
	char a[3] = "abc", b[70000], c[5] = "tail";
	struct iovec iov[3] = { { a, 3 }, { b, sizeof(b) }, { c, 4 } };
	int fd = open_new("f");

	memset(b, 'b', sizeof(b));
	DO(writev(fd, iov, 3));
	DO(lseek(fd, 0, SEEK_SET));
	DO(readv(fd, iov, 3));
	DO(pwritev2(fd, iov, 3, 10, RWF_DSYNC));
	say_fd(fd);
	close(fd);
}

static void locks(void)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 10 };
	int fd = open_new("f"), other = open("f", O_RDWR | O_CLOEXEC);

	DO(flock(fd, LOCK_EX | LOCK_NB));
	DO(flock(other, LOCK_EX | LOCK_NB));
	DO(flock(fd, LOCK_UN));
	DO(flock(other, LOCK_SH | LOCK_NB));
	DO(fcntl(fd, F_SETLK, &lock));
	if (fork() == 0) {
		DO(fcntl(other, F_SETLK, &lock));
		lock.l_start = 30;
		DO(fcntl(other, F_SETLK, &lock));
		lock.l_start = 0;
		DO(fcntl(other, F_GETLK, &lock));
		say("%d %lld %lld %d", lock.l_type, (long long)lock.l_start, (long long)lock.l_len,
		    lock.l_pid == getppid());
		_exit(0);
	}
	wait(NULL);
	DO(fcntl(fd, F_OFD_SETLK, &(struct flock){ .l_type = F_RDLCK, .l_start = 50, .l_len = 1 }));
	close(other);
	close(fd);
}

const struct parity_case parity_data[] = {
	{ "reads and writes", reads_and_writes },
	{ "sizes go down and up", sizes },
	{ "a copy of the data alone is whole", holes },
	{ "fallocate in all modes", space },
	{ "copy_file_range", copies },
	{ "O_DIRECT beside buffered I/O", direct },
	{ "shared and private maps", maps },
	{ "appends of eight processes", appends },
	{ "vectors", vectors },
	{ "locks", locks },
	{ 0 },
};
