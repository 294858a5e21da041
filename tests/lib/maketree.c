/* SPDX-License-Identifier: Apache-2.0 */
/*
 * maketree DIR --files N --dirs M --seed S [--flat] [--no-xattr] [--no-negative-times]
 * [--symlink-max BYTES]: fills DIR with a tree that has everything a file system can hold: of every type, with
 * odd names, owners, modes, times, links, holes, xattrs and ACLs. The same seed
 * makes the same tree.
 *
 * N counts the names that are no directories, M the directories. --flat puts
 * all N names but the second halves of link groups into one directory. Where the
 * file system refuses a kind of xattr, that kind is left out, with a note.
 *
 * Attributes are set in an order that lets each survive: owner, xattrs, mode,
 * times; and those of directories when all is in them, the deepest first.
 */

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tests/lib/testlib.h"

enum {
	DEEP_LEVELS = 100,    /* one chain of directories */
	WIDE_MAX = 40,	      /* subdirectories per directory, about */
	LINKS_MAX = 50,	      /* names of one inode */
	LINK_GROUPS_MAX = 64, /* open at a time */
	BIG_SPARSE = 1,	      /* files over 4 GiB, apparently; a mount reads all of them */
	LARGE_EVERY = 6000,   /* of so many files one is of MiBs */
	IO_BYTES = 64 * 1024,
};

static const off_t GIB = 1024 * 1024 * 1024;

struct group {	    /* of hard links that still miss names */
	char *path; /* of the first name; owned */
	unsigned missing;
};

static struct {
	int root;
	struct rng rng;
	uint64_t files, dirs;
	bool is_flat, no_negative_times, no_xattr;
	uint64_t symlink_max;
	char **dir; /* paths below the root, parents first; owned */
	size_t dir_count;
	struct group groups[LINK_GROUPS_MAX];
	unsigned group_count;
	uint64_t serial; /* makes names unique */
	unsigned big_sparse;
	char io[IO_BYTES];
} tree;

static uint64_t below(uint64_t bound)
{
	return rng_below(&tree.rng, bound);
}

/* True once in @n times. */
static bool once_in(uint64_t n)
{
	return below(n) == 0;
}

/* ---- names ------------------------------------------------------------------ */

static void odd_name(char name[static NAME_MAX + 1])
{
	static const char *const patterns[] = {
		"-rf %llu",
		" leading %llu",
		"trailing %llu ",
		"new\nline %llu",
		"\377\376 %llu",
		"back\\slash%llu",
		"quote\"'%llu",
		"$(touch x)`%llu`",
		"*?[%llu]",
		".nfs%024llu",
		".fuse_hidden%08llu",
		"...%llu",
		"\xc3\xa4 nfc %llu",
		"a\xcc\x88 nfd %llu",
		"UPPER-%llu.TXT",
		"tab\t\r\b\033[31m%llu",
		".~tmp~%llu",
		"%llu.part",
		"\xed\xa0\x80 surr %llu",
		"%%s%%n%llu",
		".ferry%llu",
	};
	size_t at;
	int n;

	if (once_in(8)) { /* as long as a name can be, and hardly ASCII */
		n = snprintf(name, NAME_MAX + 1, "%llu-", (unsigned long long)tree.serial);
		for (at = (size_t)n; at < NAME_MAX; at++) {
			name[at] = (char)(1 + below(255));
			if (name[at] == '/')
				name[at] = '\n';
		}
		name[NAME_MAX] = '\0';
		return;
	}
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	snprintf(name, NAME_MAX + 1, patterns[below(ARRAY_SIZE(patterns))],
		 (unsigned long long)tree.serial);
#pragma GCC diagnostic pop
}

static void new_name(char name[static NAME_MAX + 1])
{
	tree.serial++;
	if (once_in(25))
		odd_name(name);
	else if (once_in(50)) /* differs from another by case alone */
		snprintf(name, NAME_MAX + 1, "F%06llu", (unsigned long long)(tree.serial - 1));
	else
		snprintf(name, NAME_MAX + 1, "f%06llu", (unsigned long long)tree.serial);
}

