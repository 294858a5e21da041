/* SPDX-License-Identifier: Apache-2.0 */
/*
 * treecmp A B [--no-xattr] [--no-symlink-times] [--ignore PATTERN]: compares two trees, object by object, and
 * prints each difference. Shares no code with ferryfs, so that it can judge it.
 *
 * Compared: names as bytes, types, sizes, bytes (a hole and zeros are alike),
 * permission bits, owners, mtime in ns (of directories and symlinks too), device
 * numbers, symlink targets, xattrs with ACLs, and which names share an inode. Not
 * compared: atime, ctime, inode numbers, link counts, sizes of directories.
 *
 * With --no-xattr a mode is what remains of it where ACLs cannot be carried: its
 * group bits are those of the owning group, ANDed with the ACL's mask.
 *
 * The walk keeps its own stack, of directory descriptors, so that neither the depth
 * nor the length of a path is limited by anything but RLIMIT_NOFILE.
 */

#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <getopt.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tests/lib/testlib.h"

enum {
	CHUNK_BYTES = 256 * 1024,     /* compared at once */
	SEEK_BYTES_MIN = 1024 * 1024, /* files from this size: holes are skipped */
	XATTR_BYTES_MAX = 64 * 1024,  /* the kernel's limit for a value and for a list */
	NAME_BYTES_MAX = 256,
};

enum { A, B, SIDES };

struct names {
	char **name; /* sorted, owned */
	size_t count;
};

/* A pair of directories under way. */
struct level {
	int fd[SIDES];
	char *name;	  /* in the parent; owned */
	struct names sub; /* directories that both have */
	size_t next;	  /* of sub */
};

/* One direction of the pairing of inodes. */
struct link_slot {
	uint64_t dev, ino, other_dev, other_ino;
	bool is_used;
};

struct link_map {
	struct link_slot *slots;
	size_t count, capacity; /* capacity: a power of two */
};

static struct {
	bool no_xattr, no_symlink_times;
	const char *ignore;
	struct level *levels;
	size_t depth, levels_capacity;
	struct link_map links[SIDES];
	uint64_t objects, differences, bytes;
	unsigned char *chunk[SIDES];
	char *xattr_list[SIDES], *xattr_value[SIDES];
} cmp;

/* ---- reports --------------------------------------------------------------- */

/* Prints "path: what" of the entry @name of the directory on top of the stack. */
static void PRINTF_LIKE(2, 3) differ(const char *name, const char *format, ...)
{
	va_list args;
	size_t i;

	cmp.differences++;
	for (i = 1; i < cmp.depth; i++) {
		print_escaped(stdout, cmp.levels[i].name, strlen(cmp.levels[i].name));
		putchar('/');
	}
	print_escaped(stdout, name, strlen(name));
	fputs(": ", stdout);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
}

static const char *type_name(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
		return "file";
	case S_IFDIR:
		return "directory";
	case S_IFLNK:
		return "symlink";
	case S_IFIFO:
		return "fifo";
	case S_IFSOCK:
		return "socket";
	case S_IFCHR:
		return "character device";
	case S_IFBLK:
		return "block device";
	}
	return "unknown type";
}

/* ---- listings -------------------------------------------------------------- */

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void names_done(struct names *names)
{
	size_t i;

	for (i = 0; i < names->count; i++)
		free(names->name[i]);
	free(names->name);
	*names = (struct names){ 0 };
}

static void names_add(struct names *names, const char *name)
{
	if ((names->count & (names->count + 1)) == 0)
		names->name = xrealloc(names->name, (2 * names->count + 2) * sizeof(*names->name));
	names->name[names->count++] = xstrdup(name);
}

static struct names list(int dir_fd, bool is_root)
{
	struct names names = { 0 };
	struct dirent *entry;
	DIR *dir;
	int fd;

	fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOATIME);
	if (fd < 0)
		die_errno("cannot open a directory again");
	dir = fdopendir(fd);
	if (!dir)
		die_errno("fdopendir");
	for (errno = 0; (entry = readdir(dir)); errno = 0) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		if (is_root && cmp.ignore && fnmatch(cmp.ignore, entry->d_name, 0) == 0)
			continue;
		names_add(&names, entry->d_name);
	}
	if (errno)
		die_errno("cannot list a directory");
	closedir(dir);
	if (names.count > 1)
		qsort(names.name, names.count, sizeof(*names.name), compare_names);
	return names;
}

/* ---- link groups ------------------------------------------------------------ */

