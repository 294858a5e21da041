/* SPDX-License-Identifier: Apache-2.0 */
/*
 * changes DIR prepare
 * changes DIR run DONE-DIR
 *
 * Makes one change of each kind that there is, each in a process and a directory of its
 * own below DIR, and when it is made a file in DONE-DIR. Prints how many they are.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "util/attr.h"

static int fd = -1, out = -1; /* "f", and for copies "g" */
static char *map;

static int change_write(void)
{
	return (int)pwrite(fd, "written", 7, 0);
}

static int change_append(void)
{
	int append = open("f", O_WRONLY | O_APPEND | O_CLOEXEC);

	return (int)write(append, "appended", 8);
}

static int change_map(void)
{
	map[100] = 'm';
	return msync(map, 4096, MS_SYNC);
}

static int change_direct(void)
{
	int direct = open("f", O_WRONLY | O_DIRECT | O_CLOEXEC);

	return (int)pwrite(direct, map, 4096, 4096);
}

static int change_fallocate(void)
{
	return fallocate(fd, 0, 0, 100000);
}

static int change_punch(void)
{
	return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096);
}

static int change_copy(void)
{
	off_t from = 0, to = 10;

	return (int)copy_file_range(fd, &from, out, &to, 10, 0);
}

static int change_size(void)
{
	return ftruncate(fd, 3);
}

static int change_open(void)
{
	return open("f", O_WRONLY | O_TRUNC | O_CLOEXEC);
}

static int change_mode(void)
{
	return chmod("f", 0600);
}

static int change_owner(void)
{
	return chown("f", 1000, 1000);
}

static int change_times(void)
{
	return utimensat(AT_FDCWD, "f", NULL, 0);
}

static int change_xattr(void)
{
	return setxattr("f", "user.x", "1", 1, 0);
}

static int change_acl(void)
{
	static const struct {
		uint32_t version;
		struct {
			uint16_t tag, perm;
			uint32_t id;
		} entries[5];
	} acl = { 2, { { 1, 7, -1 }, { 2, 6, 77 }, { 4, 5, -1 }, { 16, 7, -1 }, { 32, 2, -1 } } };

	return setxattr("f", "system.posix_acl_access", &acl, sizeof(acl), 0);
}

static int change_removexattr(void)
{
	return removexattr("f", "user.there");
}

static int change_create(void)
{
	return open("new", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
}

static int change_tmpfile(void)
{
	return open(".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0644);
}

static int change_mkdir(void)
{
	return mkdir("new", 0755);
}

static int change_mknod(void)
{
	return mknod("new", S_IFIFO | 0600, 0);
}

static int change_symlink(void)
{
	return symlink("target", "new");
}

static int change_link(void)
{
	return link("f", "new");
}

static int change_rename(void)
{
	return rename("f", "g");
}

static int change_exchange(void)
{
	return renameat2(AT_FDCWD, "f", AT_FDCWD, "g", RENAME_EXCHANGE);
}

static int change_noreplace(void)
{
	return renameat2(AT_FDCWD, "f", AT_FDCWD, "new", RENAME_NOREPLACE);
}

static int change_unlink(void)
{
	return unlink("f");
}

static int change_rmdir(void)
{
	return rmdir("d");
}

static int change_fsync(void)
{
	return fsync(fd);
}

static int change_fsync_dir(void)
{
	return fsync(open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

static int (*const changes[])(void) = {
	change_write,  change_append,  change_map,	 change_direct,	   change_fallocate,
	change_punch,  change_copy,    change_size,	 change_open,	   change_mode,
	change_owner,  change_times,   change_xattr,	 change_acl,	   change_removexattr,
	change_create, change_tmpfile, change_mkdir,	 change_mknod,	   change_symlink,
	change_link,   change_rename,  change_exchange,	 change_noreplace, change_unlink,
	change_rmdir,  change_fsync,   change_fsync_dir,
};

static void die(const char *what)
{
	fprintf(stderr, "changes: %s: %s\n", what, strerror(errno));
	_exit(1);
}

static void make(const char *name)
{
	char text[10000];
	int file = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

	memset(text, 'x', sizeof(text));
	if (file < 0 || write(file, text, sizeof(text)) != (ssize_t)sizeof(text) ||
	    fsetxattr(file, "user.there", "1", 1, 0) < 0)
		die(name);
	close(file);
}

static void enter(size_t number, int is_new)
{
	char name[32];

	snprintf(name, sizeof(name), "%zu", number);
	if ((is_new && mkdir(name, 0755) < 0) || chdir(name) < 0)
		die(name);
}

static void prepare(size_t number)
{
	enter(number, 1);
	make("f");
	make("g");
	if (mkdir("d", 0755) < 0 || chdir("..") < 0)
		die("d");
}

static void run(size_t number, const char *done)
{
	char path[4096];
	struct stat st;

	enter(number, 0);
	fd = open("f", O_RDWR | O_CLOEXEC);
	out = open("g", O_RDWR | O_CLOEXEC);
	map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd < 0 || out < 0 || map == MAP_FAILED || stat("d", &st) < 0)
		die("cannot open");
	(void)*(volatile char *)map;
	if (changes[number]() < 0)
		die("a change failed");
	snprintf(path, sizeof(path), "%s/%zu", done, number);
	if (open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644) < 0)
		die(path);
	_exit(0);
}

int main(int argc, char **argv)
{
	int status, failed = 0;

	if (argc < 3 || chdir(argv[1]) < 0) {
		fprintf(stderr, "usage: changes DIR prepare | changes DIR run DONE-DIR\n");
		return 2;
	}
	for (size_t i = 0; i < ARRAY_SIZE(changes); i++) {
		if (argc == 3)
			prepare(i);
		else if (fork() == 0)
			run(i, argv[3]);
	}
	printf("%zu\n", ARRAY_SIZE(changes));
	fflush(stdout);
	while (wait(&status) > 0)
		failed += status != 0;
	return failed > 0;
}