static char *join(const char *dir, const char *name)
{
	char *path;

	if (asprintf(&path, "%s%s%s", dir, *dir ? "/" : "", name) < 0)
		die(TEST_TROUBLE, "out of memory");
	return path;
}

static const char *random_dir(void)
{
	return tree.dir[below(tree.dir_count)];
}

/* ---- attributes ------------------------------------------------------------- */

static struct timespec random_time(void)
{
	static const long odd_ns[] = { 0, 1, 999999999, 400000000, 500000000, 123456789 };
	struct timespec t = { .tv_nsec = odd_ns[below(ARRAY_SIZE(odd_ns))] };

	switch (below(20)) {
	case 0:
		t.tv_sec = 0; /* 1970 */
		break;
	case 1: /* 1901 */
		t.tv_sec = tree.no_negative_times ? 1 : (time_t)INT32_MIN + 1 + (time_t)below(1000);
		break;
	case 2:
		t.tv_sec = tree.no_negative_times ? 2 : -(time_t)(1 + below(100000));
		break;
	case 3:
		t.tv_sec = (time_t)INT32_MAX + (time_t)below(100000); /* 2038 */
		break;
	case 4:
		t.tv_sec = 4000000000; /* 2096 */
		break;
	default:
		t.tv_sec = 1000000000 + (time_t)below(700000000);
		t.tv_nsec = (long)below(1000000000);
	}
	return t;
}

static void set_times(const char *path)
{
	struct timespec times[2] = { random_time(), random_time() };

	if (utimensat(tree.root, path, times, AT_SYMLINK_NOFOLLOW) < 0)
		die_errno("cannot set the times of '%s'", escaped(path));
}

static void set_owner(const char *path)
{
	static const uid_t uids[] = { 0, 0, 1, 1000, 1001, 12345, 65534, 70000, 2147483647 };
	uid_t uid = uids[below(ARRAY_SIZE(uids))], gid = uids[below(ARRAY_SIZE(uids))];

	if (fchownat(tree.root, path, uid, gid, AT_SYMLINK_NOFOLLOW) < 0)
		die_errno("cannot set the owner of '%s'", escaped(path));
}

static void set_mode(const char *path, mode_t mode)
{
	if (fchmodat(tree.root, path, mode, 0) < 0)
		die_errno("cannot set the mode of '%s'", escaped(path));
}

/* Sets an xattr of @path; a kind that is refused once is left out from then on. */
static void set_xattr(const char *path, const char *name, const void *value, size_t size)
{
	static const char *refused[8];
	char full[PATH_MAX];
	unsigned i;

	for (i = 0; i < ARRAY_SIZE(refused) && refused[i]; i++)
		if (strcmp(refused[i], name) == 0)
			return;
	if (snprintf(full, sizeof(full), "/proc/self/fd/%d/%s", tree.root, path) >=
	    (int)sizeof(full))
		return;
	if (lsetxattr(full, name, value, size, 0) == 0)
		return;
	if (errno != EOPNOTSUPP && errno != ENOSPC)
		die_errno("cannot set xattr %s of '%s'", name, escaped(path));
	if (errno == ENOSPC) /* ext4 has room for few; another inode has it again */
		return;
	if (i < ARRAY_SIZE(refused))
		refused[i] = name;
	fprintf(stderr, "maketree: no '%s' on this file system, left out\n", name);
}

