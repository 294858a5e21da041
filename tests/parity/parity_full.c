/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A full file system. Run only when asked for by name, on two small file systems of the
 * same kind and size, of which each case finds all the room again.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tests/parity/parity.h"

enum { CHUNK = 300001 };

/* Writes until nothing goes in any more; says what the last writes were. */
static void fill_up(int fd)
{
	static char data[CHUNK];
	long total = 0;
	ssize_t n;

	memset(data, 'd', sizeof(data));
	while ((n = write(fd, data, sizeof(data))) == (ssize_t)sizeof(data))
		total += n;
	say("%ld bytes went in", total);
	say_result("then", n);
	say_result("then", write(fd, data, sizeof(data)));
	say_fstat(fd);
}

static void written_full(void)
{
	int fd = open("f", O_RDWR | O_CREAT | O_CLOEXEC, 0644), other;

	fill_up(fd);
	DO(lseek(fd, 0, SEEK_CUR));
	DO(pwrite(fd, "over", 4, 100));
	DO(mkdir("d", 0755) == 0 || errno == ENOSPC);
	other = open("g", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	DO(write(other, "no room", 7));
	DO(ftruncate(other, 1 << 30));
	DO(fallocate(other, 0, 0, 1 << 20));
	say_fstat(other);
	DO(ftruncate(fd, 1000));
	DO(write(other, "some room", 9));
	DO(unlink("g"));
	DO(unlink("f"));
	close(other);
	close(fd);
}

static void appended_full(void)
{
	int fd = open("log", O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644), other;
	ssize_t n = -1;

	other = open("other", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	DO(ftruncate(other, 65536));
	DO(pwrite(other, "x", 1, 65535));
	fill_up(fd);
	DO(unlink("other"));
	close(other);
	/* What did not go in is written again; nothing is there twice. */
	for (int i = 0; i < 100 && (n = write(fd, "the end", 7)) < 0; i++)
		usleep(50000); /* to be gone may take a moment */
	say_result("append", n);
	say_fd(fd);
	DO(unlink("log"));
	close(fd);
}

/* With O_DIRECT the last one may go in in part, or not at all. */
static void direct_full(void)
{
	int fd = open("f", O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0644);
	char *data;
	ssize_t n;

	if (posix_memalign((void **)&data, 4096, 1 << 20) != 0)
		exit(1);
	memset(data, 'd', 1 << 20);
	DO(pwrite(fd, data, 8192, 0));
	DO(lseek(fd, 8192, SEEK_SET));
	while ((n = write(fd, data, 1 << 20)) == 1 << 20)
		;
	while ((n = pwrite(fd, data, 4096, lseek(fd, 0, SEEK_CUR))) > 0)
		lseek(fd, n, SEEK_CUR);
	say_result("at last", n);
	say_fstat(fd);
	DO(unlink("f"));
	close(fd);
}

/* What was unlinked gives its room back when it is closed. */
static void unlinked_full(void)
{
	int fd = open("f", O_RDWR | O_CREAT | O_CLOEXEC, 0644), other;

	fill_up(fd);
	DO(unlink("f"));
	other = open("g", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	DO(write(other, "no room", 7));
	close(fd);
	for (int i = 0; i < 100 && pwrite(other, "room", 4, 0) != 4; i++)
		usleep(50000); /* as above */
	say_fstat(other);
	DO(unlink("g"));
	close(other);
}

static void copied_full(void)
{
	int in = open("in", O_RDWR | O_CREAT | O_CLOEXEC, 0644), fd;
	off_t from = 0, to = 0;
	long total = 0;
	ssize_t n;

	DO(ftruncate(in, 1 << 20));
	for (int i = 0; i < 256; i++)
		if (pwrite(in, "x", 1, i * 4096) != 1)
			say_result("pwrite", -1);
	fd = open("f", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	while ((n = copy_file_range(in, &from, fd, &to, 1 << 20, 0)) > 0) {
		total += n;
		from = 0;
	}
	say("%d bytes, then %s", total > 1 << 20, strerrorname_np(errno));
	DO(unlink("f"));
	DO(unlink("in"));
	close(fd);
	close(in);
}

const struct parity_case parity_full[] = {
	{ "full: writes", written_full },
	{ "full: appends", appended_full },
	{ "full: writes with O_DIRECT", direct_full },
	{ "full: what is unlinked", unlinked_full },
	{ "full: copies", copied_full },
	{ 0 },
};
