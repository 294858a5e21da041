/* SPDX-License-Identifier: Apache-2.0 */
/*
 * suid, sgid and file capabilities: everything that changes a file takes them away or
 * leaves them, by who does it. And whose the right to do anything is.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tests/parity/parity.h"

enum { FOREIGN_GROUP = 3000 };

/* ---- what changes a file -------------------------------------------------- */

static void write_it(void)
{
	int fd = open("f", O_WRONLY | O_CLOEXEC);

	DO(pwrite(fd, "x", 1, 0));
	close(fd);
}

static void write_directly(void)
{
	int fd = open("f", O_WRONLY | O_DIRECT | O_CLOEXEC);
	char *data;

	if (posix_memalign((void **)&data, 4096, 4096) != 0)
		exit(1);
	memset(data, 'd', 4096);
	DO(pwrite(fd, data, 4096, 0));
	free(data);
	close(fd);
}

static void write_vector(void)
{
	int fd = open("f", O_WRONLY | O_CLOEXEC);
	struct iovec iov[2] = { { (char[]){ "ab" }, 2 }, { (char[]){ "cd" }, 2 } };

	DO(pwritev2(fd, iov, 2, 1, RWF_DSYNC));
	close(fd);
}

static void write_nothing(void)
{
	int fd = open("f", O_WRONLY | O_CLOEXEC);

	DO(pwrite(fd, "", 0, 0));
	close(fd);
}

static void append_to_it(void)
{
	int fd = open("f", O_WRONLY | O_APPEND | O_CLOEXEC);

	DO(write(fd, "more", 4));
	close(fd);
}

static void splice_into_it(void)
{
	int fd = open("f", O_WRONLY | O_CLOEXEC), pipes[2];

	if (pipe2(pipes, O_CLOEXEC) < 0 || write(pipes[1], "spliced", 7) != 7)
		exit(1);
	DO(splice(pipes[0], NULL, fd, NULL, 7, 0));
	close(pipes[0]);
	close(pipes[1]);
	close(fd);
}

static void send_into_it(void)
{
	int fd = open("f", O_WRONLY | O_CLOEXEC), in = open("in", O_RDONLY | O_CLOEXEC);

	DO(sendfile(fd, in, NULL, 5));
	close(in);
	close(fd);
}

static void copy_into_it(void)
{
	int fd = open("f", O_WRONLY | O_CLOEXEC), in = open("in", O_RDONLY | O_CLOEXEC);
	off_t from = 0, to = 0;

	DO(copy_file_range(in, &from, fd, &to, 5, 0));
	close(in);
	close(fd);
}