static void set_acl(const char *path, const char *name)
{
	struct {
		struct posix_acl_xattr_header header;
		struct posix_acl_xattr_entry entry[6];
	} acl = { .header.a_version = htole32(POSIX_ACL_XATTR_VERSION) };
	static const uint16_t tags[] = { ACL_USER_OBJ, ACL_USER, ACL_GROUP_OBJ,
					 ACL_GROUP,    ACL_MASK, ACL_OTHER };
	unsigned i;

	for (i = 0; i < ARRAY_SIZE(tags); i++) {
		acl.entry[i].e_tag = htole16(tags[i]);
		acl.entry[i].e_perm = htole16((uint16_t)below(8));
		acl.entry[i].e_id = htole32(tags[i] == ACL_USER	   ? 1001
					    : tags[i] == ACL_GROUP ? 2002
								   : ACL_UNDEFINED_ID);
	}
	set_xattr(path, name, &acl, sizeof(acl));
}

static void set_capability(const char *path)
{
	struct vfs_cap_data cap = {
		.magic_etc = htole32(VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE),
		.data[0].permitted = htole32(1u << CAP_NET_BIND_SERVICE),
	};

	set_xattr(path, "security.capability", &cap, sizeof(cap));
}

static void set_xattrs(const char *path, mode_t type)
{
	if (tree.no_xattr)
		return;
	if (once_in(20) && (type == S_IFREG || type == S_IFDIR)) {
		fill_bytes(tree.io, 900, tree.serial, 0);
		set_xattr(path, "user.note", tree.io, below(900));
		if (once_in(3))
			set_xattr(path, "user.empty", "", 0);
	}
	if (once_in(60))
		set_xattr(path, "trusted.note", "\0\1\2 binary", 10);
	if (once_in(100) && type == S_IFREG)
		set_capability(path);
	if (once_in(40) && type != S_IFLNK)
		set_acl(path, "system.posix_acl_access");
	if (once_in(8) && type == S_IFDIR)
		set_acl(path, "system.posix_acl_default");
}

static void set_attributes(const char *path, mode_t type)
{
	static const mode_t file_modes[] = { 0644, 0644, 0600, 0755,  0444,  0000,  0640,  0664,
					     0400, 0777, 0111, 04755, 02755, 06755, 01644, 02644 };
	static const mode_t dir_modes[] = {
		0755, 0755, 0700, 0775, 02775, 03777, 01777, 0555, 0000
	};

	if (once_in(3))
		set_owner(path);
	if (type == S_IFDIR)
		set_mode(path, dir_modes[below(ARRAY_SIZE(dir_modes))]);
	else if (type != S_IFLNK)
		set_mode(path, file_modes[below(ARRAY_SIZE(file_modes))]);
	/* An ACL changes the mode, and so has to come after it. */
	set_xattrs(path, type);
	set_times(path);
}

/* ---- objects ---------------------------------------------------------------- */

static void write_at(int fd, uint64_t offset, uint64_t size, uint64_t seed)
{
	size_t n;

	for (; size > 0; size -= n, offset += n) {
		n = size < IO_BYTES ? size : IO_BYTES;
		fill_bytes(tree.io, n, seed, offset);
		if (pwrite(fd, tree.io, n, (off_t)offset) != (ssize_t)n)
			die_errno("cannot write");
	}
}

static uint64_t random_size(void)
{
	if (once_in(LARGE_EVERY))
		return (uint64_t)1024 * 1024 * (1 + below(24)) + below(4096);
	switch (below(20)) {
	case 0:
	case 1:
		return 0;
	case 2:
		return 4096 * (1 + below(4)); /* whole blocks */
	case 3:
		return below(16 * 1024);
	case 4:
		return once_in(4) ? 16 * 1024 + below(100000) : below(16 * 1024);
	default:
		return 1 + below(4096);
	}
}

/* Holes at the start, in the middle, at the end, or nothing else. */
static void make_sparse(int fd)
{
	uint64_t block = 4096 * (1 + below(64)), seed = rng_next(&tree.rng);
	off_t size = (off_t)(block * (2 + below(20)) + below(5000));

	if (tree.big_sparse < BIG_SPARSE && once_in(20)) {
		tree.big_sparse++;
		size = 4 * GIB + (off_t)below((uint64_t)GIB / 16);
		write_at(fd, 4 * GIB - 4096, 8192 + below(4096), seed); /* over the border */
	}
	if (ftruncate(fd, size) < 0)
		die_errno("cannot make a file of %lld bytes", (long long)size);
	if (!once_in(4))
		write_at(fd, block * below(2), block / 2 + below(block / 2), seed);
	if (once_in(2))
		write_at(fd, (uint64_t)size - 1000, 1000, seed);
}

