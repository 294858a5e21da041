/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/store_conformance.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cmocka.h>

#include "util/cleanup.h"

struct fixture {
	struct store *store;
	const struct store_caps *caps;
	struct locator dir; /* the case's own */
};

static struct store *tested_store;
static unsigned case_number;

static const struct store_new a_file = { .mode = S_IFREG | 0644 };
static const struct store_new a_dir = { .mode = S_IFDIR | 0755 };

/* ---- helpers ------------------------------------------------------------- */

struct locator make_dir(struct store *store, const struct locator *dir, const char *name)
{
	struct locator locator;
	struct store_attr attr;

	assert_int_equal(store_create(store, dir, name, &a_dir, &locator, &attr), 0);
	return locator;
}

struct locator make_file(struct store *store, const struct locator *dir, const char *name,
			 const void *data, size_t size)
{
	struct locator locator;
	struct store_attr attr;
	struct store_file *file;

	assert_int_equal(store_create(store, dir, name, &a_file, &locator, &attr), 0);
	if (size == 0)
		return locator;
	assert_int_equal(store_open(store, &locator, STORE_OPEN_WRITE, &file), 0);
	assert_int_equal(store_write(file, data, size, 0, /* is_stable= */ true), 0);
	store_file_close(file);
	return locator;
}

struct store_attr attr_of(struct store *store, const struct locator *object)
{
	struct store_attr attr;

	assert_int_equal(store_getattr(store, object, &attr), 0);
	return attr;
}

bool has_name(struct store *store, const struct locator *dir, const char *name)
{
	struct locator locator;
	struct store_attr attr;
	int r = store_lookup(store, dir, name, &locator, &attr);

	assert_true(r == 0 || r == -ENOENT);
	return r == 0;
}

/* Removes what @dir holds. Returns the name of a directory in it that is not empty
 * (owned by the caller), or NULL. */
static char *remove_entries(struct store *store, const struct locator *dir)
{
	struct store_dir *stream;
	struct store_entry entry;
	char *left = NULL;
	int r;

	assert_int_equal(store_dir_open(store, dir, &stream), 0);
	while ((r = store_dir_next(stream, &entry)) == 0 && !left) {
		r = store_unlink(store, dir, entry.name);
		if (r < 0)
			r = store_rmdir(store, dir, entry.name);
		if (r == -ENOTEMPTY || r == -EEXIST)
			left = strdup(entry.name);
	}
	store_dir_close(stream);
	return left;
}

void remove_tree(struct store *store, const struct locator *dir, const char *name)
{
	struct locator path[16]; /* depth of what the cases make */
	struct store_attr attr;
	unsigned depth = 0;
	char *left;

	while (has_name(store, dir, name)) {
		if (store_unlink(store, dir, name) == 0)
			return;
		/* Down to a directory without directories, then again from the top. */
		assert_int_equal(store_lookup(store, dir, name, &path[0], &attr), 0);
		for (depth = 0; (left = remove_entries(store, &path[depth])); depth++) {
			assert_in_range(depth, 0, 14);
			assert_int_equal(store_lookup(store, &path[depth], left, &path[depth + 1],
						      &attr),
					 0);
			free(left);
		}
		if (store_rmdir(store, dir, name) == 0)
			return;
		/* Not empty yet: next round. */
	}
}

static int set_up(void **state)
{
	struct fixture *fixture = calloc(1, sizeof(*fixture));
	struct locator root;
	char name[32];

	assert_non_null(fixture);
	fixture->store = tested_store;
	fixture->caps = store_caps(tested_store);
	(void)snprintf(name, sizeof(name), "conformance-%u", ++case_number);
	store_root(tested_store, &root);
	remove_tree(tested_store, &root, name);
	fixture->dir = make_dir(tested_store, &root, name);
	*state = fixture;
	return 0;
}

static int tear_down(void **state)
{
	struct locator root;
	char name[32];

	(void)snprintf(name, sizeof(name), "conformance-%u", case_number);
	store_root(tested_store, &root);
	remove_tree(tested_store, &root, name);
	free(*state);
	return 0;
}

static struct store_file *open_file(struct fixture *f, const struct locator *object, unsigned flags)
{
	struct store_file *file;

	assert_int_equal(store_open(f->store, object, flags, &file), 0);
	return file;
}

static void assert_content(struct fixture *f, const struct locator *object, const char *content)
{
	struct store_file *file = open_file(f, object, STORE_OPEN_READ);
	size_t size = strlen(content);
	char *found = malloc(size + 1);

	assert_non_null(found);
	assert_int_equal(store_read(file, found, size + 1, 0), size);
	assert_memory_equal(found, content, size);
	free(found);
	store_file_close(file);
}

static int create(struct fixture *f, const char *name, const struct store_new *new)
{
	struct locator locator;
	struct store_attr attr;

	return store_create(f->store, &f->dir, name, new, &locator, &attr);
}

static int rename_here(struct fixture *f, const char *old_name, const char *new_name,
		       unsigned flags)
{
	return store_rename(f->store, &f->dir, old_name, &f->dir, new_name, flags);
}

/* ---- finding ------------------------------------------------------------- */

static void root_is_a_directory(void **state)
{
	struct fixture *f = *state;
	struct locator root;

	store_root(f->store, &root);
	assert_true(S_ISDIR(attr_of(f->store, &root).mode));
	assert_true(strlen(store_identity(f->store)) > 0);
}

static void lookup_finds_what_create_made(void **state)
{
	struct fixture *f = *state;
	struct locator made, found;
	struct store_attr made_attr, attr;

	assert_int_equal(store_create(f->store, &f->dir, "a", &a_file, &made, &made_attr), 0);
	assert_int_equal(store_lookup(f->store, &f->dir, "a", &found, &attr), 0);
	assert_true(locator_equal(&made, &found));
	assert_int_equal(made_attr.ino, attr.ino);
	assert_int_equal(attr.mode, S_IFREG | 0644);
	assert_int_equal(attr.nlink, 1);
	assert_int_equal(attr.size, 0);
}

static void lookup_of_missing_name_is_enoent(void **state)
{
	struct fixture *f = *state;
	struct locator locator = { .length = 1 };
	struct store_attr attr;

	assert_int_equal(store_lookup(f->store, &f->dir, "none", &locator, &attr), -ENOENT);
	assert_int_equal(locator.length, 1); /* untouched */
}

static void lookup_in_a_file_is_enotdir(void **state)
{
	struct fixture *f = *state;
	struct locator file = make_file(f->store, &f->dir, "file", NULL, 0), locator;
	struct store_attr attr;
	struct store_dir *stream;

	assert_int_equal(store_lookup(f->store, &file, "x", &locator, &attr), -ENOTDIR);
	assert_int_equal(store_create(f->store, &file, "x", &a_file, &locator, &attr), -ENOTDIR);
	assert_int_equal(store_dir_open(f->store, &file, &stream), -ENOTDIR);
}

