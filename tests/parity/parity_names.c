/* SPDX-License-Identifier: Apache-2.0 */
/* Names: making, linking, renaming, removing, and what is still open then. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tests/parity/parity.h"

/* open(2), of which only success matters. */
static int try_open(const char *path, int flags, mode_t mode)
{
	int fd = open(path, flags | O_CLOEXEC, mode);

	say("open %s %x: %s", path, (unsigned)flags, fd < 0 ? strerrorname_np(errno) : "ok");
	return fd;
}

static void try_open_close(const char *path, int flags, mode_t mode)
{
	int fd = try_open(path, flags, mode);

	if (fd >= 0)
		close(fd);
}

static void opens(void)
{
	put("f", 0644, "some text");
	DO(mkdir("d", 0755));
	DO(symlink("f", "l"));
	DO(symlink("nothing", "dangling"));
	try_open_close("f", O_RDWR | O_CREAT | O_EXCL, 0644);
	try_open_close("l", O_RDWR | O_CREAT | O_EXCL, 0644);
	try_open_close("f/x", O_RDONLY, 0);
	try_open_close("f", O_RDONLY | O_DIRECTORY, 0);
	try_open_close("l", O_RDONLY | O_NOFOLLOW, 0);
	try_open_close("d", O_RDWR, 0);
	try_open_close("nothing", O_RDONLY, 0);
	try_open_close("dangling", O_RDONLY, 0);
	try_open_close("dangling", O_WRONLY | O_CREAT, 0600);
	say_stat("nothing");
	try_open_close("f", O_WRONLY | O_TRUNC, 0);
	say_file("f");
	put("f", 0644, "a long line of text");
	put("f", 0644, "s");
	say_file("f");
	say_dir(".");
}

static void create_modes(void)
{
	static const mode_t modes[] = { 0444, 0000, 0200, 0755, 04755, 02755, 01777, 0666 };
	static const mode_t masks[] = { 0, 022, 0333, 0777 };
	char name[32];

	for (size_t m = 0; m < ARRAY_SIZE(masks); m++) {
		umask(masks[m]);
		for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
			int fd;

			snprintf(name, sizeof(name), "f%o-%o", masks[m], modes[i]);
			fd = try_open(name, O_CREAT | O_EXCL | O_WRONLY, modes[i]);
			DO(write(fd, "text", 4));
			DO(close(fd));
			say_stat(name);
			snprintf(name, sizeof(name), "d%o-%o", masks[m], modes[i]);
			DO(mkdir(name, modes[i]));
			say_stat(name);
			snprintf(name, sizeof(name), "p%o-%o", masks[m], modes[i]);
			DO(mkfifo(name, modes[i]));
			say_stat(name);
		}
	}
}

static void create_modes_as_user(void)
{
	as_user(create_modes);
}

static void make_in_set_gid_directories(void)
{
	put("group-exec", 02755, "x");
	say_stat("group-exec");
	DO(mkdir("sub", 0755));
	say_stat("sub");
	DO(mkdir("sub/sub", 02700));
	say_stat("sub/sub");
	DO(symlink("a", "link"));
	say_stat("link");
	DO(mkfifo("fifo", 02770));
	say_stat("fifo");
}

static void set_gid_directories(void)
{
	DO(mkdir("mine", 0777));
	DO(mkdir("others", 0777));
	DO(chown("mine", 0, EXTRA_GROUP));
	DO(chown("others", 0, 3000));
	DO(chmod("mine", 02777));
	DO(chmod("others", 02777));
	DO(chdir("mine"));
	as_user(make_in_set_gid_directories);
	DO(chdir("../others"));
	as_user(make_in_set_gid_directories);
}

static void use_groups_and_permissions(void)
{
	put("group-dir/f", 0644, "by an extra group");
	say_stat("group-dir/f");
	DO(unlink("group-dir/f"));
	DO(mkdir("root-dir/d", 0755));
	try_open_close("root-file", O_RDONLY, 0);
	try_open_close("group-file", O_RDWR, 0);
	DO(unlink("sticky/roots"));
	DO(rename("sticky/roots", "sticky/mine"));
	put("sticky/mine", 0600, "mine");
	DO(unlink("sticky/mine"));
	DO(chmod("group-file", 0600));
	DO(chown("group-file", USER, -1));
	DO(link("root-file", "linked"));
}