static void make_file(const char *path)
{
	int fd = openat(tree.root, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd < 0)
		die_errno("cannot create '%s'", escaped(path));
	if (once_in(80))
		make_sparse(fd);
	else
		write_at(fd, 0, random_size(), rng_next(&tree.rng));
	if (close(fd) < 0)
		die_errno("cannot close '%s'", escaped(path));
}

static void make_symlink(const char *path)
{
	char target[PATH_MAX];
	size_t n, i;

	switch (below(6)) {
	case 0:
		strcpy(target, "does/not/exist");
		break;
	case 1: /* as long as it can be */
		n = 200 + below(tree.symlink_max - 200);
		for (i = 0; i < n; i++)
			target[i] = i % 100 == 99 ? '/' : (char)('a' + i % 26);
		target[n] = '\0';
		break;
	case 2:
		strcpy(target, "\377\376\n not UTF-8 \001");
		break;
	case 3:
		snprintf(target, sizeof(target), "../%s", random_dir());
		break;
	case 4:
		strcpy(target, "/etc/passwd");
		break;
	default:
		snprintf(target, sizeof(target), "%s",
			 strrchr(path, '/') ? strrchr(path, '/') + 1 : path);
	}
	if (symlinkat(*target ? target : ".", tree.root, path) < 0)
		die_errno("cannot make the symlink '%s'", escaped(path));
}

static void make_special(const char *path, mode_t type, dev_t device)
{
	if (mknodat(tree.root, path, type | 0600, device) < 0)
		die_errno("cannot make the special file '%s'", escaped(path));
}

/* The next name of an open link group goes to @path. */
static bool make_link(const char *path)
{
	struct group *group;

	if (tree.group_count == 0)
		return false;
	group = &tree.groups[below(tree.group_count)];
	if (linkat(tree.root, group->path, tree.root, path, 0) < 0)
		die_errno("cannot link '%s'", escaped(path));
	if (--group->missing == 0) {
		free(group->path);
		*group = tree.groups[--tree.group_count];
	}
	return true;
}

static void start_group(const char *path)
{
	unsigned names = once_in(10) ? 2 + (unsigned)below(LINKS_MAX - 1) : 2 + (unsigned)below(3);

	if (tree.group_count == LINK_GROUPS_MAX)
		return;
	tree.groups[tree.group_count++] = (struct group){ xstrdup(path), names - 1 };
}

static dev_t random_device(void)
{
	return once_in(3) ? makedev(0, 0) : makedev(below(256), below(70000));
}

static mode_t make_object(const char *path)
{
	uint64_t kind = below(1000);

	if (kind < 30) {
		make_symlink(path);
		return S_IFLNK;
	}
	if (kind < 45) {
		static const mode_t types[] = { S_IFIFO, S_IFSOCK, S_IFCHR, S_IFBLK };
		mode_t type = types[below(ARRAY_SIZE(types))];

		make_special(path, type,
			     type == S_IFCHR || type == S_IFBLK ? random_device() : makedev(0, 0));
		return type;
	}
	make_file(path);
	return S_IFREG;
}

/* ---- the tree --------------------------------------------------------------- */

static void add_dir(char *path)
{
	if (mkdirat(tree.root, path, 0700) < 0)
		die_errno("cannot make the directory '%s'", escaped(path));
	tree.dir[tree.dir_count++] = path;
}

