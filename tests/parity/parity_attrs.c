/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes: owners, modes, times, extended attributes, ACLs. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "tests/parity/parity.h"

/* ---- owners and modes ---------------------------------------------------- */

static void change_as_user(void)
{
	DO(chown("mine", 0, -1));
	DO(chown("mine", -1, EXTRA_GROUP));
	DO(chown("mine", -1, 3000));
	DO(chmod("mine", 07777));
	say_stat("mine");
	DO(chmod("foreign-group", 02755));
	say_stat("foreign-group");
	DO(chmod("roots", 0777));
	DO(chown("roots", USER, -1));
	DO(utimensat(AT_FDCWD, "roots", NULL, 0));
	DO(truncate("roots", 0));
}

static void owners_and_modes(void)
{
	put("f", 0644, "x");
	put("mine", 0644, "x");
	put("foreign-group", 0644, "x");
	put("roots", 0644, "x");
	DO(chown("mine", USER, USER_GROUP));
	DO(chown("foreign-group", USER, 3000));
	DO(chmod("f", 07777));
	say_stat("f");
	DO(chmod("f", 0));
	say_stat("f");
	DO(chown("f", 12345, 54321));
	say_stat("f");
	DO(chmod("nothing", 0644));
	DO(mkdir("d", 0755));
	DO(chmod("d", 07777));
	say_stat("d");
	DO(chown("d", USER, EXTRA_GROUP));
	say_stat("d");
	as_user(change_as_user);
}

static bool is_now(struct timespec time)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return now.tv_sec - time.tv_sec < 100 && time.tv_sec <= now.tv_sec;
}