static void groups_and_permissions(void)
{
	DO(mkdir("group-dir", 0775));
	DO(chown("group-dir", 0, EXTRA_GROUP));
	DO(chmod("group-dir", 0775));
	DO(mkdir("root-dir", 0755));
	put("root-file", 0600, "secret");
	put("group-file", 0660, "shared");
	DO(chown("group-file", 0, EXTRA_GROUP));
	DO(chmod("group-file", 0660));
	DO(mkdir("sticky", 01777));
	DO(chmod("sticky", 01777));
	put("sticky/roots", 0644, "root's");
	as_user(use_groups_and_permissions);
}

static void special_files(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = "socket" };
	int fd, other;

	DO(mkfifo("fifo", 0644));
	DO(mknod("null", S_IFCHR | 0666, makedev(1, 3)));
	DO(mknod("whiteout", S_IFCHR | 0600, makedev(0, 0)));
	DO(mknod("block", S_IFBLK | 0600, makedev(7, 200)));
	DO(mknod("file", S_IFREG | 0640, 0));
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	DO(bind(fd, (struct sockaddr *)&address, sizeof(address)));
	close(fd);
	say_stat("fifo");
	say_stat("null");
	say_stat("whiteout");
	say_stat("block");
	say_stat("file");
	say_stat("socket");
	try_open_close("fifo", O_WRONLY | O_NONBLOCK, 0);
	fd = try_open("fifo", O_RDONLY | O_NONBLOCK, 0);
	other = try_open("fifo", O_WRONLY | O_NONBLOCK, 0);
	DO(write(other, "through", 7));
	DO(unlink("fifo"));
	say_fstat(fd);
	DO(fchmod(fd, 0600));
	DO(fchown(fd, 7, 8));
	say_fstat(other);
	close(other);
	close(fd);
	fd = try_open("null", O_WRONLY, 0);
	DO(write(fd, "away", 4));
	close(fd);
	DO(unlink("null"));
	DO(unlink("whiteout"));
	DO(unlink("socket"));
	say_dir(".");
}

static void hard_links(void)
{
	put("a", 0644, "one");
	DO(link("a", "b"));
	DO(link("a", "b"));
	DO(mkdir("d", 0755));
	DO(link("d", "e"));
	DO(link("a", "d/c"));
	DO(link("a", "nothing/c"));
	DO(link("nothing", "c"));
	DO(symlink("a", "s"));
	DO(linkat(AT_FDCWD, "s", AT_FDCWD, "s2", 0));
	DO(linkat(AT_FDCWD, "s", AT_FDCWD, "s3", AT_SYMLINK_FOLLOW));
	say_stat("a");
	say_stat("s2");
	say_stat("s3");
	put("b", 0644, "through b");
	say_file("a");
	DO(unlink("a"));
	say_stat("b");
	DO(rename("b", "d/c"));
	say_stat("b");
	say_stat("d/c");
	DO(unlink("d/c"));
	DO(unlink("s3"));
	say_stat("b");
	say_dir("d");
}

static void symlinks(void)
{
	char target[4200], buffer[4200];

	memset(target, 'a', sizeof(target));
	target[4095] = '\0';
	DO(symlink(target, "long"));
	DO(readlink("long", buffer, sizeof(buffer)));
	DO(readlink("long", buffer, 10));
	target[4095] = 'a';
	target[4096] = '\0';
	DO(symlink(target, "longer"));
	DO(symlink("", "empty"));
	DO(symlink("loop", "loop"));
	try_open_close("loop", O_RDONLY, 0);
	DO(symlink("x", "long"));
	DO(readlink(".", buffer, sizeof(buffer)));
	DO(unlink("long"));
	DO(lchown("loop", 5, 6));
	say_stat("loop");
	DO(fchmodat(AT_FDCWD, "loop", 0600, AT_SYMLINK_NOFOLLOW));
	say_dir(".");
}