static void names_are_bytes(void **state)
{
	static const char *const names[] = {
		"new\nline", " ",	"\xff\xfe\x80", "a\tb",		"*",	"-rf",	    "\\",
		"...",	     ".hidden", "caf\xc3\xa9",	"cafe\xcc\x81", "\x01", "'\"`$(x)",
	};
	struct fixture *f = *state;
	struct store_dir *stream;
	struct store_entry entry;
	size_t found = 0;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		assert_int_equal(create(f, names[i], &a_file), 0);
		assert_int_equal(create(f, names[i], &a_file), -EEXIST);
	}
	assert_int_equal(store_dir_open(f->store, &f->dir, &stream), 0);
	while (store_dir_next(stream, &entry) == 0)
		for (size_t i = 0; i < ARRAY_SIZE(names); i++)
			found += strcmp(entry.name, names[i]) == 0;
	store_dir_close(stream);
	assert_int_equal(found, ARRAY_SIZE(names));
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		assert_int_equal(store_unlink(f->store, &f->dir, names[i]), 0);
}

static void names_have_up_to_255_bytes(void **state)
{
	struct fixture *f = *state;
	char name[258] = { 0 };

	memset(name, 'n', 255);
	assert_int_equal(create(f, name, &a_file), 0);
	assert_true(has_name(f->store, &f->dir, name));
	name[255] = 'n';
	assert_int_equal(create(f, name, &a_file), -ENAMETOOLONG);
}

/* ---- creating ------------------------------------------------------------ */

static const struct store_new all_types[] = {
	{ .mode = S_IFREG | 06751, .uid = 1234, .gid = 5678 },
	{ .mode = S_IFREG | 0666, .uid = 0, .gid = 0 },
	{ .mode = S_IFREG | 0000, .uid = 1234, .gid = 5678 },
	{ .mode = S_IFDIR | 03777, .uid = 1234, .gid = 5678 },
	{ .mode = S_IFDIR | 0700, .uid = 1234, .gid = 5678 },
	{ .mode = S_IFLNK | 0777, .uid = 1234, .gid = 5678, .link_target = "../to\nwhere \xff" },
	{ .mode = S_IFIFO | 0622, .uid = 1234, .gid = 5678 },
	{ .mode = S_IFSOCK | 0777, .uid = 1234, .gid = 5678 },
	{ .mode = S_IFCHR | 0660, .uid = 1234, .gid = 5678, .rdev = 0x103 },	  /* 1:3 */
	{ .mode = S_IFBLK | 0606, .uid = 1234, .gid = 5678, .rdev = 0x11110370 }, /* 259:70000 */
};

static void assert_exact(struct fixture *f, const char *name, const struct store_new *new)
{
	struct locator locator, found;
	struct store_attr attr, found_attr;

	assert_int_equal(store_create(f->store, &f->dir, name, new, &locator, &attr), 0);
	assert_int_equal(store_lookup(f->store, &f->dir, name, &found, &found_attr), 0);
	assert_true(locator_equal(&locator, &found));
	assert_int_equal(found_attr.mode, attr.mode);
	assert_int_equal(attr.mode & S_IFMT, new->mode &S_IFMT);
	if (!S_ISLNK(new->mode))
		assert_int_equal(attr.mode, new->mode);
	assert_int_equal(attr.uid, new->uid);
	assert_int_equal(attr.gid, new->gid);
	assert_int_equal(found_attr.uid, new->uid);
	assert_int_equal(found_attr.gid, new->gid);
	if (S_ISCHR(new->mode) || S_ISBLK(new->mode))
		assert_int_equal(attr.rdev, new->rdev);
}

static void create_gives_exact_owner_and_mode(void **state)
{
	struct fixture *f = *state;
	mode_t old_umask = umask(077);
	char name[8];

	for (size_t i = 0; i < ARRAY_SIZE(all_types); i++) {
		(void)snprintf(name, sizeof(name), "%zu", i);
		assert_exact(f, name, &all_types[i]);
	}
	umask(old_umask);
}

static void create_is_exact_in_a_setgid_directory(void **state)
{
	const struct store_setattr set = { .valid = STORE_SET_MODE | STORE_SET_GID,
					   .mode = 02775,
					   .gid = 77 };
	struct fixture *f = *state;
	char name[8];

	assert_int_equal(store_setattr(f->store, &f->dir, &set, NULL), 0);
	for (size_t i = 0; i < ARRAY_SIZE(all_types); i++) {
		(void)snprintf(name, sizeof(name), "%zu", i);
		assert_exact(f, name, &all_types[i]);
	}
}

static const uint8_t an_acl[] = {
	2,    0, 0, 0,			       /* version */
	0x01, 0, 7, 0, 0xff, 0xff, 0xff, 0xff, /* owner rwx */
	0x02, 0, 7, 0, 0x31, 0xd4, 0,	 0,    /* user 54321 rwx */
	0x04, 0, 5, 0, 0xff, 0xff, 0xff, 0xff, /* group r-x */
	0x10, 0, 7, 0, 0xff, 0xff, 0xff, 0xff, /* mask rwx */
	0x20, 0, 5, 0, 0xff, 0xff, 0xff, 0xff, /* others r-x */
};

static void create_inherits_no_default_acl(void **state)
{
	struct fixture *f = *state;
	struct locator locator;
	struct store_attr attr;
	char name[8];

	if (!f->caps->has_acl)
		skip();
	assert_int_equal(store_setxattr(f->store, &f->dir, "system.posix_acl_default", an_acl,
					sizeof(an_acl), 0),
			 0);
	for (size_t i = 0; i < ARRAY_SIZE(all_types); i++) {
		(void)snprintf(name, sizeof(name), "%zu", i);
		assert_exact(f, name, &all_types[i]);
		if (S_ISLNK(all_types[i].mode))
			continue;
		assert_int_equal(store_lookup(f->store, &f->dir, name, &locator, &attr), 0);
		assert_int_equal(store_getxattr(f->store, &locator, "system.posix_acl_access", NULL,
						0),
				 -ENODATA);
		if (S_ISDIR(attr.mode))
			assert_int_equal(store_getxattr(f->store, &locator,
							"system.posix_acl_default", NULL, 0),
					 -ENODATA);
	}
}

static void create_never_replaces(void **state)
{
	struct fixture *f = *state;
	struct locator file = make_file(f->store, &f->dir, "file", "keep", 4);

	assert_int_equal(create(f, "dir", &a_dir), 0);
	for (size_t i = 0; i < ARRAY_SIZE(all_types); i++) {
		assert_int_equal(create(f, "file", &all_types[i]), -EEXIST);
		assert_int_equal(create(f, "dir", &all_types[i]), -EEXIST);
	}
	assert_content(f, &file, "keep");
	assert_int_equal(attr_of(f->store, &file).mode, S_IFREG | 0644);
}

