/* SPDX-License-Identifier: Apache-2.0 */
/* Directories: listings that change under the reader, positions, many entries. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/parity/parity.h"

enum { MANY = 1500 };

static void make_many(const char *dir, int count)
{
	char name[128];

	for (int i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "%s/a-file-with-a-name-%06d", dir, i);
		put(name, 0644, "");
	}
}

static void many_entries(void)
{
	DO(mkdir("d", 0755));
	make_many("d", MANY);
	say_dir("d");
	say_stat("d");
}

/* Removing what is being listed: in the end nothing is left. */
static void remove_while_listing(void)
{
	struct dirent *entry;
	int removed = 0;
	DIR *dir;

	DO(mkdir("d", 0755));
	make_many("d", MANY);
	dir = opendir("d");
	while ((entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		if (unlinkat(dirfd(dir), entry->d_name, 0) == 0)
			removed++;
	}
	closedir(dir);
	say("%d removed", removed);
	say_dir("d");
	DO(rmdir("d"));
}

/* Every entry is where telldir() said it is. */
static void positions(void)
{
	long *at = calloc(MANY + 3, sizeof(*at)); /* the end has a position too */
	char(*names)[256] = calloc(MANY + 2, 256);
	struct dirent *entry;
	int count = 0, wrong = 0;
	DIR *dir;

	DO(mkdir("d", 0755));
	make_many("d", MANY);
	dir = opendir("d");
	for (;;) {
		at[count] = telldir(dir);
		entry = readdir(dir);
		if (!entry)
			break;
		strcpy(names[count++], entry->d_name);
	}
	say("%d entries", count);
	for (int i = count - 1; i >= 0; i -= 7) {
		seekdir(dir, at[i]);
		entry = readdir(dir);
		wrong += !entry || strcmp(entry->d_name, names[i]) != 0;
	}
	say("%d wrong", wrong);
	rewinddir(dir);
	put("d/late", 0644, "");
	rewinddir(dir);
	count = 0;
	while (readdir(dir))
		count++;
	say("%d entries after rewinddir", count);
	closedir(dir);
	free(at);
	free(names);
}

/* d_ino and d_type are those of stat(2); so are those of "." and "..". */
static void numbers(void)
{
	int wrong = 0, types = 0;
	struct dirent *entry;
	struct stat st;
	DIR *dir;

	DO(mkdir("d", 0755));
	DO(mkdir("d/e", 0755));
	DO(mkdir("d/e/sub", 0755));
	DO(symlink("x", "d/e/link"));
	DO(mkfifo("d/e/fifo", 0600));
	put("d/e/file", 0644, "");
	DO(link("d/e/file", "d/e/file2"));
	for (int round = 0; round < 2; round++) {
		dir = opendir("d/e");
		while ((entry = readdir(dir))) {
			if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
			    entry->d_ino != st.st_ino) {
				wrong++;
				say("number of %s", entry->d_name);
			}
			types += entry->d_type != DT_UNKNOWN && entry->d_type != IFTODT(st.st_mode);
		}
		closedir(dir);
	}
	say("%d wrong numbers, %d wrong types", wrong, types);
	DO(rename("d/e", "e"));
	dir = opendir("e");
	stat(".", &st);
	while ((entry = readdir(dir))) {
		if (strcmp(entry->d_name, "..") == 0)
			say("'..' %d", entry->d_ino == st.st_ino);
	}
	closedir(dir);
}

/* Removing by fits and starts: the reader is behind, ahead, and opens anew. */
static void remove_in_other_orders(void)
{
	enum { FILES = 400 };
	struct dirent *entry;
	char names[50][256], name[64];
	int removed = 0, count, rounds = 0;
	DIR *dir, *other;

	DO(mkdir("d", 0755));
	make_many("d", FILES);
	dir = opendir("d");
	other = opendir("d");
	do {
		for (count = 0; count < 50 && (entry = readdir(dir));)
			if (entry->d_name[0] != '.')
				strcpy(names[count++], entry->d_name);
		for (int i = count - 1; i >= 0; i--)
			removed += unlinkat(dirfd(dir), names[i], 0) == 0;
		(void)readdir(other);
	} while (count > 0);
	say("%d removed", removed);
	rewinddir(dir);
	count = 0;
	while ((entry = readdir(dir)))
		count += entry->d_name[0] != '.';
	say("%d left", count);
	closedir(dir);
	/* What the other stream has read before is all that it may still name. */
	closedir(other);
	for (int i = 0; i < FILES; i++) {
		snprintf(name, sizeof(name), "d/%d", i);
		put(name, 0644, "");
	}
	/* Each second one, and the listing from the start again, until it is empty. */
	do {
		dir = opendir("d");
		count = 0;
		for (int i = 0; (entry = readdir(dir)); i++)
			if (entry->d_name[0] != '.' && i % 2)
				count += unlinkat(dirfd(dir), entry->d_name, 0) == 0;
		closedir(dir);
		rounds++;
	} while (count > 0 && rounds < 100);
	dir = opendir("d");
	for (count = 0; readdir(dir);)
		count++;
	say("%d entries", count > 4);
	closedir(dir);
	DO(system("rm -rf d"));
	say_dir(".");
}