static int rename2(const char *from, const char *to, unsigned flags)
{
	return renameat2(AT_FDCWD, from, AT_FDCWD, to, flags);
}

static void renames(void)
{
	put("f", 0644, "file");
	put("g", 0600, "other");
	DO(mkdir("d", 0755));
	DO(mkdir("e", 0755));
	put("e/in", 0644, "inside");
	DO(rename("f", "d"));
	DO(rename("d", "f"));
	DO(rename("d", "e"));
	DO(rename("e", "d"));
	say_dir("d");
	DO(rename("d", "d/sub"));
	DO(rename("d/in", "in"));
	DO(rename("f", "g"));
	say_file("g");
	say_dir(".");
	DO(link("g", "h"));
	DO(rename("g", "h"));
	say_stat("g");
	DO(rename("nothing", "x"));
	DO(rename("g", "nothing/x"));
	DO(rename("g", "."));
	DO(mkdir("p", 0755));
	DO(mkdir("p/q", 0755));
	DO(mkdir("r", 0755));
	say_stat("p");
	DO(rename("p/q", "r/q"));
	say_stat("p");
	say_stat("r");
	DO(symlink("h", "l"));
	DO(rename("l", "h"));
	say_stat("h");
	say_dir(".");
}

static void renames_with_flags(void)
{
	put("a", 0644, "is a");
	put("b", 0600, "is b");
	DO(mkdir("d", 0755));
	put("d/in", 0644, "inside");
	DO(rename2("a", "b", RENAME_NOREPLACE));
	DO(rename2("a", "c", RENAME_NOREPLACE));
	DO(rename2("c", "b", RENAME_EXCHANGE));
	say_file("b");
	say_file("c");
	DO(rename2("b", "d", RENAME_EXCHANGE));
	say_file("d");
	say_dir("b");
	DO(rename2("b", "b/x", RENAME_EXCHANGE));
	DO(rename2("b/in", "b", RENAME_EXCHANGE));
	DO(rename2("c", "nothing", RENAME_EXCHANGE));
	DO(rename2("c", "b", RENAME_EXCHANGE | RENAME_NOREPLACE));
	DO(rename2("c", "d", 1 << 7));
	DO(mkdir("x", 0755));
	DO(mkdir("x/y", 0755));
	DO(mkdir("z", 0755));
	DO(rename2("x/y", "z", RENAME_EXCHANGE));
	say_stat("x");
	say_stat("z");
	say_dir(".");
}

/* Never EXDEV, whatever is moved where within the mount. */
static void moved_directories(void)
{
	char name[64];

	DO(mkdir("a", 0755));
	DO(mkdir("b", 0755));
	DO(mkdir("a/full", 0755));
	DO(mkdir("a/full/sub", 0755));
	for (int i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "a/full/sub/%d", i);
		put(name, 0644, name);
	}
	DO(symlink("../full", "a/full/sub/up"));
	DO(link("a/full/sub/1", "b/linked"));
	say_file("a/full/sub/3"); /* seen, and not seen */
	DO(rename("a/full", "b/full"));
	DO(rename("b/full/sub", "a/sub"));
	DO(rename("a/sub", "a/sub2"));
	say_dir("a/sub2");
	say_dir("b/full");
	say_file("a/sub2/1");
	DO(rename("b/full", "a/sub2/full"));
	DO(rename("a/sub2", "a/sub2/full/x"));
	DO(rename2("a/sub2", "b", RENAME_EXCHANGE));
	say_dir("a/sub2");
	say_dir("b");
	DO(rename2("b/full", "a", RENAME_NOREPLACE));
	DO(rename2("b/full", "c", RENAME_NOREPLACE));
	say_stat("c");
	say_stat("b");
	DO(mkdir("empty", 0700));
	DO(rename("c", "empty"));
	say_stat("empty");
	DO(rename("a/sub2/linked", "empty/linked"));
	DO(rename2("empty/linked", "b/1", 0));
	say_stat("b/1");
	say_stat("empty/linked");
	say_file("b/up/../1");
	DO(open("b/up", O_RDONLY | O_CLOEXEC));
	DO(rename("b", "a/b/c"));
	DO(rename("b/", "z/"));
	say_dir("z");
}

