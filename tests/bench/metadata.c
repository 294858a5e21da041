/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metadata OPERATION DIR FILES SECONDS: does one operation on FILES small files in DIR and
 * prints how many it did per second. `create` and `unlink` go over the files once; `stat` and
 * `read` (open, read all, close) go on for SECONDS, after one round that does not count.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "util/attr.h"

enum { FILE_BYTES = 1024 };

static _Noreturn void die(const char *what, const char *name)
{
	fprintf(stderr, "metadata: cannot %s '%s': %s\n", what, name, strerror(errno));
	exit(1);
}

static double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void do_create(int dir, const char *name)
{
	static const char data[FILE_BYTES];
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL, 0644);

	if (fd < 0)
		die("create", name);
	if (write(fd, data, sizeof(data)) != sizeof(data))
		die("write", name);
	if (close(fd) < 0)
		die("close", name);
}

static void do_unlink(int dir, const char *name)
{
	if (unlinkat(dir, name, 0) < 0)
		die("unlink", name);
}

static void do_stat(int dir, const char *name)
{
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		die("stat", name);
}

static void do_read(int dir, const char *name)
{
	char data[FILE_BYTES];
	int fd = openat(dir, name, O_RDONLY);

	if (fd < 0)
		die("open", name);
	if (read(fd, data, sizeof(data)) != sizeof(data))
		die("read", name);
	close(fd);
}

static const struct operation {
	const char *name;
	void (*run)(int dir, const char *name);
	bool is_repeated;
} operations[] = {
	{ "create", do_create, false },
	{ "unlink", do_unlink, false },
	{ "stat", do_stat, true },
	{ "read", do_read, true },
};

static void one_round(const struct operation *operation, int dir, unsigned files)
{
	char name[32];

	for (unsigned i = 0; i < files; i++) {
		(void)snprintf(name, sizeof(name), "file%06u", i);
		operation->run(dir, name);
	}
}

static double measure(const struct operation *operation, int dir, unsigned files, double seconds)
{
	double start, took;
	uint64_t rounds = 0;

	if (operation->is_repeated)
		one_round(operation, dir, files);
	start = now_s();
	do {
		one_round(operation, dir, files);
		rounds++;
		took = now_s() - start;
	} while (operation->is_repeated && took < seconds);
	return (double)(rounds * files) / took;
}

int main(int argc, char **argv)
{
	const struct operation *operation = NULL;
	unsigned files;
	int dir;

	for (size_t i = 0; argc == 5 && i < ARRAY_SIZE(operations); i++) {
		if (strcmp(argv[1], operations[i].name) == 0)
			operation = &operations[i];
	}
	files = operation ? (unsigned)strtoul(argv[3], NULL, 10) : 0;
	if (files == 0) {
		fprintf(stderr, "usage: metadata create|unlink|stat|read DIR FILES SECONDS\n");
		return 2;
	}
	dir = open(argv[2], O_RDONLY | O_DIRECTORY);
	if (dir < 0)
		die("open", argv[2]);
	printf("%.0f\n", measure(operation, dir, files, strtod(argv[4], NULL)));
	close(dir);
	return 0;
}