/* What is there all the time is listed once, whatever happens around it. */
static void changes_while_listing(void)
{
	enum { KEPT = 300 };
	static unsigned char seen[KEPT];
	int number, missing = 0, twice = 0, step = 0;
	char name[64], other[64];
	struct dirent *entry;
	DIR *dir;

	DO(mkdir("d", 0755));
	DO(mkdir("e", 0755));
	for (int i = 0; i < KEPT; i++) {
		snprintf(name, sizeof(name), "d/keep%d", i);
		put(name, 0644, "");
		snprintf(name, sizeof(name), "d/other%d", i);
		put(name, 0644, "");
	}
	dir = opendir("d");
	while ((entry = readdir(dir))) {
		if (sscanf(entry->d_name, "keep%d", &number) == 1 && number < KEPT) {
			twice += seen[number];
			seen[number] = 1;
		}
		snprintf(name, sizeof(name), "d/other%d", step);
		snprintf(other, sizeof(other), step % 2 ? "e/%d" : "d/new%d", step);
		if (step % 3)
			(void)rename(name, other);
		else
			(void)unlink(name);
		snprintf(name, sizeof(name), "d/later%d", step++);
		if (step % 4 == 0)
			put(name, 0644, "");
	}
	closedir(dir);
	for (int i = 0; i < KEPT; i++)
		missing += !seen[i];
	say("%d missing, %d twice", missing, twice);
	say_dir("e");
	DO(system("rm -rf d"));
}

/* Positions stay good when what was there before them goes. */
static void positions_while_removing(void)
{
	enum { FILES = 300 };
	static long at[FILES + 3];
	static char names[FILES + 3][256];
	int count = 0, wrong = 0;
	struct dirent *entry;
	DIR *dir;

	DO(mkdir("d", 0755));
	make_many("d", FILES);
	dir = opendir("d");
	while (at[count] = telldir(dir), (entry = readdir(dir)))
		strcpy(names[count++], entry->d_name);
	for (int i = 0; i < count; i += 3)
		if (names[i][0] != '.')
			(void)unlinkat(dirfd(dir), names[i], 0);
	for (int i = count - 1; i > 0; i--) {
		if (i % 3 == 0 || names[i][0] == '.')
			continue;
		seekdir(dir, at[i]);
		entry = readdir(dir);
		wrong += !entry || strcmp(entry->d_name, names[i]) != 0;
	}
	say("%d entries, %d wrong", count, wrong);
	seekdir(dir, at[count]);
	say("%d", readdir(dir) == NULL);
	closedir(dir);
}