static void create_as_a_client_follows_its_rules(void **state)
{
	const uint32_t groups[] = { 2001, 2002 };
	const struct store_cred cred = {
		.uid = 1001, .gid = 2001, .umask = 027, .group_count = 2, .groups = groups
	};
	const struct store_new file = { .mode = S_IFREG | 0666, .cred = &cred };
	const struct store_new dir = { .mode = S_IFDIR | 0777, .cred = &cred };
	const struct store_new fifo = { .mode = S_IFIFO | 0666, .cred = &cred };
	const struct store_new symlink = { .mode = S_IFLNK | 0777,
					   .link_target = "t",
					   .cred = &cred };
	const struct store_setattr open_dir = { .valid = STORE_SET_MODE, .mode = 0777 };
	const struct store_setattr setgid = { .valid = STORE_SET_MODE | STORE_SET_GID,
					      .mode = 02777,
					      .gid = 2002 };
	struct fixture *f = *state;
	struct locator locator;
	struct store_attr attr;

	assert_int_equal(store_setattr(f->store, &f->dir, &open_dir, NULL), 0);
	assert_int_equal(store_create(f->store, &f->dir, "file", &file, &locator, &attr), 0);
	assert_int_equal(attr.mode, S_IFREG | 0640);
	assert_int_equal(attr.uid, 1001);
	assert_int_equal(attr.gid, 2001);
	assert_int_equal(store_create(f->store, &f->dir, "dir", &dir, &locator, &attr), 0);
	assert_int_equal(attr.mode, S_IFDIR | 0750);
	assert_int_equal(attr.uid, 1001);
	assert_int_equal(store_create(f->store, &f->dir, "fifo", &fifo, &locator, &attr), 0);
	assert_int_equal(attr.mode, S_IFIFO | 0640);
	assert_int_equal(store_create(f->store, &f->dir, "symlink", &symlink, &locator, &attr), 0);
	assert_int_equal(attr.uid, 1001);
	assert_int_equal(store_create(f->store, &f->dir, "file", &file, &locator, &attr), -EEXIST);

	assert_int_equal(store_setattr(f->store, &f->dir, &setgid, NULL), 0);
	assert_int_equal(store_create(f->store, &f->dir, "g-file", &file, &locator, &attr), 0);
	assert_int_equal(attr.gid, 2002);
	assert_int_equal(store_create(f->store, &f->dir, "g-dir", &dir, &locator, &attr), 0);
	assert_int_equal(attr.gid, 2002);
	assert_int_equal(attr.mode, S_IFDIR | 02750);

	/* The thread is root again, with its own umask. */
	assert_int_equal(create(f, "roots", &a_dir), 0);
	assert_int_equal(geteuid(), 0);
}

static void tmpfile_lives_without_a_name_until_linked(void **state)
{
	const struct store_new new = { .mode = S_IFREG | 0751, .uid = 1234, .gid = 5678 };
	struct fixture *f = *state;
	struct locator locator;
	struct store_attr attr;
	struct store_file *file;
	int r;

	r = store_tmpfile(f->store, &f->dir, &new, /* is_linkable= */ true, &locator, &attr, &file);
	if (!f->caps->has_tmpfile) {
		assert_int_equal(r, -EOPNOTSUPP);
		return;
	}
	assert_int_equal(r, 0);
	assert_int_equal(attr.mode, S_IFREG | 0751);
	assert_int_equal(attr.uid, 1234);
	assert_int_equal(attr.nlink, 0);
	assert_int_equal(store_write(file, "hello", 5, 0, false), 0);
	assert_int_equal(attr_of(f->store, &locator).size, 5);
	assert_int_equal(store_link(f->store, &locator, &f->dir, "linked"), 0);
	store_file_close(file);
	assert_content(f, &locator, "hello");
	assert_int_equal(attr_of(f->store, &locator).nlink, 1);

	assert_int_equal(store_tmpfile(f->store, &f->dir, &new, /* is_linkable= */ false, &locator,
				       &attr, &file),
			 0);
	assert_int_equal(store_link(f->store, &locator, &f->dir, "never"), -ENOENT);
	store_file_close(file);
	assert_int_equal(store_getattr(f->store, &locator, &attr), -ESTALE);
}

/* ---- locators ------------------------------------------------------------ */

static void locator_survives_renames(void **state)
{
	struct fixture *f = *state;
	struct locator dir = make_dir(f->store, &f->dir, "dir");
	struct locator other = make_dir(f->store, &f->dir, "other");
	struct locator file = make_file(f->store, &dir, "file", "x", 1), found;
	struct store_attr attr;

	assert_int_equal(store_rename(f->store, &f->dir, "dir", &other, "moved", 0), 0);
	assert_int_equal(store_rename(f->store, &dir, "file", &f->dir, "file", 0), 0);
	assert_content(f, &file, "x");
	assert_int_equal(store_lookup(f->store, &other, "moved", &found, &attr), 0);
	assert_true(locator_equal(&found, &dir));
	assert_int_equal(store_lookup(f->store, &f->dir, "file", &found, &attr), 0);
	assert_true(locator_equal(&found, &file));
}

/* Where an open costs no call it is the first use that fails. */
static void assert_open_is_stale(struct fixture *f, const struct locator *object, mode_t mode)
{
	struct store_file *file;
	struct store_attr attr;
	int r = store_open(f->store, object, STORE_OPEN_READ, &file);

	if (f->caps->is_local) {
		assert_int_equal(r, -ESTALE);
		return;
	}
	if (r < 0) {
		assert_true(r == -ESTALE || (r == -EINVAL && !S_ISREG(mode)));
		return;
	}
	assert_int_equal(store_file_getattr(file, &attr), -ESTALE);
	store_file_close(file);
}

static void locator_of_removed_object_is_stale(void **state)
{
	const struct store_setattr set = { .valid = STORE_SET_MODE, .mode = 0600 };
	struct fixture *f = *state;
	struct store_attr attr;
	struct locator old, again;

	for (size_t i = 0; i < ARRAY_SIZE(all_types); i++) {
		const struct store_new *new = &all_types[i];

		assert_int_equal(store_create(f->store, &f->dir, "x", new, &old, &attr), 0);
		if (S_ISDIR(new->mode))
			assert_int_equal(store_rmdir(f->store, &f->dir, "x"), 0);
		else
			assert_int_equal(store_unlink(f->store, &f->dir, "x"), 0);
		assert_int_equal(store_getattr(f->store, &old, &attr), -ESTALE);
		assert_int_equal(store_setattr(f->store, &old, &set, NULL), -ESTALE);
		assert_open_is_stale(f, &old, new->mode);
		/* A new object of that name, and perhaps that inode number, is another. */
		assert_int_equal(store_create(f->store, &f->dir, "x", new, &again, &attr), 0);
		assert_false(locator_equal(&old, &again));
		assert_int_equal(store_getattr(f->store, &old, &attr), -ESTALE);
		remove_tree(f->store, &f->dir, "x");
	}
}