static struct link_slot *link_find(struct link_map *map, uint64_t dev, uint64_t ino)
{
	uint64_t key[2] = { dev, ino };
	size_t i;

	for (i = hash_bytes(key, sizeof(key)) & (map->capacity - 1); map->slots[i].is_used;
	     i = (i + 1) & (map->capacity - 1))
		if (map->slots[i].dev == dev && map->slots[i].ino == ino)
			break;
	return &map->slots[i];
}

static void link_grow(struct link_map *map)
{
	struct link_map bigger = { .capacity = map->capacity ? 2 * map->capacity : 1024 };
	size_t i;

	bigger.slots = xcalloc(bigger.capacity, sizeof(*bigger.slots));
	bigger.count = map->count;
	for (i = 0; i < map->capacity; i++)
		if (map->slots[i].is_used)
			*link_find(&bigger, map->slots[i].dev, map->slots[i].ino) = map->slots[i];
	free(map->slots);
	*map = bigger;
}

/* False if @from was paired with another inode than @to before. */
static bool link_pair(struct link_map *map, const struct stat *from, const struct stat *to)
{
	struct link_slot *slot;

	if (2 * map->count >= map->capacity)
		link_grow(map);
	slot = link_find(map, from->st_dev, from->st_ino);
	if (slot->is_used)
		return slot->other_dev == to->st_dev && slot->other_ino == to->st_ino;
	*slot = (struct link_slot){ from->st_dev, from->st_ino, to->st_dev, to->st_ino, true };
	map->count++;
	return true;
}

/* Each inode of A has to go with one of B, and the reverse. */
static void compare_links(const char *name, const struct stat st[SIDES])
{
	if (st[A].st_nlink < 2 && st[B].st_nlink < 2)
		return;
	if (!link_pair(&cmp.links[A], &st[A], &st[B]))
		differ(name, "names are one inode in A, but not in B");
	if (!link_pair(&cmp.links[B], &st[B], &st[A]))
		differ(name, "names are one inode in B, but not in A");
}

/* ---- bytes ------------------------------------------------------------------ */

