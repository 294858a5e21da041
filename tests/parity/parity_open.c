/* SPDX-License-Identifier: Apache-2.0 */
/* Open files whose names change or go: an open file is an object, whatever its name is. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tests/parity/parity.h"

static int open_it(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		say_result(path, fd);
	return fd;
}

static int exchange(const char *a, const char *b)
{
	return renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE);
}

/* Late changes through @fd, and what it then is. */
static void write_late(int fd, const char *text)
{
	DO(pwrite(fd, text, strlen(text), 3));
	DO(fchmod(fd, 0604));
	DO(ftruncate(fd, 3 + (off_t)strlen(text)));
	say_fstat(fd);
	say_fd(fd);
}

/* ---- what is renamed over ------------------------------------------------- */

/* The new file must get nothing of what is still written to the old one. */
static void over_open(void)
{
	int old, new;

	put("a", 0644, "old a");
	put("b", 0644, "old b");
	old = open_it("b");
	new = open_it("a");
	DO(rename("a", "b"));
	write_late(old, "late words for the old b");
	say_file("b");
	say_stat("b");
	write_late(new, "for the new b");
	say_file("b");
	say_stat("a");
	close(old);
	close(new);
	say_dir(".");
}

static void over_open_and_unlinked(void)
{
	int first, second, third;

	put("b", 0644, "the first b");
	first = open_it("b");
	DO(unlink("b"));
	put("b", 0644, "the second b");
	second = open_it("b");
	put("a", 0644, "old a");
	third = open_it("a");
	DO(rename("a", "b"));
	write_late(first, "to the first");
	write_late(second, "to the second");
	say_file("b");
	write_late(third, "to the third");
	say_file("b");
	DO(unlink("b"));
	write_late(third, "to the third without a name");
	close(second);
	close(third);
	write_late(first, "still");
	close(first);
	say_dir(".");
}

static void exchanged_open(void)
{
	int a, b, in;

	put("a", 0644, "content of a");
	put("b", 0600, "content of b, which is longer");
	DO(mkdir("d", 0755));
	put("d/in", 0644, "inside");
	a = open_it("a");
	b = open_it("b");
	in = open_it("d/in");
	DO(exchange("a", "b"));
	write_late(a, "to what was a");
	write_late(b, "to what was b");
	say_file("a");
	say_file("b");
	DO(exchange("a", "d"));
	say_stat("a");
	say_stat("d");
	say_file("a/in");
	write_late(in, "in the exchanged directory");
	say_file("a/in");
	DO(unlink("d"));
	write_late(b, "to what was b and then d");
	DO(exchange("b", "a/in"));
	write_late(in, "out of the directory");
	say_file("b");
	say_file("a/in");
	close(a);
	close(b);
	close(in);
	say_dir(".");
}

static void hard_linked_open(void)
{
	int fd, other;

	put("a", 0644, "linked");
	DO(link("a", "b"));
	DO(mkdir("d", 0755));
	DO(link("a", "d/c"));
	fd = open_it("a");
	DO(unlink("a"));
	write_late(fd, "one name less");
	say_file("b");
	put("x", 0644, "over");
	DO(rename("x", "b"));
	write_late(fd, "two names less");
	say_file("b");
	say_file("d/c");
	DO(rename("d/c", "d/c"));
	DO(link("d/c", "e"));
	DO(rename("d/c", "e"));
	say_stat("e");
	DO(unlink("d/c"));
	other = open_it("e");
	DO(unlink("e"));
	write_late(fd, "no name");
	say_fd(other);
	DO(exchange("b", "d"));
	close(fd);
	write_late(other, "one descriptor");
	close(other);
	say_dir(".");
	say_dir("b");
}

/* Over and over: each of them keeps its own bytes. */
static void many_generations(void)
{
	enum { GENERATIONS = 100 };
	int fds[GENERATIONS], wrong = 0;
	char text[32], found[32];

	for (int i = 0; i < GENERATIONS; i++) {
		snprintf(text, sizeof(text), "generation %03d", i);
		put("new", 0644, text);
		fds[i] = open("new", O_RDWR | O_CLOEXEC);
		if (rename("new", "f") < 0)
			say_result("rename", -1);
	}
	for (int i = 0; i < GENERATIONS; i++) {
		struct stat st;

		snprintf(text, sizeof(text), "generation %03d", i);
		wrong += pread(fds[i], found, 14, 0) != 14 || memcmp(text, found, 14) != 0;
		wrong += pwrite(fds[i], "G", 1, 0) != 1;
		wrong += fstat(fds[i], &st) < 0 || st.st_nlink != (i == GENERATIONS - 1);
		close(fds[i]);
	}
	say("%d wrong", wrong);
	say_file("f");
	say_dir(".");
}