/* Also where the store has the directory open itself. */
static void removed_directory_is_stale_to_all(void **state)
{
	struct fixture *f = *state;
	struct locator dir = make_dir(f->store, &f->dir, "dir"), locator;
	struct locator file = make_file(f->store, &f->dir, "file", NULL, 0);
	const struct store_setattr set = { .valid = STORE_SET_MODE, .mode = 0700 };
	struct store_attr attr;
	struct store_dir *stream;

	make_file(f->store, &dir, "x", NULL, 0);
	assert_int_equal(store_unlink(f->store, &dir, "x"), 0);
	assert_int_equal(store_rmdir(f->store, &f->dir, "dir"), 0);
	assert_int_equal(store_lookup(f->store, &dir, "x", &locator, &attr), -ESTALE);
	assert_int_equal(store_create(f->store, &dir, "x", &a_file, &locator, &attr), -ESTALE);
	assert_int_equal(store_create(f->store, &dir, "x", &a_dir, &locator, &attr), -ESTALE);
	assert_int_equal(store_unlink(f->store, &dir, "x"), -ESTALE);
	assert_int_equal(store_rmdir(f->store, &dir, "x"), -ESTALE);
	assert_int_equal(store_link(f->store, &file, &dir, "x"), -ESTALE);
	assert_int_equal(store_rename(f->store, &f->dir, "file", &dir, "x", 0), -ESTALE);
	assert_int_equal(store_rename(f->store, &dir, "x", &f->dir, "y", 0), -ESTALE);
	assert_int_equal(store_setattr(f->store, &dir, &set, NULL), -ESTALE);
	assert_int_equal(store_getattr(f->store, &dir, &attr), -ESTALE);
	assert_int_equal(store_dir_open(f->store, &dir, &stream), -ESTALE);
}

/* ---- attributes ---------------------------------------------------------- */

/* @time as the store keeps it. */
static struct timespec rounded(struct fixture *f, struct timespec time)
{
	time.tv_nsec -= time.tv_nsec % (long)f->caps->time_granularity_ns;
	return time;
}

static void assert_time(struct fixture *f, struct timespec found, struct timespec set)
{
	assert_int_equal(found.tv_sec, rounded(f, set).tv_sec);
	assert_int_equal(found.tv_nsec, rounded(f, set).tv_nsec);
}

static void setattr_sets_all_and_keeps_suid(void **state)
{
	const struct store_setattr set = {
		.valid = STORE_SET_SIZE | STORE_SET_UID | STORE_SET_GID | STORE_SET_MODE |
			 STORE_SET_ATIME | STORE_SET_MTIME,
		.size = 12345,
		.uid = 1234,
		.gid = 5678,
		.mode = 06775,
		.atime = { 1111111111, 123456789 },
		.mtime = { 999999999, 987654321 },
	};
	struct fixture *f = *state;
	struct locator file = make_file(f->store, &f->dir, "file", "x", 1);
	struct store_attr attr;
	struct store_file *open;

	assert_int_equal(store_setattr(f->store, &file, &set, &attr), 0);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(attr.size, 12345);
		assert_int_equal(attr.uid, 1234);
		assert_int_equal(attr.gid, 5678);
		assert_int_equal(attr.mode, S_IFREG | 06775);
		assert_time(f, attr.atime, set.atime);
		assert_time(f, attr.mtime, set.mtime);
		if (i == 0) {
			attr = attr_of(f->store, &file);
			continue;
		}
		open = open_file(f, &file, STORE_OPEN_WRITE);
		assert_int_equal(store_write(open, "y", 1, 0, true), 0); /* changes times */
		assert_int_equal(store_file_setattr(open, &set, &attr), 0);
		store_file_close(open);
	}
}

static void setattr_sets_one_and_leaves_the_rest(void **state)
{
	struct fixture *f = *state;
	struct locator file = make_file(f->store, &f->dir, "file", "12345", 5);
	const struct store_setattr times = { .valid = STORE_SET_ATIME | STORE_SET_MTIME,
					     .atime = { 1000, 0 },
					     .mtime = { 2000, 0 } };
	struct store_setattr set = { .valid = STORE_SET_MODE, .mode = 0600 };
	struct store_attr attr;

	assert_int_equal(store_setattr(f->store, &file, &times, NULL), 0);
	assert_int_equal(store_setattr(f->store, &file, &set, &attr), 0);
	assert_int_equal(attr.mode, S_IFREG | 0600);
	assert_int_equal(attr.mtime.tv_sec, 2000);

	set = (struct store_setattr){ .valid = STORE_SET_GID, .gid = 99 };
	assert_int_equal(store_setattr(f->store, &file, &set, &attr), 0);
	assert_int_equal(attr.gid, 99);
	assert_int_equal(attr.uid, 0);

	set = (struct store_setattr){ .valid = STORE_SET_MTIME, .mtime = { 3000, 0 } };
	assert_int_equal(store_setattr(f->store, &file, &set, &attr), 0);
	assert_int_equal(attr.mtime.tv_sec, 3000);
	assert_int_equal(attr.atime.tv_sec, 1000);

	set = (struct store_setattr){ .valid = STORE_SET_ATIME_NOW };
	assert_int_equal(store_setattr(f->store, &file, &set, &attr), 0);
	assert_true(attr.atime.tv_sec > 1000000000);
	assert_int_equal(attr.mtime.tv_sec, 3000);

	set = (struct store_setattr){ .valid = STORE_SET_SIZE, .size = 2 };
	assert_int_equal(store_setattr(f->store, &file, &set, &attr), 0);
	assert_int_equal(attr.size, 2);
	assert_content(f, &file, "12");
	assert_int_equal(store_setattr(f->store, &f->dir, &set, NULL), -EISDIR);
}

static void setattr_works_on_every_type(void **state)
{
	struct store_setattr set = {
		.valid = STORE_SET_UID | STORE_SET_GID | STORE_SET_MODE | STORE_SET_ATIME |
			 STORE_SET_MTIME,
		.uid = 4321,
		.gid = 8765,
		.mode = 0640,
		.atime = { 1500000000, 1000 },
		.mtime = { 1400000000, 2000 },
	};
	struct fixture *f = *state;
	struct locator locator;
	struct store_attr attr;
	char name[8];

	for (size_t i = 0; i < ARRAY_SIZE(all_types); i++) {
		(void)snprintf(name, sizeof(name), "%zu", i);
		assert_int_equal(
			store_create(f->store, &f->dir, name, &all_types[i], &locator, &attr), 0);
		assert_int_equal(store_setattr(f->store, &locator, &set, &attr), 0);
		assert_int_equal(attr.uid, 4321);
		assert_int_equal(attr.gid, 8765);
		if (!S_ISLNK(attr.mode)) /* there is no mode to set */
			assert_int_equal(attr.mode & 07777, 0640);
		if (S_ISLNK(attr.mode) && !f->caps->has_symlink_times)
			continue;
		assert_time(f, attr.atime, set.atime);
		assert_time(f, attr.mtime, set.mtime);
	}
}