static ssize_t read_full(int fd, unsigned char *buffer, size_t size, off_t offset)
{
	size_t done = 0;
	ssize_t n;

	while (done < size) {
		n = pread(fd, buffer + done, size - done, offset + (off_t)done);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

static off_t next_data(int fd, off_t offset, off_t size)
{
	off_t data = lseek(fd, offset, SEEK_DATA);

	if (data >= 0)
		return data;
	return errno == ENXIO ? size : offset;
}

/* The first chunk at or after @offset that is not a hole on both sides. */
static off_t skip_holes(const int fd[SIDES], off_t offset, off_t size)
{
	off_t data[SIDES];
	int side;

	if (size < SEEK_BYTES_MIN)
		return offset;
	for (side = A; side < SIDES; side++)
		data[side] = next_data(fd[side], offset, size);
	offset = data[A] < data[B] ? data[A] : data[B];
	return offset - offset % CHUNK_BYTES;
}

static void compare_open_files(const char *name, const int fd[SIDES], off_t size)
{
	ssize_t n[SIDES], i;
	off_t offset, skipped;
	int side;

	for (offset = 0; offset < size; offset += CHUNK_BYTES) {
		skipped = skip_holes(fd, offset, size);
		if (skipped > offset)
			offset = skipped;
		if (offset >= size)
			break;
		for (side = A; side < SIDES; side++) {
			n[side] = read_full(fd[side], cmp.chunk[side], CHUNK_BYTES, offset);
			if (n[side] < 0) {
				differ(name, "cannot read %c at %lld: %s", "AB"[side],
				       (long long)offset, strerror(errno));
				return;
			}
		}
		cmp.bytes += (uint64_t)n[A];
		if (n[A] == n[B] && memcmp(cmp.chunk[A], cmp.chunk[B], (size_t)n[A]) == 0)
			continue;
		for (i = 0; i < n[A] && i < n[B] && cmp.chunk[A][i] == cmp.chunk[B][i]; i++)
			;
		differ(name, "bytes differ, first at %lld of %lld", (long long)(offset + i),
		       (long long)size);
		return;
	}
}

static void compare_bytes(const char *name, const struct level *top, off_t size)
{
	int fd[SIDES] = { -1, -1 }, side;

	for (side = A; side < SIDES; side++) {
		fd[side] = openat(top->fd[side], name,
				  O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NOATIME | O_NONBLOCK);
		if (fd[side] < 0) {
			differ(name, "cannot open in %c: %s", "AB"[side], strerror(errno));
			break;
		}
	}
	if (side == SIDES)
		compare_open_files(name, fd, size);
	for (side = A; side < SIDES; side++)
		if (fd[side] >= 0)
			close(fd[side]);
}

/* ---- xattrs ----------------------------------------------------------------- */

/* A path that reaches an entry of any type, and does not follow it. */
static void entry_path(int dir_fd, const char *name, char path[static NAME_BYTES_MAX + 64])
{
	snprintf(path, NAME_BYTES_MAX + 64, "/proc/self/fd/%d/%s", dir_fd, name);
}

/* Labels that the machine's policy puts on what is created, not part of the data. */
static bool is_foreign_xattr(const char *name)
{
	return strcmp(name, "security.selinux") == 0 || strcmp(name, "security.ima") == 0 ||
	       strcmp(name, "security.evm") == 0;
}

static bool list_xattrs(const char *name, const char *path, int side, struct names *ret_names)
{
	char *list_bytes = cmp.xattr_list[side], *p;
	ssize_t size;

	*ret_names = (struct names){ 0 };
	size = llistxattr(path, list_bytes, XATTR_BYTES_MAX);
	if (size < 0 && (errno == EOPNOTSUPP || errno == ENOSYS))
		size = 0;
	if (size < 0) {
		differ(name, "cannot list xattrs in %c: %s", "AB"[side], strerror(errno));
		return false;
	}
	for (p = list_bytes; p < list_bytes + size; p += strlen(p) + 1)
		if (!is_foreign_xattr(p))
			names_add(ret_names, p);
	if (ret_names->count > 1)
		qsort(ret_names->name, ret_names->count, sizeof(char *), compare_names);
	return true;
}

static void compare_xattr_value(const char *name, char paths[SIDES][NAME_BYTES_MAX + 64],
				const char *xattr)
{
	ssize_t size[SIDES];
	int side;

	for (side = A; side < SIDES; side++) {
		size[side] = lgetxattr(paths[side], xattr, cmp.xattr_value[side], XATTR_BYTES_MAX);
		if (size[side] < 0) {
			differ(name, "cannot get xattr '%s' in %c: %s", escaped(xattr), "AB"[side],
			       strerror(errno));
			return;
		}
	}
	if (size[A] != size[B] ||
	    memcmp(cmp.xattr_value[A], cmp.xattr_value[B], (size_t)size[A]) != 0)
		differ(name, "xattr '%s' differs (%zd and %zd bytes)", escaped(xattr), size[A],
		       size[B]);
}

static void compare_xattrs(const char *name, const struct level *top)
{
	char paths[SIDES][NAME_BYTES_MAX + 64];
	struct names names[SIDES] = { 0 };
	size_t i[SIDES] = { 0 };
	int side, order;
	bool ok = true;

	for (side = A; side < SIDES; side++) {
		entry_path(top->fd[side], name, paths[side]);
		ok = list_xattrs(name, paths[side], side, &names[side]) && ok;
	}
	while (ok && (i[A] < names[A].count || i[B] < names[B].count)) {
		order = i[A] == names[A].count	 ? 1
			: i[B] == names[B].count ? -1
						 : strcmp(names[A].name[i[A]], names[B].name[i[B]]);
		if (order == 0)
			compare_xattr_value(name, paths, names[A].name[i[A]]);
		else
			differ(name, "xattr '%s' only in %c",
			       escaped(order < 0 ? names[A].name[i[A]] : names[B].name[i[B]]),
			       order < 0 ? 'A' : 'B');
		i[A] += order <= 0;
		i[B] += order >= 0;
	}
	names_done(&names[A]);
	names_done(&names[B]);
}

/* What @mode is worth once the ACL of the entry is dropped. */
static mode_t mode_without_acl(int dir_fd, const char *name, mode_t mode)
{
	const struct posix_acl_xattr_header *header = (void *)cmp.xattr_value[A];
	const struct posix_acl_xattr_entry *entry;
	char path[NAME_BYTES_MAX + 64];
	int group = -1, mask = 07;
	ssize_t size, at;

	if (S_ISLNK(mode))
		return mode;
	entry_path(dir_fd, name, path);
	size = lgetxattr(path, "system.posix_acl_access", cmp.xattr_value[A], XATTR_BYTES_MAX);
	for (at = (ssize_t)sizeof(*header); at + (ssize_t)sizeof(*entry) <= size;
	     at += (ssize_t)sizeof(*entry)) {
		entry = (void *)(cmp.xattr_value[A] + at);
		if (le16toh(entry->e_tag) == ACL_GROUP_OBJ)
			group = le16toh(entry->e_perm);
		if (le16toh(entry->e_tag) == ACL_MASK)
			mask = le16toh(entry->e_perm);
	}
	if (group < 0)
		return mode;
	return (mode & ~070u) | (mode_t)((group & mask & 07) << 3);
}

/* ---- objects ---------------------------------------------------------------- */

static void compare_symlinks(const char *name, const struct level *top)
{
	ssize_t n[SIDES];
	int side;

	for (side = A; side < SIDES; side++) {
		n[side] = readlinkat(top->fd[side], name, (char *)cmp.chunk[side], CHUNK_BYTES);
		if (n[side] < 0) {
			differ(name, "cannot read the symlink in %c: %s", "AB"[side],
			       strerror(errno));
			return;
		}
	}
	if (n[A] != n[B] || memcmp(cmp.chunk[A], cmp.chunk[B], (size_t)n[A]) != 0)
		differ(name, "symlinks point to different places");
}

static void compare_attributes(const char *name, const struct level *top,
			       const struct stat st[SIDES])
{
	mode_t mode[SIDES] = { st[A].st_mode, st[B].st_mode };
	int side;

	if (cmp.no_xattr && mode[A] != mode[B])
		for (side = A; side < SIDES; side++)
			mode[side] = mode_without_acl(top->fd[side], name, mode[side]);
	if (mode[A] != mode[B])
		differ(name, "mode %04o and %04o", mode[A] & 07777u, mode[B] & 07777u);
	if (st[A].st_uid != st[B].st_uid || st[A].st_gid != st[B].st_gid)
		differ(name, "owner %u:%u and %u:%u", st[A].st_uid, st[A].st_gid, st[B].st_uid,
		       st[B].st_gid);
	if (cmp.no_symlink_times && S_ISLNK(mode[A]))
		return;
	if (st[A].st_mtim.tv_sec != st[B].st_mtim.tv_sec ||
	    st[A].st_mtim.tv_nsec != st[B].st_mtim.tv_nsec)
		differ(name, "%s's mtime %lld.%09ld and %lld.%09ld", type_name(st[A].st_mode),
		       (long long)st[A].st_mtim.tv_sec, st[A].st_mtim.tv_nsec,
		       (long long)st[B].st_mtim.tv_sec, st[B].st_mtim.tv_nsec);
}

/* Compares the entry @name of the directories on top. True: both are directories. */
static bool compare_entry(const char *name)
{
	const struct level *top = &cmp.levels[cmp.depth - 1];
	struct stat st[SIDES];
	int side;

	cmp.objects++;
	for (side = A; side < SIDES; side++)
		if (fstatat(top->fd[side], name, &st[side], AT_SYMLINK_NOFOLLOW) < 0) {
			differ(name, "cannot stat in %c: %s", "AB"[side], strerror(errno));
			return false;
		}
	if ((st[A].st_mode & S_IFMT) != (st[B].st_mode & S_IFMT)) {
		differ(name, "%s in A, %s in B", type_name(st[A].st_mode),
		       type_name(st[B].st_mode));
		return false;
	}
	compare_attributes(name, top, st);
	if (!cmp.no_xattr)
		compare_xattrs(name, top);
	if (S_ISDIR(st[A].st_mode))
		return true;
	compare_links(name, st);
	if (S_ISLNK(st[A].st_mode))
		compare_symlinks(name, top);
	if ((S_ISCHR(st[A].st_mode) || S_ISBLK(st[A].st_mode)) && st[A].st_rdev != st[B].st_rdev)
		differ(name, "device %u:%u and %u:%u", major(st[A].st_rdev), minor(st[A].st_rdev),
		       major(st[B].st_rdev), minor(st[B].st_rdev));
	if (S_ISREG(st[A].st_mode) && st[A].st_size != st[B].st_size)
		differ(name, "size %lld and %lld", (long long)st[A].st_size,
		       (long long)st[B].st_size);
	else if (S_ISREG(st[A].st_mode) && st[A].st_size > 0)
		compare_bytes(name, top, st[A].st_size);
	return false;
}

/* ---- the walk --------------------------------------------------------------- */

/* Opens @name below the top as a new top. False: one side cannot be opened. */
static bool push(int fd_a, int fd_b, const char *name)
{
	static const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NOATIME;
	int parent[SIDES] = { fd_a, fd_b }, side;
	struct level level = { .fd = { -1, -1 } };

	for (side = A; side < SIDES; side++) {
		level.fd[side] = openat(parent[side], name, flags);
		if (level.fd[side] < 0 && (errno == EMFILE || errno == ENFILE))
			die_errno("too deep a tree");
		if (level.fd[side] < 0) {
			differ(name, "cannot open the directory in %c: %s", "AB"[side],
			       strerror(errno));
			if (side == B)
				close(level.fd[A]);
			return false;
		}
	}
	level.name = xstrdup(name);
	if (cmp.depth == cmp.levels_capacity) {
		cmp.levels_capacity = cmp.levels_capacity ? 2 * cmp.levels_capacity : 64;
		cmp.levels = xrealloc(cmp.levels, cmp.levels_capacity * sizeof(*cmp.levels));
	}
	cmp.levels[cmp.depth++] = level;
	return true;
}

static void pop(void)
{
	struct level *top = &cmp.levels[--cmp.depth];

	close(top->fd[A]);
	close(top->fd[B]);
	names_done(&top->sub);
	free(top->name);
}

/* Compares the entries of the directories on top, and notes which to enter. */
static void compare_entries(void)
{
	struct level *top = &cmp.levels[cmp.depth - 1];
	struct names names[SIDES];
	size_t i[SIDES] = { 0 };
	int order;

	names[A] = list(top->fd[A], cmp.depth == 1);
	names[B] = list(top->fd[B], cmp.depth == 1);
	while (i[A] < names[A].count || i[B] < names[B].count) {
		order = i[A] == names[A].count	 ? 1
			: i[B] == names[B].count ? -1
						 : strcmp(names[A].name[i[A]], names[B].name[i[B]]);
		if (order < 0)
			differ(names[A].name[i[A]], "only in A");
		else if (order > 0)
			differ(names[B].name[i[B]], "only in B");
		else if (compare_entry(names[A].name[i[A]]))
			names_add(&top->sub, names[A].name[i[A]]);
		i[A] += order <= 0;
		i[B] += order >= 0;
	}
	names_done(&names[A]);
	names_done(&names[B]);
}

static void walk(void)
{
	struct level *top;

	while (cmp.depth > 0) {
		top = &cmp.levels[cmp.depth - 1];
		if (top->next == top->sub.count) {
			pop();
			continue;
		}
		if (push(top->fd[A], top->fd[B], top->sub.name[top->next++]))
			compare_entries();
	}
}

static int open_root(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		die_errno("cannot open '%s'", path);
	return fd;
}

static void setup(void)
{
	struct rlimit files;
	int side;

	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &files); /* it only limits the depth */
	}
	for (side = A; side < SIDES; side++) {
		cmp.chunk[side] = xcalloc(1, CHUNK_BYTES);
		cmp.xattr_list[side] = xcalloc(1, XATTR_BYTES_MAX);
		cmp.xattr_value[side] = xcalloc(1, XATTR_BYTES_MAX);
	}
}