static void store_into_it(void)
{
	int fd = open("f", O_RDWR | O_CLOEXEC);
	char *map = mmap(NULL, 10, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	close(fd);
	if (map == MAP_FAILED) {
		say_result("mmap", -1);
		return;
	}
	map[3] = 'm';
	DO(msync(map, 10, MS_SYNC));
	munmap(map, 10);
}

static void truncate_it(void)
{
	DO(truncate("f", 2));
}

static void truncate_descriptor(void)
{
	int fd = open("f", O_WRONLY | O_CLOEXEC);

	DO(ftruncate(fd, 20000));
	close(fd);
}

static void truncate_to_same(void)
{
	DO(truncate("f", 10));
}

static void open_truncating(void)
{
	int fd = open("f", O_WRONLY | O_TRUNC | O_CLOEXEC);

	say("opened %d", fd >= 0);
	close(fd);
}

static void allocate(int mode)
{
	int fd = open("f", O_WRONLY | O_CLOEXEC);

	DO(fallocate(fd, mode, 2, 100));
	close(fd);
}

static void allocate_it(void)
{
	allocate(0);
}

static void allocate_beyond(void)
{
	allocate(FALLOC_FL_KEEP_SIZE);
}

static void punch_it(void)
{
	allocate(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE);
}

static void change_owner(void)
{
	DO(chown("f", OTHER_USER, -1));
}

static void change_group(void)
{
	DO(chown("f", -1, USER_GROUP));
}

static void change_to_same(void)
{
	DO(chown("f", USER, EXTRA_GROUP));
}

/* By another than the owner it changes nothing; only here it is EPERM, if there is suid. */
static void change_nothing(void)
{
	struct stat st;
	int r = chown("f", -1, -1);

	if (stat("f", &st) == 0 && (geteuid() == 0 || geteuid() == st.st_uid))
		say_result("chown", r);
}

static void change_mode(void)
{
	DO(chmod("f", 06711));
}

static void touch_it(void)
{
	DO(utimensat(AT_FDCWD, "f", NULL, 0));
}

static void give_it_an_attribute(void)
{
	DO(setxattr("f", "user.x", "1", 1, 0));
}

static void give_it_an_acl(void)
{
	/* posix_acl_xattr: version 2, then tag, permissions, id */
	static const struct {
		uint32_t version;
		struct {
			uint16_t tag, perm;
			uint32_t id;
		} entries[5];
	} acl = {
		2,
		{ { 1, 7, -1 }, { 2, 6, OTHER_USER }, { 4, 5, -1 }, { 16, 7, -1 }, { 32, 2, -1 } }
	};

	DO(setxattr("f", "system.posix_acl_access", &acl, sizeof(acl), 0));
}

static void link_it(void)
{
	DO(link("f", "g"));
	DO(unlink("g"));
}

static void rename_it(void)
{
	DO(rename("f", "g"));
	DO(rename("g", "f"));
}

static void (*const acts[])(void) = {
	write_it,	 write_directly, write_vector,	       write_nothing,
	append_to_it,	 splice_into_it, send_into_it,	       copy_into_it,
	store_into_it,	 truncate_it,	 truncate_descriptor,  truncate_to_same,
	open_truncating, allocate_it,	 allocate_beyond,      punch_it,
	change_owner,	 change_group,	 change_to_same,       change_nothing,
	change_mode,	 touch_it,	 give_it_an_attribute, give_it_an_acl,
	link_it,	 rename_it,
};

/* ---- by whom -------------------------------------------------------------- */

static void make_privileged(mode_t mode, uid_t owner, gid_t group)
{
	put("f", 0644, "0123456789");
	if (chown("f", owner, group) < 0 || chmod("f", mode) < 0)
		say_result("f", -1);
}

static void try_acts(bool is_user, mode_t more, uid_t owner, gid_t group)
{
	static const mode_t modes[] = { 06775, 06764, 04755, 02755, 02744, 04644, 0755 };

	put("in", 0644, "0123456789");
	for (size_t m = 0; m < ARRAY_SIZE(modes); m++) {
		for (size_t a = 0; a < ARRAY_SIZE(acts); a++) {
			say("mode %o act %zu", modes[m] | more, a);
			make_privileged(modes[m] | more, owner, group);
			if (is_user)
				as_user(acts[a]);
			else
				acts[a]();
			say_stat("f");
			(void)unlink("f");
			(void)unlink("g");
		}
	}
}

static void suid_by_owner(void)
{
	try_acts(/* is_user= */ true, 0, USER, EXTRA_GROUP);
}

static void suid_by_owner_outside_the_group(void)
{
	try_acts(/* is_user= */ true, 0, USER, FOREIGN_GROUP);
}

static void suid_by_member(void)
{
	try_acts(/* is_user= */ true, 020, OTHER_USER, EXTRA_GROUP);
}

static void suid_by_anybody(void)
{
	try_acts(/* is_user= */ true, 002, OTHER_USER, FOREIGN_GROUP);
}

static void suid_by_root(void)
{
	try_acts(/* is_user= */ false, 0, USER, EXTRA_GROUP);
}

/* vfs_cap_data of revision 2: cap_net_raw+ep */
static const unsigned char capability[20] = { 1, 0, 0, 2, 0, 0x20 };

static void capabilities(void)
{
	char value[64];

	put("in", 0644, "0123456789");
	for (size_t a = 0; a < ARRAY_SIZE(acts); a++) {
		/* A store through a map comes to the file system as a write. */
		if (acts[a] == store_into_it)
			continue;
		for (int is_user = 0; is_user < 2; is_user++) {
			say("act %zu by %d", a, is_user);
			/* The kernel asks to clear it, for root too, with the words of
			 * chown(-1, -1): suid could not stay beside it. */
			make_privileged(is_user ? 06755 : 0755, USER, EXTRA_GROUP);
			DO(setxattr("f", "security.capability", capability, sizeof(capability), 0));
			if (is_user)
				as_user(acts[a]);
			else
				acts[a]();
			DO(getxattr("f", "security.capability", value, sizeof(value)));
			say_stat("f");
			(void)unlink("f");
			(void)unlink("g");
		}
	}
}

/* The bits come after the first look at the file, and go between two writes. */
static void suid_set_late(void)
{
	int fd;

	put("f", 0666, "x");
	DO(chmod("f", 0666));
	fd = open("f", O_RDWR | O_CLOEXEC);
	as_user(write_it);
	DO(fchmod(fd, 06777));
	as_user(write_it);
	say_stat("f");
	DO(chmod("f", 06777));
	write_it();
	say_stat("f");
	DO(unlink("f"));
	put("f", 0644, "another");
	DO(fchmod(fd, 04777));
	say_fstat(fd);
	if (fork() == 0) {
		if (setuid(USER) == 0)
			DO(write(fd, "y", 1));
		_exit(0);
	}
	wait(NULL);
	say_fstat(fd);
	close(fd);
}

/* ---- running as another --------------------------------------------------- */

static void run_it(void)
{
	char *const words[] = { (char[]){ "id" }, (char[]){ "-u" }, NULL };
	int status, out[2];
	char text[32] = "";
	pid_t pid;

	if (pipe2(out, O_CLOEXEC) < 0)
		exit(1);
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		dup2(out[1], STDOUT_FILENO);
		execv("./program", words);
		_exit(99);
	}
	close(out[1]);
	if (read(out[0], text, sizeof(text) - 1) < 0)
		exit(1);
	waitpid(pid, &status, 0);
	close(out[0]);
	say("status %d, effective %s", status, text);
}