static void symlinks_are_never_followed(void **state)
{
	const struct store_new link_to_file = { .mode = S_IFLNK, .link_target = "file" };
	const struct store_new link_to_dir = { .mode = S_IFLNK, .link_target = "dir" };
	const struct store_setattr set = { .valid =
						   STORE_SET_UID | STORE_SET_MODE | STORE_SET_MTIME,
					   .uid = 7,
					   .mode = 0600,
					   .mtime = { 5, 0 } };
	struct fixture *f = *state;
	struct locator file = make_file(f->store, &f->dir, "file", "x", 1), symlink, found;
	struct store_attr attr;
	struct store_file *open;
	struct store_dir *stream;
	char target[16];

	make_dir(f->store, &f->dir, "dir");
	assert_int_equal(store_create(f->store, &f->dir, "l", &link_to_file, &symlink, &attr), 0);
	assert_true(S_ISLNK(attr.mode));
	assert_int_equal(store_readlink(f->store, &symlink, target, sizeof(target)), 0);
	assert_string_equal(target, "file");
	assert_int_equal(store_readlink(f->store, &symlink, target, 5), 0);
	assert_int_equal(store_readlink(f->store, &symlink, target, 4), -ERANGE);
	assert_int_equal(store_readlink(f->store, &file, target, sizeof(target)), -EINVAL);
	assert_int_equal(store_open(f->store, &symlink, STORE_OPEN_READ, &open), -EINVAL);
	assert_int_equal(store_setattr(f->store, &symlink, &set, NULL), 0);
	assert_int_equal(attr_of(f->store, &file).uid, 0);
	assert_int_equal(attr_of(f->store, &file).mode, S_IFREG | 0644);
	assert_int_not_equal(attr_of(f->store, &file).mtime.tv_sec, 5);
	assert_int_equal(store_link(f->store, &symlink, &f->dir, "l2"), 0);
	assert_int_equal(store_lookup(f->store, &f->dir, "l2", &found, &attr), 0);
	assert_true(locator_equal(&found, &symlink));

	assert_int_equal(store_create(f->store, &f->dir, "ld", &link_to_dir, &symlink, &attr), 0);
	assert_int_equal(store_lookup(f->store, &symlink, "x", &found, &attr), -ENOTDIR);
	assert_int_equal(store_dir_open(f->store, &symlink, &stream), -ENOTDIR);
	assert_int_equal(store_unlink(f->store, &f->dir, "ld"), 0);
	assert_true(has_name(f->store, &f->dir, "dir"));
}

static void readlink_gives_long_targets(void **state)
{
	char target[4000], found[4096];
	const struct store_new new = { .mode = S_IFLNK, .link_target = target };
	struct fixture *f = *state;
	struct locator locator;
	struct store_attr attr;
	int r;

	memset(target, 't', sizeof(target) - 1);
	target[sizeof(target) - 1] = '\0';
	r = store_create(f->store, &f->dir, "l", &new, &locator, &attr);
	if (r == -ENAMETOOLONG)
		skip(); /* the file system's own bound */
	assert_int_equal(r, 0);
	assert_int_equal(attr.size, strlen(target));
	assert_int_equal(store_readlink(f->store, &locator, found, sizeof(found)), 0);
	assert_string_equal(found, target);
}

static void open_takes_regular_files_only(void **state)
{
	struct fixture *f = *state;
	struct locator locator;
	struct store_attr attr;
	struct store_file *file;
	char name[8];

	for (size_t i = 0; i < ARRAY_SIZE(all_types); i++) {
		if (S_ISREG(all_types[i].mode))
			continue;
		(void)snprintf(name, sizeof(name), "%zu", i);
		assert_int_equal(
			store_create(f->store, &f->dir, name, &all_types[i], &locator, &attr), 0);
		assert_int_equal(store_open(f->store, &locator, STORE_OPEN_READ, &file), -EINVAL);
		assert_int_equal(store_open(f->store, &locator, STORE_OPEN_READ | STORE_OPEN_WRITE,
					    &file),
				 -EINVAL);
	}
}

/* ---- names --------------------------------------------------------------- */

static void link_adds_a_name(void **state)
{
	struct fixture *f = *state;
	struct locator file = make_file(f->store, &f->dir, "file", "x", 1), found;
	struct locator dir = make_dir(f->store, &f->dir, "dir");
	struct store_attr attr;

	assert_int_equal(store_link(f->store, &file, &dir, "second"), 0);
	assert_int_equal(store_lookup(f->store, &dir, "second", &found, &attr), 0);
	assert_true(locator_equal(&file, &found));
	assert_int_equal(attr.nlink, 2);
	assert_int_equal(store_link(f->store, &file, &dir, "second"), -EEXIST);
	assert_int_equal(store_link(f->store, &file, &f->dir, "dir"), -EEXIST);
	assert_int_equal(store_unlink(f->store, &f->dir, "file"), 0);
	assert_int_equal(attr_of(f->store, &file).nlink, 1);
	assert_content(f, &file, "x");
	assert_true(store_link(f->store, &dir, &f->dir, "hard") < 0);
}

static void unlink_and_rmdir_know_their_types(void **state)
{
	struct fixture *f = *state;
	struct locator dir = make_dir(f->store, &f->dir, "dir");
	int r;

	make_file(f->store, &f->dir, "file", NULL, 0);
	make_file(f->store, &dir, "inside", NULL, 0);
	assert_int_equal(store_unlink(f->store, &f->dir, "none"), -ENOENT);
	assert_int_equal(store_rmdir(f->store, &f->dir, "none"), -ENOENT);
	assert_int_equal(store_rmdir(f->store, &f->dir, "file"), -ENOTDIR);
	r = store_unlink(f->store, &f->dir, "dir");
	assert_true(r == -EISDIR || r == -EPERM);
	assert_int_equal(store_rmdir(f->store, &f->dir, "dir"), -ENOTEMPTY);
	assert_int_equal(store_unlink(f->store, &dir, "inside"), 0);
	assert_int_equal(store_rmdir(f->store, &f->dir, "dir"), 0);
	assert_false(has_name(f->store, &f->dir, "dir"));
}