static void compare_trees(const char *path_a, const char *path_b)
{
	int root[SIDES] = { open_root(path_a), open_root(path_b) };

	if (!push(root[A], root[B], "."))
		die(TEST_TROUBLE, "cannot enter the roots");
	(void)compare_entry("."); /* the roots themselves */
	compare_entries();
	walk();
	close(root[A]);
	close(root[B]);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "no-xattr", no_argument, NULL, 'x' },
		{ "no-symlink-times", no_argument, NULL, 't' },
		{ "ignore", required_argument, NULL, 'i' },
		{ 0 },
	};
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option == 'x')
			cmp.no_xattr = true;
		else if (option == 't')
			cmp.no_symlink_times = true;
		else if (option == 'i')
			cmp.ignore = optarg;
		else
			return TEST_TROUBLE;
	}
	if (argc - optind != 2)
		die(TEST_TROUBLE, "usage: treecmp A B [--no-xattr] [--no-symlink-times] "
				  "[--ignore PATTERN]");

	setup();
	compare_trees(argv[optind], argv[optind + 1]);
	printf("%llu objects and %llu bytes compared, %llu differences\n",
	       (unsigned long long)cmp.objects, (unsigned long long)cmp.bytes,
	       (unsigned long long)cmp.differences);
	return cmp.differences > 0;
}