static void make_dirs(void)
{
	char name[NAME_MAX + 1];
	uint64_t deep = tree.dirs > 2 * DEEP_LEVELS ? DEEP_LEVELS : tree.dirs / 2, i;
	const char *parent;
	char *path;

	tree.dir = xcalloc(tree.dirs + 2, sizeof(*tree.dir));
	tree.dir[tree.dir_count++] = xstrdup("");
	if (tree.is_flat)
		add_dir(xstrdup("flat"));
	for (i = 0; i < deep; i++)
		add_dir(join(i == 0 ? "" : tree.dir[tree.dir_count - 1], i == 0 ? "deep" : "d"));
	while (i++ < tree.dirs) {
		do {
			parent = tree.dir[tree.dir_count - 1 -
					  below(tree.dir_count < WIDE_MAX ? tree.dir_count
									  : WIDE_MAX)];
		} while (strlen(parent) > PATH_MAX - 2 * NAME_MAX - 64);
		new_name(name);
		path = join(once_in(4) ? "" : parent, name);
		add_dir(path);
	}
}

static bool is_empty_dir(size_t index)
{
	return index % 23 == 22; /* some directories stay without files */
}

static const char *dir_of_next_file(bool is_link)
{
	size_t index;

	if (tree.is_flat && (!is_link || tree.dir_count == 2 || once_in(2)))
		return tree.dir[1];
	do {
		index = below(tree.dir_count);
	} while (is_empty_dir(index));
	return tree.dir[index];
}

static void make_files(void)
{
	char name[NAME_MAX + 1];
	uint64_t made;
	bool is_link;
	mode_t type;
	char *path;

	for (made = 0; made < tree.files; made++) {
		is_link = once_in(30) && tree.group_count > 0;
		new_name(name);
		path = join(dir_of_next_file(is_link), name);
		if (is_link && make_link(path)) {
			free(path);
			continue;
		}
		type = make_object(path);
		set_attributes(path, type);
		if (once_in(60))
			start_group(path);
		free(path);
	}
}

static void finish_dirs(void)
{
	size_t i;

	/* Owners and modes first: reaching a directory must not set the time of another. */
	for (i = tree.dir_count; i-- > 0;)
		set_attributes(*tree.dir[i] ? tree.dir[i] : ".", S_IFDIR);
	set_mode(".", 0755); /* others have to get in */
	for (i = 0; i < tree.dir_count; i++)
		free(tree.dir[i]);
	free(tree.dir);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "files", required_argument, NULL, 'f' },
		{ "dirs", required_argument, NULL, 'd' },
		{ "seed", required_argument, NULL, 's' },
		{ "flat", no_argument, NULL, 'F' },
		{ "no-negative-times", no_argument, NULL, 't' },
		{ "no-xattr", no_argument, NULL, 'x' },
		{ "symlink-max", required_argument, NULL, 'l' },
		{ 0 },
	};
	int option;

	tree.symlink_max = PATH_MAX - 1;
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 'f':
			tree.files = parse_number("--files", optarg);
			break;
		case 'd':
			tree.dirs = parse_number("--dirs", optarg);
			break;
		case 's':
			tree.rng.state = parse_number("--seed", optarg);
			break;
		case 'F':
			tree.is_flat = true;
			break;
		case 't':
			tree.no_negative_times = true;
			break;
		case 'x':
			tree.no_xattr = true;
			break;
		case 'l':
			tree.symlink_max = parse_number("--symlink-max", optarg);
			break;
		default:
			return TEST_TROUBLE;
		}
	}
	if (argc - optind != 1 || tree.symlink_max < 201 || tree.symlink_max >= PATH_MAX)
		die(TEST_TROUBLE, "usage: maketree DIR --files N --dirs M --seed S [--flat] "
				  "[--no-xattr] [--no-negative-times] [--symlink-max BYTES]");
	umask(0);
	tree.root = open(argv[optind], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (tree.root < 0)
		die_errno("cannot open '%s'", argv[optind]);

	make_dirs();
	make_files();
	finish_dirs();
	return 0;
}