static void rename_has_posix_outcomes(void **state)
{
	struct fixture *f = *state;
	struct locator dir = make_dir(f->store, &f->dir, "dir"),
		       sub = make_dir(f->store, &dir, "sub");
	struct locator full = make_dir(f->store, &f->dir, "full");
	struct locator a = make_file(f->store, &f->dir, "a", "a", 1);
	struct locator b = make_file(f->store, &f->dir, "b", "b", 1), found;
	struct store_attr attr;
	int r;

	make_file(f->store, &full, "x", NULL, 0);
	assert_int_equal(rename_here(f, "none", "new", 0), -ENOENT);
	r = rename_here(f, "dir", "full", 0);
	assert_true(r == -ENOTEMPTY || r == -EEXIST);
	assert_int_equal(store_rename(f->store, &f->dir, "dir", &sub, "down", 0), -EINVAL);
	r = rename_here(f, "a", "dir", 0);
	assert_true(r == -EISDIR || r == -EEXIST);
	r = rename_here(f, "dir", "a", 0);
	assert_true(r == -ENOTDIR || r == -EEXIST);

	assert_int_equal(rename_here(f, "a", "b", 0), 0);
	assert_false(has_name(f->store, &f->dir, "a"));
	assert_content(f, &a, "a");
	assert_int_equal(store_getattr(f->store, &b, &attr), -ESTALE);

	/* Two names of one object: nothing happens. */
	assert_int_equal(store_link(f->store, &a, &f->dir, "same"), 0);
	assert_int_equal(rename_here(f, "same", "b", 0), 0);
	assert_true(has_name(f->store, &f->dir, "same"));

	make_dir(f->store, &f->dir, "empty");
	assert_int_equal(rename_here(f, "dir", "empty", 0), 0);
	assert_int_equal(store_lookup(f->store, &f->dir, "empty", &found, &attr), 0);
	assert_true(locator_equal(&found, &dir));
}

static void rename_takes_flags(void **state)
{
	struct fixture *f = *state;
	struct locator a = make_file(f->store, &f->dir, "a", "a", 1);
	struct locator d = make_dir(f->store, &f->dir, "d"), found;
	struct store_attr attr;

	assert_int_equal(rename_here(f, "a", "d", RENAME_WHITEOUT), -EINVAL);
	if (!f->caps->has_rename_flags) {
		assert_int_equal(rename_here(f, "a", "d", RENAME_EXCHANGE), -EINVAL);
		return;
	}
	assert_int_equal(rename_here(f, "a", "d", RENAME_NOREPLACE), -EEXIST);
	assert_int_equal(rename_here(f, "a", "n", RENAME_NOREPLACE), 0);
	assert_int_equal(rename_here(f, "n", "none", RENAME_EXCHANGE), -ENOENT);
	assert_int_equal(rename_here(f, "n", "d", RENAME_EXCHANGE), 0);
	assert_int_equal(store_lookup(f->store, &f->dir, "n", &found, &attr), 0);
	assert_true(locator_equal(&found, &d));
	assert_int_equal(store_lookup(f->store, &f->dir, "d", &found, &attr), 0);
	assert_true(locator_equal(&found, &a));
}

/* ---- files --------------------------------------------------------------- */

static void read_and_write_at_offsets(void **state)
{
	enum { BYTES = 3 * 1024 * 1024 + 17 };
	struct fixture *f = *state;
	struct locator locator = make_file(f->store, &f->dir, "file", NULL, 0);
	struct store_file *file = open_file(f, &locator, STORE_OPEN_READ | STORE_OPEN_WRITE);
	uint8_t *data = malloc(BYTES), *found = malloc(BYTES + 1);
	struct store_attr attr;

	assert_non_null(data);
	assert_non_null(found);
	for (size_t i = 0; i < BYTES; i++)
		data[i] = (uint8_t)(i * 2654435761u >> 13);
	assert_int_equal(store_write(file, data, BYTES, 0, false), 0);
	assert_int_equal(store_write(file, "", 0, BYTES + 100, false), 0);
	assert_int_equal(store_file_getattr(file, &attr), 0);
	assert_int_equal(attr.size, BYTES);
	assert_int_equal(store_read(file, found, BYTES + 1, 0), BYTES);
	assert_memory_equal(data, found, BYTES);
	assert_int_equal(store_read(file, found, 100, BYTES - 10), 10);
	assert_int_equal(store_read(file, found, 100, BYTES), 0);
	assert_int_equal(store_read(file, found, 100, BYTES + 5000), 0);
	assert_int_equal(store_write(file, "over", 4, 1234567, true), 0);
	assert_int_equal(store_read(file, found, 6, 1234566), 6);
	assert_memory_equal(found + 1, "over", 4);
	assert_int_equal(found[5], data[1234571]);
	assert_int_equal(store_fsync(file, /* is_datasync= */ true), 0);
	assert_int_equal(store_fsync(file, /* is_datasync= */ false), 0);
	assert_int_equal(store_commit(f->store), 0);
	free(data);
	free(found);
	store_file_close(file);
}

static void sparse_files_read_as_zeros(void **state)
{
	const uint64_t far = 5ull << 30; /* past 32 bits */
	const struct store_setattr shrink = { .valid = STORE_SET_SIZE, .size = 1 };
	struct fixture *f = *state;
	struct locator locator = make_file(f->store, &f->dir, "file", "x", 1);
	struct store_file *file = open_file(f, &locator, STORE_OPEN_READ | STORE_OPEN_WRITE);
	char found[8];
	struct store_attr attr;
	int64_t at;

	assert_int_equal(store_write(file, "end", 3, far, false), 0);
	assert_int_equal(store_file_getattr(file, &attr), 0);
	assert_int_equal(attr.size, far + 3);
	assert_int_equal(store_read(file, found, sizeof(found), far - 5), 8);
	assert_memory_equal(found, "\0\0\0\0\0end", 8);

	at = store_seek(file, 1 << 20, SEEK_DATA);
	assert_true(at >= 1 << 20 && at <= (int64_t)far);
	at = store_seek(file, far, SEEK_HOLE);
	assert_int_equal(at, far + 3);
	assert_int_equal(store_seek(file, far + 3, SEEK_DATA), -ENXIO);
	store_file_close(file);

	file = open_file(f, &locator, STORE_OPEN_READ);
	assert_int_equal(store_read(file, found, sizeof(found), far), 3);
	/* A file that is not open for writing can be cut nevertheless. */
	assert_int_equal(store_file_setattr(file, &shrink, &attr), 0);
	assert_int_equal(attr.size, 1);
	store_file_close(file);
	assert_content(f, &locator, "x");
}

static void fallocate_has_its_effect_on_the_bytes(void **state)
{
	struct fixture *f = *state;
	char data[16384], found[16384], zeros[4096] = { 0 };
	struct locator locator;
	struct store_file *file;
	struct store_attr attr;
	int r;

	memset(data, 'd', sizeof(data));
	locator = make_file(f->store, &f->dir, "file", data, sizeof(data));
	file = open_file(f, &locator, STORE_OPEN_READ | STORE_OPEN_WRITE);
	assert_int_equal(
		store_fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 4096), 0);
	assert_int_equal(store_read(file, found, sizeof(found), 0), sizeof(found));
	assert_memory_equal(found, data, 4096);
	assert_memory_equal(found + 4096, zeros, 4096);
	assert_memory_equal(found + 8192, data, 8192);
	/* Past the end: nothing. */
	assert_int_equal(store_fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 12288,
					 1 << 20),
			 0);
	assert_int_equal(store_file_getattr(file, &attr), 0);
	assert_int_equal(attr.size, sizeof(data));

	r = store_fallocate(file, 0, 0, 100000);
	assert_true(r == 0 || r == -EOPNOTSUPP);
	assert_int_equal(store_file_getattr(file, &attr), 0);
	assert_int_equal(attr.size, r == 0 ? 100000 : sizeof(data));
	assert_int_equal(store_fallocate(file, 0, 0, 0), -EINVAL);
	store_file_close(file);
}