/* getdents(2) with buffers of all sizes gives the same names. */
static void small_buffers(void)
{
	static const size_t sizes[] = { 64, 100, 280, 1000, 32768, 1 << 20 };
	static char buffer[1 << 20];
	long n;

	DO(mkdir("d", 0755));
	make_many("d", 300);
	for (size_t s = 0; s < ARRAY_SIZE(sizes); s++) {
		int fd = open("d", O_RDONLY | O_DIRECTORY | O_CLOEXEC), count = 0;
		uint64_t sum = 0;

		while ((n = syscall(SYS_getdents64, fd, buffer, sizes[s])) > 0) {
			for (long at = 0; at < n; count++) {
				struct dirent64 *entry = (struct dirent64 *)(buffer + at);

				for (const char *c = entry->d_name; *c; c++)
					sum += (uint64_t)*c;
				at += entry->d_reclen;
			}
		}
		say("%zu: %d entries, sum %llu", sizes[s], count, (unsigned long long)sum);
		close(fd);
	}
	n = open("d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DO(syscall(SYS_getdents64, n, buffer, 10));
}

/* Two processes that take one tree away. */
static void removed_by_two(void)
{
	char name[64];

	DO(mkdir("d", 0755));
	for (int i = 0; i < 15; i++) {
		snprintf(name, sizeof(name), "d/%d", i);
		if (mkdir(name, 0755) < 0)
			say_result(name, -1);
		make_many(name, 20);
	}
	DO(system("rm -rf d 2>/dev/null & rm -rf d 2>/dev/null; wait; rm -rf d"));
	say_dir(".");
}

/* Paths that are longer than any call takes. */
static void deeper_than_paths(void)
{
	char name[201];
	int levels = 0;

	memset(name, 'p', 200);
	name[200] = '\0';
	for (int i = 0; i < 40; i++) {
		if (mkdir(name, 0755) < 0 || chdir(name) < 0)
			break;
		levels++;
	}
	say("%d levels", levels);
	put("f", 0644, "far down");
	DO(link("f", "linked"));
	DO(rename("f", "renamed"));
	say_dir(".");
	DO(open("../../../../../../../../../../../../../../../../../../../..", O_RDONLY) >= 0);
	for (int i = 0; i < levels; i++)
		if (chdir("..") < 0)
			say_result("chdir", -1);
	DO(rename(name, "short"));
	say_dir(".");
}

static void listing_of_removed(void)
{
	struct dirent *entry;
	int count = 0;
	DIR *dir;

	DO(mkdir("d", 0755));
	make_many("d", 10);
	dir = opendir("d");
	while ((entry = readdir(dir)) && count < 5)
		count++;
	for (int i = 0; i < 10; i++) {
		char name[64];

		snprintf(name, sizeof(name), "d/a-file-with-a-name-%06d", i);
		unlink(name);
	}
	DO(rmdir("d"));
	rewinddir(dir);
	errno = 0;
	entry = readdir(dir);
	say("%d", entry != NULL);
	closedir(dir);
	say_dir(".");
}

static void deep_tree(void)
{
	char path[4096] = "d";

	for (int i = 0; i < 60; i++) {
		if (mkdir(path, 0755) < 0)
			say_result(path, -1);
		strcat(path, "/d");
	}
	put(path, 0644, "at the bottom");
	say_file(path);
	DO(rename("d", "e"));
	path[0] = 'e';
	say_file(path);
}

/* Says whether the number of ".." in @dir is that of its parent. */
static void say_parent(const char *dir, const char *parent)
{
	struct dirent *entry;
	struct stat st;
	DIR *stream = opendir(dir);

	if (!stream || stat(parent, &st) < 0) {
		say("cannot list %s", dir);
		return;
	}
	while ((entry = readdir(stream))) {
		if (strcmp(entry->d_name, "..") == 0)
			say("%s/.. is %s: %d", dir, parent, entry->d_ino == st.st_ino);
	}
	closedir(stream);
}

/* What was listed before is listed as it is now. */
static void listings_again(void)
{
	DO(mkdir("d", 0755));
	DO(mkdir("e", 0755));
	DO(mkdir("d/sub", 0755));
	for (int i = 0; i < 2; i++)
		say_dir("d");
	put("d/new", 0644, "");
	say_dir("d");
	DO(rename("d/new", "d/renamed"));
	say_dir("d");
	DO(link("d/renamed", "d/linked"));
	say_dir("d");
	DO(unlink("d/renamed"));
	say_dir("d");
	for (int i = 0; i < 2; i++)
		say_parent("d/sub", "d");
	DO(rename("d/sub", "e/sub"));
	say_parent("e/sub", "e");
	say_dir("d");
	say_dir("e");
	DO(rename("e/sub", "e/moved"));
	DO(mkdir("d/other", 0755));
	say_parent("d/other", "d");
	DO(renameat2(AT_FDCWD, "d/other", AT_FDCWD, "e/moved", RENAME_EXCHANGE));
	say_parent("d/other", "d");
	say_parent("e/moved", "e");
}

const struct parity_case parity_dirs[] = {
	{ "listing again", listings_again },
	{ "many entries", many_entries },
	{ "removing what is being listed", remove_while_listing },
	{ "positions in a listing", positions },
	{ "inode numbers and types in a listing", numbers },
	{ "removing in other orders than the listing's", remove_in_other_orders },
	{ "changes while a directory is listed", changes_while_listing },
	{ "positions in a listing while entries go", positions_while_removing },
	{ "listing by buffers of all sizes", small_buffers },
	{ "two processes remove one tree", removed_by_two },
	{ "paths longer than any call takes", deeper_than_paths },
	{ "a listing of a removed directory", listing_of_removed },
	{ "a deep tree", deep_tree },
	{ 0 },
};