/* A name's type changes in one go, empty or full, both ways. */
static void types_change(void)
{
	static const char *const steps[] = { "file", "empty", "full",  "symlink", "fifo", "full",
					     "file", "fifo",  "empty", "symlink", "full" };

	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		if (strcmp(steps[i], "file") == 0) {
			put("x", 0644, "a file");
		} else if (strcmp(steps[i], "symlink") == 0) {
			DO(symlink("../target", "x"));
		} else if (strcmp(steps[i], "fifo") == 0) {
			DO(mkfifo("x", 0600));
		} else {
			DO(mkdir("x", 0711));
			if (strcmp(steps[i], "full") == 0) {
				put("x/in", 0600, steps[i]);
				DO(mkdir("x/sub", 0755));
				DO(link("x/in", "x/sub/linked"));
			}
		}
		say_stat("x");
		if (i + 1 == ARRAY_SIZE(steps))
			break;
		if (strcmp(steps[i], "full") == 0) {
			DO(rename("x/sub/linked", "x/moved"));
			DO(rmdir("x/sub"));
			DO(unlink("x/moved"));
			DO(unlink("x/in"));
		}
		DO(remove("x"));
	}
	say_dir(".");
	say_dir("x");
}

static void removals(void)
{
	put("f", 0644, "file");
	DO(mkdir("d", 0755));
	DO(mkdir("d/e", 0755));
	DO(rmdir("d"));
	DO(unlink("d"));
	DO(rmdir("f"));
	DO(rmdir("nothing"));
	DO(unlink("nothing"));
	DO(rmdir("d/."));
	DO(rmdir("d/e/.."));
	say_stat("d");
	DO(rmdir("d/e"));
	say_stat("d");
	DO(rmdir("d"));
	DO(mkdir("f", 0755));
	DO(unlink("f"));
	DO(mkdir("f", 0755));
	put("f/x", 0644, "type change");
	say_dir(".");
}

/* Everything that can be done to an open file. */
static void use(int fd)
{
	char buffer[64] = "", *map;
	struct timespec times[2] = { { 1000, 5 }, { 2000, 7 } };

	say_fstat(fd);
	DO(pwrite(fd, "written late", 12, 2));
	DO(pread(fd, buffer, sizeof(buffer), 0));
	say("'%s'", buffer);
	DO(ftruncate(fd, 5));
	DO(fchmod(fd, 0640));
	DO(fchown(fd, 11, 12));
	DO(fsetxattr(fd, "user.x", "1", 1, 0));
	DO(fgetxattr(fd, "user.x", buffer, sizeof(buffer)));
	DO(flistxattr(fd, buffer, sizeof(buffer)));
	DO(fremovexattr(fd, "user.x"));
	DO(futimens(fd, times));
	DO(fsync(fd));
	DO(fdatasync(fd));
	DO(ftruncate(fd, 8192));
	map = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	say("mmap %d", map != MAP_FAILED);
	if (map != MAP_FAILED) {
		map[5000] = 'm';
		DO(msync(map, 8192, MS_SYNC));
		munmap(map, 8192);
	}
	DO(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 16384));
	say_fd(fd);
	say_fstat(fd);
}

static void unlinked_open(void)
{
	int fd, other;

	put("f", 0644, "0123456789");
	fd = try_open("f", O_RDWR, 0);
	DO(unlink("f"));
	put("f", 0644, "another");
	use(fd);
	say_file("f");
	other = open("/proc/self/fd", O_RDONLY | O_DIRECTORY);
	close(other);
	DO(linkat(AT_FDCWD, "/proc/self/fd/999", AT_FDCWD, "x", AT_SYMLINK_FOLLOW));
	DO(linkat(fd, "", AT_FDCWD, "x", AT_EMPTY_PATH));
	close(fd);
	say_dir(".");
}

static void renamed_over_open(void)
{
	int a, b;

	put("a", 0644, "content of a");
	put("b", 0644, "content of b");
	a = try_open("a", O_RDWR, 0);
	b = try_open("b", O_RDWR, 0);
	DO(rename("a", "b"));
	use(b);
	say_fstat(a);
	say_fd(a);
	say_file("b");
	DO(unlink("b"));
	use(a);
	close(a);
	close(b);
	say_dir(".");
}