static void copy_range_copies_within_the_store(void **state)
{
	struct fixture *f = *state;
	struct locator a = make_file(f->store, &f->dir, "a", "0123456789", 10);
	struct locator b = make_file(f->store, &f->dir, "b", "abc", 3);
	struct store_file *in = open_file(f, &a, STORE_OPEN_READ);
	struct store_file *out = open_file(f, &b, STORE_OPEN_READ | STORE_OPEN_WRITE);
	ssize_t n = store_copy_range(in, 5, out, 1, 4);

	if (n == -EOPNOTSUPP) {
		assert_false(f->caps->is_local);
	} else {
		assert_int_equal(n, 4);
		assert_content(f, &b, "a5678");
		assert_int_equal(store_copy_range(in, 10, out, 0, 4), 0);
	}
	store_file_close(in);
	store_file_close(out);
}

static void unlinked_open_file_stays_usable(void **state)
{
	const struct store_setattr set = { .valid = STORE_SET_MODE, .mode = 0600 };
	struct fixture *f = *state;
	struct locator locator;
	struct store_file *file, *second;
	struct store_attr attr;
	char found[4];

	if (!f->caps->is_local)
		skip();
	locator = make_file(f->store, &f->dir, "file", "data", 4);
	file = open_file(f, &locator, STORE_OPEN_READ | STORE_OPEN_WRITE);
	assert_int_equal(store_unlink(f->store, &f->dir, "file"), 0);
	assert_int_equal(attr_of(f->store, &locator).nlink, 0);
	assert_int_equal(store_write(file, "DA", 2, 0, false), 0);
	assert_int_equal(store_setattr(f->store, &locator, &set, &attr), 0);
	assert_int_equal(attr.mode, S_IFREG | 0600);
	assert_int_equal(store_link(f->store, &locator, &f->dir, "again"), -ENOENT);
	assert_int_equal(
		store_open(f->store, &locator, STORE_OPEN_READ | STORE_OPEN_REGULAR, &second), 0);
	store_file_close(file);
	assert_int_equal(store_read(second, found, 4, 0), 4);
	assert_memory_equal(found, "DAta", 4);
	store_file_close(second);
	assert_int_equal(store_getattr(f->store, &locator, &attr), -ESTALE);
}

/* ---- extended attributes ------------------------------------------------- */

static void xattrs_are_kept(void **state)
{
	struct fixture *f = *state;
	struct locator file = make_file(f->store, &f->dir, "file", NULL, 0);
	char value[8], list[1024];
	ssize_t n;

	if (!f->caps->has_xattr) {
		assert_int_equal(store_getxattr(f->store, &file, "user.a", NULL, 0), -EOPNOTSUPP);
		assert_int_equal(store_setxattr(f->store, &file, "user.a", "1", 1, 0), -EOPNOTSUPP);
		return;
	}
	assert_int_equal(store_getxattr(f->store, &file, "user.a", NULL, 0), -ENODATA);
	assert_int_equal(store_setxattr(f->store, &file, "user.a", "12\0004", 4, XATTR_REPLACE),
			 -ENODATA);
	assert_int_equal(store_setxattr(f->store, &file, "user.a", "12\0004", 4, XATTR_CREATE), 0);
	assert_int_equal(store_setxattr(f->store, &file, "user.a", "x", 1, XATTR_CREATE), -EEXIST);
	assert_int_equal(store_setxattr(f->store, &file, "trusted.b", NULL, 0, 0), 0);
	assert_int_equal(store_getxattr(f->store, &file, "user.a", NULL, 0), 4);
	assert_int_equal(store_getxattr(f->store, &file, "user.a", value, 3), -ERANGE);
	assert_int_equal(store_getxattr(f->store, &file, "user.a", value, sizeof(value)), 4);
	assert_memory_equal(value, "12\0004", 4);
	n = store_listxattr(f->store, &file, list, sizeof(list));
	assert_true(n >= (ssize_t)(sizeof("user.a") + sizeof("trusted.b")));
	assert_int_equal(store_listxattr(f->store, &file, NULL, 0), n);
	assert_int_equal(store_listxattr(f->store, &file, list, 3), -ERANGE);
	assert_non_null(memmem(list, (size_t)n, "user.a", sizeof("user.a")));
	assert_int_equal(store_removexattr(f->store, &file, "user.a"), 0);
	assert_int_equal(store_removexattr(f->store, &file, "user.a"), -ENODATA);
}

static void xattrs_of_every_type_are_its_own(void **state)
{
	struct fixture *f = *state;
	struct locator locator;
	struct store_attr attr;
	char name[8], value[8];

	if (!f->caps->has_xattr)
		skip();
	for (size_t i = 0; i < ARRAY_SIZE(all_types); i++) {
		(void)snprintf(name, sizeof(name), "%zu", i);
		assert_int_equal(
			store_create(f->store, &f->dir, name, &all_types[i], &locator, &attr), 0);
		assert_int_equal(
			store_setxattr(f->store, &locator, "trusted.t", name, strlen(name), 0), 0);
		assert_int_equal(store_getxattr(f->store, &locator, "trusted.t", value,
						sizeof(value)),
				 strlen(name));
		assert_memory_equal(value, name, strlen(name));
	}
}

/* ---- directory streams --------------------------------------------------- */

enum { ENTRIES = 3000 }; /* more than a buffer's worth */

static void make_entries(struct fixture *f)
{
	char name[32];

	for (int i = 0; i < ENTRIES; i++) {
		(void)snprintf(name, sizeof(name), "entry-with-a-name-%d", i);
		assert_int_equal(create(f, name, &a_file), 0);
	}
}

static void assert_each_once(const uint8_t *seen)
{
	for (int i = 0; i < ENTRIES; i++)
		assert_int_equal(seen[i], 1);
}

static int entry_number(const struct store_entry *entry)
{
	int number = -1;

	assert_int_equal(sscanf(entry->name, "entry-with-a-name-%d", &number), 1);
	assert_in_range(number, 0, ENTRIES - 1);
	return number;
}