static void say_times(const char *path)
{
	struct stat st;

	if (say_result(path, lstat(path, &st)) < 0)
		return;
	if (is_now(st.st_atim))
		say("  atime now");
	else
		say("  atime %lld.%09ld", (long long)st.st_atim.tv_sec, st.st_atim.tv_nsec);
	if (is_now(st.st_mtim))
		say("  mtime now");
	else
		say("  mtime %lld.%09ld", (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
	say("  ctime now %d", is_now(st.st_ctim));
}

static void times(void)
{
	struct timespec past[2] = { { 1000000000, 400000000 }, { 1100000000, 123456789 } };
	struct timespec one[2] = { { 0, UTIME_OMIT }, { 5, 0 } };
	struct timespec mixed[2] = { { 0, UTIME_NOW }, { 0, UTIME_OMIT } };
	struct timespec far[2] = { { -1000, 1 }, { 4000000000, 2 } };
	int fd;

	put("f", 0644, "x");
	DO(symlink("f", "l"));
	DO(utimensat(AT_FDCWD, "f", past, 0));
	say_times("f");
	DO(utimensat(AT_FDCWD, "f", one, 0));
	say_times("f");
	DO(utimensat(AT_FDCWD, "f", mixed, 0));
	say_times("f");
	DO(utimensat(AT_FDCWD, "f", far, 0));
	say_times("f");
	DO(utimensat(AT_FDCWD, "l", past, AT_SYMLINK_NOFOLLOW));
	say_times("l");
	fd = open("f", O_WRONLY | O_CLOEXEC);
	DO(write(fd, "late", 4));
	DO(futimens(fd, past));
	close(fd);
	say_times("f"); /* a late flush must not undo it */
	DO(mkdir("d", 0755));
	DO(utimensat(AT_FDCWD, "d", past, 0));
	say_times("d");
	put("d/f", 0644, "x");
	say_times("d");
	DO(utimensat(AT_FDCWD, "d", past, 0));
	DO(rename("d/f", "d/g"));
	say_times("d");
	DO(utimensat(AT_FDCWD, "d", past, 0));
	DO(unlink("d/g"));
	say_times("d");
}

/* ---- extended attributes and ACLs ---------------------------------------- */

static void user_xattrs(void)
{
	char value[100];

	DO(setxattr("mine", "user.a", "1", 1, 0));
	DO(setxattr("mine", "trusted.a", "1", 1, 0));
	DO(setxattr("mine", "security.a", "1", 1, 0));
	DO(setxattr("roots", "user.a", "1", 1, 0));
	DO(getxattr("mine", "trusted.b", value, sizeof(value)));
	DO(listxattr("mine", value, sizeof(value)));
}

static void xattrs(void)
{
	char value[70000], name[300] = "user.";
	ssize_t n;

	put("f", 0644, "x");
	put("mine", 0644, "x");
	put("roots", 0644, "x");
	DO(chown("mine", USER, USER_GROUP));
	DO(setxattr("f", "user.a", "value", 5, 0));
	DO(setxattr("f", "user.a", "again", 5, XATTR_CREATE));
	DO(setxattr("f", "user.a", "again", 5, XATTR_REPLACE));
	DO(setxattr("f", "user.b", "x", 1, XATTR_REPLACE));
	DO(setxattr("f", "user.empty", "", 0, 0));
	DO(setxattr("f", "trusted.t", "t", 1, 0));
	DO(setxattr("f", "other.x", "x", 1, 0));
	DO(getxattr("f", "user.a", value, sizeof(value)));
	DO(getxattr("f", "user.a", value, 2));
	DO(getxattr("f", "user.a", NULL, 0));
	DO(getxattr("f", "user.none", value, sizeof(value)));
	DO(getxattr("f", "user.empty", value, sizeof(value)));
	n = DO(listxattr("f", value, sizeof(value)));
	for (ssize_t i = 0; i < n; i += (ssize_t)strlen(value + i) + 1)
		say("  %s", value + i);
	DO(listxattr("f", NULL, 0));
	DO(listxattr("f", value, 3));
	memset(value, 'v', sizeof(value));
	DO(setxattr("f", "user.big", value, 3000, 0));
	DO(setxattr("f", "user.huge", value, 70000, 0));
	memset(name + 5, 'n', 250);
	name[255] = '\0';
	DO(setxattr("f", name, "1", 1, 0));
	name[255] = 'n';
	name[256] = '\0';
	DO(setxattr("f", name, "1", 1, 0));
	DO(removexattr("f", "user.a"));
	DO(removexattr("f", "user.a"));
	DO(symlink("f", "l"));
	DO(lsetxattr("l", "user.a", "1", 1, 0));
	DO(lsetxattr("l", "trusted.a", "1", 1, 0));
	DO(llistxattr("l", value, sizeof(value)));
	as_user(user_xattrs);
	put("by-root", 0600, "x");
	DO(unlink("by-root"));
}

/* posix_acl_xattr: version 2, then tag, permissions, id */
struct acl_entry {
	uint16_t tag, perm;
	uint32_t id;
};

struct acl {
	uint32_t version;
	struct acl_entry entries[5];
};

static const struct acl acl_for_other = {
	2,
	{ { 1, 7, -1 }, { 2, 6, OTHER_USER }, { 4, 5, -1 }, { 16, 7, -1 }, { 32, 0, -1 } }
};
static const struct acl acl_for_user = {
	2,
	{ { 1, 7, -1 }, { 2, 7, USER }, { 4, 0, -1 }, { 16, 7, -1 }, { 32, 0, -1 } }
};

#define ACCESS "system.posix_acl_access"
#define DEFAULT "system.posix_acl_default"

static void say_acl(const char *path, const char *name)
{
	struct acl acl;
	ssize_t n = say_result(name, getxattr(path, name, &acl, sizeof(acl)));

	for (ssize_t i = 0; 4 + i * 8 < n; i++)
		say("  %s: %u %u %d", path, acl.entries[i].tag, acl.entries[i].perm,
		    (int)acl.entries[i].id);
}

static void make_tmpfile_below_acl(mode_t mask)
{
	int fd = open("d", O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
	char name[32], proc[64];

	snprintf(name, sizeof(name), "d/t%o", mask);
	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
	say_fstat(fd);
	DO(linkat(AT_FDCWD, proc, AT_FDCWD, name, AT_SYMLINK_FOLLOW));
	say_acl(name, ACCESS);
	close(fd);
}

static void make_below_acl(void)
{
	static const mode_t masks[] = { 0, 022, 077 };
	char name[32];

	for (size_t i = 0; i < ARRAY_SIZE(masks); i++) {
		umask(masks[i]);
		snprintf(name, sizeof(name), "d/f%o", masks[i]);
		put(name, 0666, "x");
		say_stat(name);
		say_acl(name, ACCESS);
		snprintf(name, sizeof(name), "d/d%o", masks[i]);
		DO(mkdir(name, 0777));
		say_stat(name);
		say_acl(name, ACCESS);
		say_acl(name, DEFAULT);
		snprintf(name, sizeof(name), "d/p%o", masks[i]);
		DO(mkfifo(name, 0666));
		say_stat(name);
		say_acl(name, ACCESS);
		snprintf(name, sizeof(name), "d/l%o", masks[i]);
		DO(symlink("x", name));
		make_tmpfile_below_acl(masks[i]);
	}
}

static void default_acls(void)
{
	DO(mkdir("d", 0777));
	DO(chmod("d", 0777));
	DO(setxattr("d", DEFAULT, &acl_for_other, sizeof(acl_for_other), 0));
	make_below_acl();
	DO(mkdir("u", 0777));
	DO(chmod("u", 0777));
	DO(mkdir("u/d", 0777));
	DO(chmod("u/d", 0777));
	DO(setxattr("u/d", DEFAULT, &acl_for_other, sizeof(acl_for_other), 0));
	DO(chdir("u"));
	as_user(make_below_acl);
	DO(removexattr("d", DEFAULT));
	say_acl("d", DEFAULT);
}

static void use_acl(void)
{
	int fd = open("f", O_RDWR | O_CLOEXEC);

	say("opened %d", fd >= 0);
	if (fd >= 0)
		close(fd);
	put("d/new", 0644, "x");
	say_stat("d/new");
	DO(unlink("d/new"));
	/* As the owner, outside the file's group. */
	DO(setxattr("sgid", ACCESS, &acl_for_other, sizeof(acl_for_other), 0));
	say_stat("sgid");
	DO(setxattr("sgid-mine", ACCESS, &acl_for_other, sizeof(acl_for_other), 0));
	say_stat("sgid-mine");
	DO(setxattr("f", ACCESS, &acl_for_other, sizeof(acl_for_other), 0));
}

static void access_acls(void)
{
	put("f", 0600, "x");
	put("sgid", 0755, "x");
	put("sgid-mine", 0755, "x");
	DO(chown("sgid", USER, 3000));
	DO(chmod("sgid", 02755));
	DO(chown("sgid-mine", USER, EXTRA_GROUP));
	DO(chmod("sgid-mine", 02755));
	DO(mkdir("d", 0700));
	DO(setxattr("f", ACCESS, &acl_for_user, sizeof(acl_for_user), 0));
	DO(setxattr("d", ACCESS, &acl_for_user, sizeof(acl_for_user), 0));
	say_stat("f");
	say_acl("f", ACCESS);
	as_user(use_acl);
	DO(chmod("f", 0640));
	say_acl("f", ACCESS);
	say_stat("f");
	as_user(use_acl);
	DO(setxattr("f", DEFAULT, &acl_for_user, sizeof(acl_for_user), 0));
	DO(setxattr("f", ACCESS, "junk", 4, 0));
	DO(removexattr("f", ACCESS));
	say_stat("f");
	as_user(use_acl);
}

/* ---- the file system ----------------------------------------------------- */

static void file_system(void)
{
	struct statvfs st;
	int fd, value = 0;

	DO(statvfs(".", &st));
	say("block %lu fragment %lu names %lu", st.f_bsize, st.f_frsize, st.f_namemax);
	say("has room %d %d", st.f_blocks > 0, st.f_bavail > 0);
	put("f", 0644, "abc");
	fd = open("f", O_RDONLY | O_CLOEXEC);
	DO(ioctl(fd, 0x1234abcd, &value));
	DO(syncfs(fd));
	DO(access("f", R_OK | W_OK));
	DO(access("f", X_OK));
	DO(faccessat(AT_FDCWD, "nothing", F_OK, AT_EACCESS));
	close(fd);
}

const struct parity_case parity_attrs[] = {
	{ "owners and modes", owners_and_modes },
	{ "times", times },
	{ "extended attributes", xattrs },
	{ "default ACLs and umasks", default_acls },
	{ "access ACLs", access_acls },
	{ "the file system itself", file_system },
	{ 0 },
};