static void removed_directory(void)
{
	char buffer[64];
	int fd;

	DO(mkdir("d", 0755));
	DO(mkdir("d/e", 0755));
	DO(chdir("d/e"));
	fd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DO(rmdir("../e"));
	say_fstat(fd);
	DO(mkdir("x", 0755));
	try_open_close("y", O_CREAT | O_RDWR, 0644);
	try_open_close(".", O_RDONLY | O_DIRECTORY, 0);
	say("getcwd %d", getcwd(buffer, sizeof(buffer)) != NULL);
	say_dir(".");
	DO(fchmod(fd, 0700));
	say_fstat(fd);
	DO(fsync(fd));
	DO(chdir(".."));
	say_dir(".");
	close(fd);
}

static void tmpfiles(void)
{
	char path[64];
	int fd;

	fd = try_open(".", O_TMPFILE | O_RDWR, 0640);
	say_fstat(fd);
	DO(write(fd, "nameless", 8));
	use(fd);
	say_dir(".");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	DO(linkat(AT_FDCWD, path, AT_FDCWD, "named", AT_SYMLINK_FOLLOW));
	say_fstat(fd);
	DO(pwrite(fd, "NAMED", 5, 0));
	say_file("named");
	DO(linkat(fd, "", AT_FDCWD, "twice", AT_EMPTY_PATH));
	say_stat("twice");
	close(fd);
	fd = try_open(".", O_TMPFILE | O_RDWR | O_EXCL, 0600);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	DO(linkat(AT_FDCWD, path, AT_FDCWD, "exclusive", AT_SYMLINK_FOLLOW));
	close(fd);
	say_dir(".");
}

static void tmpfile_as_user(void)
{
	int fd = try_open(".", O_TMPFILE | O_RDWR, 0666);

	say_fstat(fd);
	DO(write(fd, "mine", 4));
	close(fd);
}

static void tmpfiles_as_user(void)
{
	as_user(tmpfile_as_user);
}

static void odd_names(void)
{
	static const char *const names[] = {
		"a\nb",
		"-rf",
		" leading",
		"trailing ",
		"\xff\xfe",
		"...",
		"\n",
		"*",
		"\\",
		"'\"",
		"\t\r\x1b[31m",
		"%s%n",

		".hidden",
		"a:b",
		"COM1",
		/* which other file systems take for one */
		"File",
		"file",
		"\xc3\xa9",
		"e\xcc\x81",
		"trailing",
		"trailing.",
	};
	char name[300];

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		put(names[i], 0644, names[i]);
	memset(name, 'n', sizeof(name));
	name[255] = '\0';
	put(name, 0644, "longest");
	say_file(name);
	DO(rename(name, "short"));
	DO(rename("short", name));
	name[255] = 'n';
	name[256] = '\0';
	try_open_close(name, O_CREAT | O_RDWR, 0644);
	DO(mkdir(name, 0755));
	DO(rename("-rf", name));
	DO(symlink("x", name));
	say_stat(name);
	say_dir(".");
}

const struct parity_case parity_names[] = {
	{ "opens fail and truncate alike", opens },
	{ "modes under umasks", create_modes },
	{ "modes under umasks as a user", create_modes_as_user },
	{ "set-gid directories", set_gid_directories },
	{ "groups and permissions", groups_and_permissions },
	{ "special files", special_files },
	{ "hard links", hard_links },
	{ "symlinks", symlinks },
	{ "renames", renames },
	{ "renames with flags", renames_with_flags },
	{ "moved directories", moved_directories },
	{ "a name changes its type", types_change },
	{ "removals", removals },
	{ "an unlinked open file does all that a file does", unlinked_open },
	{ "a file that was renamed over while open", renamed_over_open },
	{ "a removed directory that is somebody's place", removed_directory },
	{ "files without names", tmpfiles },
	{ "files without names as a user", tmpfiles_as_user },
	{ "odd and long names", odd_names },
	{ 0 },
};
