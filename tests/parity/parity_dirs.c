/* SPDX-License-Identifier: Apache-2.0 */
/* Directories: listings that change under the reader, positions, many entries. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/parity/parity.h"

enum { MANY = 2000 };

static void make_many(const char *dir, int count)
{
	char name[64];

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
	{ "a listing of a removed directory", listing_of_removed },
	{ "a deep tree", deep_tree },
	{ 0 },
};