static void same_name_other_type(void)
{
	int fd, dir;

	put("x", 0644, "a file");
	fd = open_it("x");
	DO(unlink("x"));
	DO(mkdir("x", 0755));
	put("x/in", 0644, "inside");
	dir = open("x", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	write_late(fd, "for the file that was x");
	say_dir("x");
	DO(unlink("x/in"));
	DO(rmdir("x"));
	DO(symlink("elsewhere", "x"));
	say_stat("x");
	DO(unlink("x"));
	DO(mkfifo("x", 0600));
	say_stat("x");
	DO(fchmod(dir, 0700));
	say_fstat(dir);
	DO(openat(dir, "in", O_RDONLY | O_CLOEXEC));
	DO(unlink("x"));
	put("x", 0644, "a file again");
	write_late(fd, "still for the first");
	say_file("x");
	close(fd);
	close(dir);
}

/* ---- without a name ------------------------------------------------------- */

static void reopened(void)
{
	char path[64], buffer[16] = "";
	int fd, again;

	put("f", 0644, "0123456789");
	fd = open_it("f");
	DO(unlink("f"));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open_it(path);
	DO(pread(again, buffer, 10, 0));
	say("%s", buffer);
	close(fd);
	write_late(again, "by the second descriptor");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", again);
	DO(truncate(path, 2));
	DO(chmod(path, 0611));
	DO(chown(path, 3, 4));
	DO(setxattr(path, "user.x", "1", 1, 0));
	DO(getxattr(path, "user.x", buffer, sizeof(buffer)));
	DO(utimensat(AT_FDCWD, path, NULL, 0));
	fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
	say_fstat(again);
	write_late(again, "truncated by an open");
	close(fd);
	close(again);
	say_dir(".");
}

static void mapped_and_unlinked(void)
{
	int fd;
	char *map;

	put("f", 0644, "mapped");
	DO(truncate("f", 20000));
	fd = open_it("f");
	map = mmap(NULL, 20000, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	DO(unlink("f"));
	close(fd);
	memcpy(map + 10000, "stored late", 11);
	DO(msync(map, 20000, MS_SYNC));
	DO(madvise(map, 20000, MADV_DONTNEED));
	say("%.6s %.11s", map, map + 10000);
	munmap(map, 20000);
	say_dir(".");
}

static void removed_things(void)
{
	char buffer[32] = "";
	struct timespec past[2] = { { 1000, 0 }, { 2000, 0 } };
	int dir, fifo, link;

	DO(mkdir("d", 0755));
	DO(mkfifo("p", 0644));
	DO(symlink("somewhere", "l"));
	dir = open("d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fifo = open("p", O_RDWR | O_CLOEXEC);
	link = open("l", O_PATH | O_NOFOLLOW | O_CLOEXEC);
	DO(readlinkat(link, "", buffer, sizeof(buffer)));
	DO(rmdir("d"));
	DO(unlink("p"));
	DO(unlink("l"));
	DO(fchown(dir, 5, 6));
	DO(futimens(dir, past));
	say_fstat(dir);
	DO(mkdirat(dir, "x", 0755));
	DO(symlinkat("x", dir, "y"));
	DO(unlinkat(dir, "x", 0));
	DO(renameat(dir, "x", AT_FDCWD, "z"));
	DO(fsync(dir));
	DO(fchmod(fifo, 0600));
	DO(futimens(fifo, past));
	say_fstat(fifo);
	DO(write(fifo, "abc", 3));
	DO(read(fifo, buffer, 3));
	say_fstat(link);
	memset(buffer, 0, sizeof(buffer));
	DO(readlinkat(link, "", buffer, sizeof(buffer)));
	say("'%s'", buffer);
	DO(fchownat(link, "", 7, 8, AT_EMPTY_PATH));
	say_fstat(link);
	close(dir);
	close(fifo);
	close(link);
	say_dir(".");
}

/* A program that runs from a file without a name. */
static void unlinked_program(void)
{
	int in = open("/bin/true", O_RDONLY | O_CLOEXEC), out, fd, status;
	char *const words[] = { (char[]){ "true" }, NULL };
	pid_t pid;

	out = open("program", O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
	while (sendfile(out, in, NULL, 1 << 20) > 0)
		;
	DO(fchmod(out, 0755));
	close(out);
	close(in);
	fd = open("program", O_RDONLY | O_CLOEXEC);
	DO(unlink("program"));
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		fexecve(fd, words, environ);
		_exit(99);
	}
	waitpid(pid, &status, 0);
	say("status %d", status);
	close(fd);
}

/* ---- saving as editors do ------------------------------------------------- */

static void watch_file(int until)
{
	char text[64];
	int wrong = 0;

	for (;;) {
		int fd = open("f", O_RDONLY | O_CLOEXEC);
		ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text));

		/* Always one that was complete. */
		if (n != 40 || memchr(text, text[0] == 'x' ? 'y' : 'x', 40))
			wrong++;
		close(fd);
		if (n > 0 && read(until, text, 1) == 0)
			break;
	}
	_exit(wrong > 0);
}

static void saved_by_rename(void)
{
	char text[41] = "";
	int pipes[2], status;

	if (pipe2(pipes, O_CLOEXEC | O_NONBLOCK) < 0)
		exit(1);
	memset(text, 'x', 40);
	put("f", 0644, text);
	fflush(stdout);
	if (fork() == 0) {
		close(pipes[1]);
		watch_file(pipes[0]);
	}
	close(pipes[0]);
	for (int i = 0; i < 300; i++) {
		memset(text, i % 2 ? 'x' : 'y', 40);
		put("f.tmp", 0644, text);
		if (rename("f.tmp", "f") < 0)
			say_result("rename", -1);
	}
	close(pipes[1]);
	wait(&status);
	say("watcher %d", status);
	say_file("f");
	say_dir(".");
}

const struct parity_case parity_open[] = {
	{ "a rename over an open file", over_open },
	{ "a rename over an open file, with another that is unlinked", over_open_and_unlinked },
	{ "open files are exchanged", exchanged_open },
	{ "an open file loses one hard link after the other", hard_linked_open },
	{ "a hundred generations of a name, all open", many_generations },
	{ "a name is of another type while the old one is open", same_name_other_type },
	{ "an unlinked file is opened again", reopened },
	{ "an unlinked file is mapped", mapped_and_unlinked },
	{ "removed directories, fifos, and links that are open", removed_things },
	{ "a program without a name", unlinked_program },
	{ "a file that is saved by renames is always whole", saved_by_rename },
	{ 0 },
};
