/* SPDX-License-Identifier: Apache-2.0 */
/*
 * many DIR COUNT: makes COUNT empty files in DIR, a thousand in each directory.
 * many --walk DIR: lists DIR and what is two levels below, looks at each, and says how many
 * it has seen.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/testlib.h"

enum { FILES_PER_DIR = 1000 };

static int open_dir(int parent, const char *name)
{
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		die_errno("%s", name);
	return fd;
}

static void make(const char *path, uint64_t count)
{
	int top = open_dir(AT_FDCWD, path), dir = -1;
	char name[32];

	for (uint64_t n = 0; n < count; n++) {
		snprintf(name, sizeof(name), "%llu", (unsigned long long)n);
		if (n % FILES_PER_DIR == 0) {
			if (dir >= 0)
				close(dir);
			if (mkdirat(top, name, 0755) < 0)
				die_errno("%s", name);
			dir = open_dir(top, name);
		}
		if (mknodat(dir, name, S_IFREG | 0644, 0) < 0)
			die_errno("%s", name);
	}
	if (dir >= 0)
		close(dir);
	close(top);
}

static uint64_t walk_dir(int parent, const char *name, unsigned levels)
{
	DIR *dir = fdopendir(open_dir(parent, name));
	const struct dirent *entry;
	uint64_t seen = 0;
	struct stat st;

	if (!dir)
		die_errno("%s", name);
	while ((entry = readdir(dir))) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			die_errno("%s", entry->d_name);
		seen++;
		if (S_ISDIR(st.st_mode) && levels > 1)
			seen += walk_dir(dirfd(dir), entry->d_name, levels - 1);
	}
	closedir(dir);
	return seen;
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "--walk") == 0)
		printf("%llu\n", (unsigned long long)walk_dir(AT_FDCWD, argv[2], 2));
	else if (argc == 3)
		make(argv[1], parse_number("COUNT", argv[2]));
	else
		die(TEST_TROUBLE, "usage: see many.c");
	return 0;
}