static void change_program(void)
{
	int fd = open("program", O_WRONLY | O_APPEND | O_CLOEXEC);

	DO(write(fd, "", 1));
	close(fd);
}

static void suid_programs(void)
{
	int in = open("/usr/bin/id", O_RDONLY | O_CLOEXEC), out;

	out = open("program", O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
	while (sendfile(out, in, NULL, 1 << 20) > 0)
		;
	close(out);
	close(in);
	as_user(run_it);
	DO(chmod("program", 04757));
	as_user(run_it);
	DO(chown("program", OTHER_USER, -1));
	as_user(run_it);
	DO(chmod("program", 04757));
	as_user(run_it);
	as_user(change_program);
	as_user(run_it);
	DO(chmod("program", 0644));
	as_user(run_it);
}

/* ---- whose right ---------------------------------------------------------- */

static void use_roots(void)
{
	char target[16];
	struct stat st;

	DO(stat("dir/f", &st));
	DO(stat("dir", &st));
	DO(access("dir", X_OK));
	DO(open("dir", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	DO(chdir("dir"));
	DO(open("file", O_RDONLY | O_CLOEXEC));
	DO(open("file", O_WRONLY | O_CLOEXEC));
	DO(open("file", O_WRONLY | O_TRUNC | O_CLOEXEC));
	DO(truncate("file", 0));
	DO(getxattr("file", "user.x", target, sizeof(target)));
	DO(setxattr("file", "user.x", "1", 1, 0));
	DO(removexattr("file", "user.x"));
	DO(setxattr("file", "trusted.x", "1", 1, 0));
	DO(setxattr("file", "security.capability", capability, sizeof(capability), 0));
	DO(link("file", "linked"));
	DO(rename("file", "moved"));
	DO(unlink("file"));
	DO(mkdir("dir/d", 0755));
	DO(symlink("x", "dir/l"));
	DO(mknod("device", S_IFCHR | 0666, 0x103));
	DO(readlink("dir/link", target, sizeof(target)));
	DO(execl("file", "file", NULL));
	DO(open("exec-only", O_RDONLY | O_CLOEXEC));
	DO(open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600) >= 0);
	DO(chroot("dir"));
}

/* root:root 0770 is nobody else's, in a directory that is root's. */
static void rights_of_root(void)
{
	DO(mkdir("dir", 0770));
	DO(chmod("dir", 0770));
	put("dir/f", 0666, "x");
	DO(symlink("target", "dir/link"));
	put("file", 0770, "secret");
	DO(chmod("file", 0770));
	DO(setxattr("file", "user.x", "secret", 6, 0));
	put("exec-only", 0711, "x");
	DO(chmod("exec-only", 0711));
	DO(chmod(".", 0755));
	as_user(use_roots);
	DO(chown("file", 0, EXTRA_GROUP));
	DO(chown("dir", 0, EXTRA_GROUP));
	DO(chmod(".", 0777));
	as_user(use_roots);
	say_dir(".");
	say_dir("dir");
}

static void make_as_other(void)
{
	put("made", 06644, "x");
	say_stat("made");
	DO(mkdir("made-dir", 02755));
	say_stat("made-dir");
	DO(symlink("x", "made-link"));
	say_stat("made-link");
	DO(mkfifo("made-fifo", 06666));
	say_stat("made-fifo");
	DO(chmod("made", 06755));
	say_stat("made");
	DO(chown("made", -1, EXTRA_GROUP));
	say_stat("made");
}

/* Other effective and file-system ids than the real ones. */
static void identities(void)
{
	if (fork() == 0) {
		DO(setegid(EXTRA_GROUP));
		DO(seteuid(USER));
		make_as_other();
		_exit(0);
	}
	wait(NULL);
	DO(mkdir("d", 0777));
	DO(chmod("d", 0777));
	DO(chdir("d"));
	if (fork() == 0) {
		gid_t group = FOREIGN_GROUP;

		DO(setgroups(1, &group));
		DO(setresgid(EXTRA_GROUP, USER_GROUP, 0));
		DO(setresuid(0, OTHER_USER, 0));
		make_as_other();
		_exit(0);
	}
	wait(NULL);
}

const struct parity_case parity_privileges[] = {
	{ "the owner's changes clear suid and sgid", suid_by_owner },
	{ "suid and sgid of an owner outside the group", suid_by_owner_outside_the_group },
	{ "suid and sgid of a file that the group may write", suid_by_member },
	{ "suid and sgid of a file that all may write", suid_by_anybody },
	{ "root's changes keep suid and sgid", suid_by_root },
	{ "file capabilities", capabilities },
	{ "suid that is set while the file is in use", suid_set_late },
	{ "programs that run as their owner", suid_programs },
	{ "what is root's alone", rights_of_root },
	{ "effective identities", identities },
	{ 0 },
};