static void directory_lists_each_name_once(void **state)
{
	struct fixture *f = *state;
	struct store_dir *stream;
	struct store_entry entry;
	struct locator locator;
	struct store_attr attr;
	uint8_t seen[ENTRIES] = { 0 };
	int r;

	assert_int_equal(store_dir_open(f->store, &f->dir, &stream), 0);
	assert_int_equal(store_dir_next(stream, &entry), STORE_E_END); /* no dots */
	store_dir_close(stream);

	make_entries(f);
	assert_int_equal(store_dir_open(f->store, &f->dir, &stream), 0);
	while ((r = store_dir_next(stream, &entry)) == 0) {
		int n = entry_number(&entry);

		seen[n]++;
		assert_true(entry.type == S_IFREG || entry.type == 0);
		if (n % 500)
			continue;
		assert_int_equal(store_lookup(f->store, &f->dir, entry.name, &locator, &attr), 0);
		assert_int_equal(entry.ino, attr.ino);
		if (entry.has_attr)
			assert_true(locator_equal(&entry.locator, &locator));
	}
	assert_int_equal(r, STORE_E_END);
	assert_int_equal(store_dir_next(stream, &entry), STORE_E_END);
	assert_each_once(seen);

	/* From the beginning, with what has changed since. */
	assert_int_equal(create(f, "entry-with-a-name-0.new", &a_file), 0);
	assert_int_equal(store_dir_seek(stream, 0), 0);
	for (r = 0; store_dir_next(stream, &entry) == 0; r++)
		;
	assert_int_equal(r, ENTRIES + 1);
	assert_int_equal(store_dir_fsync(stream), 0);
	store_dir_close(stream);
}

static void directory_goes_on_after_a_cookie(void **state)
{
	struct fixture *f = *state;
	struct store_dir *stream;
	struct store_entry entry;
	uint8_t seen[ENTRIES] = { 0 };
	uint64_t cookie = 0, far_cookie = 0;
	int r = 0, n = 0;

	make_entries(f);
	assert_int_equal(store_dir_open(f->store, &f->dir, &stream), 0);
	/* As a client does whose buffer holds three entries: one too many is read. */
	while (r == 0) {
		for (int i = 0; i < 3 && (r = store_dir_next(stream, &entry)) == 0; i++, n++) {
			seen[entry_number(&entry)]++;
			cookie = entry.cookie;
			if (n == ENTRIES / 4)
				far_cookie = cookie;
		}
		if (r == 0)
			r = store_dir_next(stream, &entry) == STORE_E_END ? STORE_E_END : 0;
		assert_int_equal(store_dir_seek(stream, cookie), 0);
	}
	assert_int_equal(r, STORE_E_END);
	assert_each_once(seen);

	/* Far back, out of what the stream holds; and in a new stream. */
	for (int pass = 0; pass < 2; pass++) {
		assert_int_equal(store_dir_seek(stream, far_cookie), 0);
		for (n = 0; store_dir_next(stream, &entry) == 0; n++)
			;
		assert_int_equal(n, ENTRIES - ENTRIES / 4 - 1);
		store_dir_close(stream);
		assert_int_equal(store_dir_open(f->store, &f->dir, &stream), 0);
	}
	store_dir_close(stream);
}

static void directory_can_be_emptied_while_listed(void **state)
{
	struct fixture *f = *state;
	struct store_dir *stream;
	struct store_entry entry;
	uint8_t seen[ENTRIES] = { 0 };
	uint64_t cookie = 0;
	int r, n = 0;

	make_entries(f);
	assert_int_equal(store_dir_open(f->store, &f->dir, &stream), 0);
	while ((r = store_dir_next(stream, &entry)) == 0) {
		seen[entry_number(&entry)]++;
		cookie = entry.cookie;
		assert_int_equal(store_unlink(f->store, &f->dir, entry.name), 0);
		if (++n % 100 == 0)
			assert_int_equal(store_dir_seek(stream, cookie), 0);
	}
	assert_int_equal(r, STORE_E_END);
	assert_each_once(seen);
	store_dir_close(stream);
}

static void stream_outlives_the_directory(void **state)
{
	struct fixture *f = *state;
	struct locator dir = make_dir(f->store, &f->dir, "dir");
	struct store_dir *stream;
	struct store_entry entry;
	int r;

	assert_int_equal(store_dir_open(f->store, &dir, &stream), 0);
	assert_int_equal(rename_here(f, "dir", "moved", 0), 0);
	assert_int_equal(store_rmdir(f->store, &f->dir, "moved"), 0);
	r = store_dir_next(stream, &entry);
	assert_true(r == STORE_E_END || (r == -ESTALE && !f->caps->is_local));
	store_dir_close(stream);
}

/* ---- the whole ----------------------------------------------------------- */

static void commit_and_statfs_work(void **state)
{
	struct fixture *f = *state;
	struct statvfs statvfs;

	make_file(f->store, &f->dir, "file", "x", 1);
	assert_int_equal(store_commit(f->store), 0);
	assert_int_equal(store_statfs(f->store, &statvfs), 0);
	assert_true(statvfs.f_blocks > 0);
	assert_true(statvfs.f_bsize > 0);
	store_set_reports_unknown(f->store, false);
}

int store_conformance_run(const char *group_name, struct store *store)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		CASE(root_is_a_directory),
		CASE(lookup_finds_what_create_made),
		CASE(lookup_of_missing_name_is_enoent),
		CASE(lookup_in_a_file_is_enotdir),
		CASE(names_are_bytes),
		CASE(names_have_up_to_255_bytes),
		CASE(create_gives_exact_owner_and_mode),
		CASE(create_is_exact_in_a_setgid_directory),
		CASE(create_inherits_no_default_acl),
		CASE(create_never_replaces),
		CASE(create_as_a_client_follows_its_rules),
		CASE(tmpfile_lives_without_a_name_until_linked),
		CASE(locator_survives_renames),
		CASE(locator_of_removed_object_is_stale),
		CASE(removed_directory_is_stale_to_all),
		CASE(setattr_sets_all_and_keeps_suid),
		CASE(setattr_sets_one_and_leaves_the_rest),
		CASE(setattr_works_on_every_type),
		CASE(symlinks_are_never_followed),
		CASE(readlink_gives_long_targets),
		CASE(open_takes_regular_files_only),
		CASE(link_adds_a_name),
		CASE(unlink_and_rmdir_know_their_types),
		CASE(rename_has_posix_outcomes),
		CASE(rename_takes_flags),
		CASE(read_and_write_at_offsets),
		CASE(sparse_files_read_as_zeros),
		CASE(fallocate_has_its_effect_on_the_bytes),
		CASE(copy_range_copies_within_the_store),
		CASE(unlinked_open_file_stays_usable),
		CASE(xattrs_are_kept),
		CASE(xattrs_of_every_type_are_its_own),
		CASE(directory_lists_each_name_once),
		CASE(directory_goes_on_after_a_cookie),
		CASE(directory_can_be_emptied_while_listed),
		CASE(stream_outlives_the_directory),
		CASE(commit_and_statfs_work),
	};
#undef CASE
	tested_store = store;
	return cmocka_run_group_tests_name(group_name, tests, NULL, NULL);
}
