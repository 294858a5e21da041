/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the posix store keeps the promises of a store, on memory and on disk, and those
 * of its own: it stays below later mounts, opens nothing by accident, leaks nothing.
 * Needs root: file handles and clones of mounts are not for users. What it mounts, it
 * mounts in a namespace of its own.
 */
#include "tests/unit/store_conformance.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cmocka.h>

#include "util/cleanup.h"
#include "util/log.h"

static const struct store_new a_file = { .mode = S_IFREG | 0644 };
static const struct store_new a_dir = { .mode = S_IFDIR | 0755 };

struct fixture {
	char path[256];
	struct store *store;
	struct locator root;
};

static const char *base_dir; /* where the running group makes its directories */

static int open_fd_count(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static int make_base(char *path, size_t size)
{
	(void)snprintf(path, size, "%s/ferryfs-store-XXXXXX", base_dir);
	return mkdtemp(path) ? 0 : -1;
}

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	*state = f;
	assert_int_equal(make_base(f->path, sizeof(f->path)), 0);
	assert_int_equal(store_posix_open(f->path, &f->store), 0);
	store_root(f->store, &f->root);
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;
	struct store_dir *stream;
	struct store_entry entry;

	assert_int_equal(store_dir_open(f->store, &f->root, &stream), 0);
	while (store_dir_next(stream, &entry) == 0)
		remove_tree(f->store, &f->root, entry.name);
	store_dir_close(stream);
	f->store = store_close(f->store);
	assert_int_equal(rmdir(f->path), 0);
	free(f);
	return 0;
}

/* ---- life ---------------------------------------------------------------- */

static void identity_is_the_same_when_opened_again(void **state)
{
	struct fixture *f = *state;
	struct locator dir = make_dir(f->store, &f->root, "dir"), found;
	struct store *again;
	struct store_attr attr;
	char path[300];

	assert_int_equal(store_posix_open(f->path, &again), 0);
	assert_string_equal(store_identity(f->store), store_identity(again));
	/* So are locators. */
	assert_int_equal(store_lookup(again, &f->root, "dir", &found, &attr), 0);
	assert_true(locator_equal(&dir, &found));
	again = store_close(again);
	assert_null(again);

	(void)snprintf(path, sizeof(path), "%s/dir", f->path);
	assert_int_equal(store_posix_open(path, &again), 0);
	assert_string_not_equal(store_identity(f->store), store_identity(again));
	store_close(again);
}

static void open_refuses_what_it_cannot_use(void **state)
{
	struct fixture *f = *state;
	struct store *store = NULL;
	char path[300];

	assert_int_equal(store_posix_open("/none/such", &store), -ENOENT);
	assert_int_equal(store_posix_open("/proc", &store), -EOPNOTSUPP);
	make_file(f->store, &f->root, "file", NULL, 0);
	(void)snprintf(path, sizeof(path), "%s/file", f->path);
	assert_int_equal(store_posix_open(path, &store), -ENOTDIR);
	assert_null(store);
}

static void later_mounts_are_not_entered(void **state)
{
	struct fixture *f = *state;
	struct locator sub = make_dir(f->store, &f->root, "sub"), found;
	struct store_attr attr;
	char path[300];

	make_file(f->store, &sub, "below", NULL, 0);
	(void)snprintf(path, sizeof(path), "%s/sub", f->path);
	assert_int_equal(mount("none", path, "tmpfs", 0, NULL), 0);
	assert_int_equal(mount("none", f->path, "tmpfs", 0, NULL), 0);
	assert_int_equal(store_lookup(f->store, &f->root, "sub", &found, &attr), 0);
	assert_true(locator_equal(&sub, &found));
	assert_true(has_name(f->store, &found, "below"));
	assert_int_equal(umount(f->path), 0);
	assert_int_equal(umount(path), 0);
}

static void nothing_is_left_open(void **state)
{
	struct fixture *f = *state;
	int before = open_fd_count();
	struct store *store;
	struct locator root, dir;
	char name[32];

	assert_int_equal(store_posix_open(f->path, &store), 0);
	store_root(store, &root);
	dir = root;
	for (int i = 0; i < 600; i++) {
		(void)snprintf(name, sizeof(name), "dir%d", i);
		dir = make_dir(store, &root, name);
		make_file(store, &dir, "file", "x", 1);
		assert_true(has_name(store, &dir, "file"));
	}
	assert_true(open_fd_count() < before + 300); /* the cache is bounded */
	store_close(store);
	assert_int_equal(open_fd_count(), before);
}

static void damaged_locators_are_stale(void **state)
{
	struct fixture *f = *state;
	struct locator dir = make_dir(f->store, &f->root, "dir"), locator;
	struct store_attr attr;

	for (unsigned i = 0; i < dir.length; i++) {
		int r;

		locator = dir;
		locator.bytes[i] ^= 0x5a;
		r = store_getattr(f->store, &locator, &attr);
		assert_true(r == -ESTALE || r == -EINVAL ||
			    r == 0); /* of tmpfs the parent's part is not used */
		locator = dir;
		locator.length = (uint8_t)(i + 1);
		assert_true(store_getattr(f->store, &locator, &attr) < 0 || i + 1 == dir.length);
	}
	locator.length = LOCATOR_BYTES_MAX;
	memset(locator.bytes, 0xff, sizeof(locator.bytes));
	assert_true(store_getattr(f->store, &locator, &attr) < 0);
}

/* ---- objects ------------------------------------------------------------- */

static void *open_fifo(void *path)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC); /* waits for a reader */

	return (void *)(intptr_t)fd;
}

static void fifo_with_a_waiting_writer_is_left_alone(void **state)
{
	const struct store_new fifo = { .mode = S_IFIFO | 0600 };
	const struct store_setattr set = { .valid = STORE_SET_MODE, .mode = 0644 };
	struct fixture *f = *state;
	struct locator locator;
	struct store_attr attr;
	struct store_file *file;
	struct timespec soon;
	pthread_t thread;
	char path[300];
	void *result;
	int fd;

	assert_int_equal(store_create(f->store, &f->root, "fifo", &fifo, &locator, &attr), 0);
	(void)snprintf(path, sizeof(path), "%s/fifo", f->path);
	assert_int_equal(pthread_create(&thread, NULL, open_fifo, path), 0);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(store_open(f->store, &locator, STORE_OPEN_READ, &file), -EINVAL);
		assert_int_equal(store_setattr(f->store, &locator, &set, &attr), 0);
		assert_int_equal(store_lookup(f->store, &f->root, "fifo", &locator, &attr), 0);
		clock_gettime(CLOCK_REALTIME, &soon);
		soon.tv_nsec += 2000000;
		soon.tv_sec += soon.tv_nsec / 1000000000;
		soon.tv_nsec %= 1000000000;
		assert_int_equal(pthread_timedjoin_np(thread, &result, &soon), ETIMEDOUT);
	}
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(pthread_join(thread, &result), 0);
	close((int)(intptr_t)result);
	close(fd);
}

static void open_of_what_was_said_to_be_regular_is_checked(void **state)
{
	const struct store_new news[] = {
		{ .mode = S_IFIFO | 0600 },
		{ .mode = S_IFSOCK | 0600 },
		{ .mode = S_IFCHR | 0600, .rdev = 0x103 },
		{ .mode = S_IFDIR | 0700 },
		{ .mode = S_IFLNK, .link_target = "x" },
	};
	struct fixture *f = *state;
	struct store_file *file;
	struct locator locator;
	struct store_attr attr;
	char name[8];
	int r;

	for (size_t i = 0; i < ARRAY_SIZE(news); i++) {
		(void)snprintf(name, sizeof(name), "%zu", i);
		assert_int_equal(store_create(f->store, &f->root, name, &news[i], &locator, &attr),
				 0);
		r = store_open(f->store, &locator, STORE_OPEN_READ | STORE_OPEN_REGULAR, &file);
		assert_true(r == -EINVAL || r == -EACCES);
	}
	locator = make_file(f->store, &f->root, "file", "x", 1);
	assert_int_equal(store_open(f->store, &locator,
				    STORE_OPEN_READ | STORE_OPEN_WRITE | STORE_OPEN_REGULAR, &file),
			 0);
	store_file_close(file);
}

static void reading_with_noatime_leaves_the_atime(void **state)
{
	const struct store_setattr set = { .valid = STORE_SET_ATIME, .atime = { 1000, 5 } };
	struct fixture *f = *state;
	struct locator locator = make_file(f->store, &f->root, "file", "x", 1);
	struct store_file *file;
	char c;

	assert_int_equal(store_setattr(f->store, &locator, &set, NULL), 0);
	assert_int_equal(
		store_open(f->store, &locator, STORE_OPEN_READ | STORE_OPEN_NOATIME, &file), 0);
	assert_int_equal(store_read(file, &c, 1, 0), 1);
	assert_true(fcntl(store_file_fd(file), F_GETFD) & FD_CLOEXEC);
	store_file_close(file);
	assert_int_equal(attr_of(f->store, &locator).atime.tv_sec, 1000);
}

/* A client that may not write to the directory creates nothing in it. */
static void create_as_a_client_is_checked_below(void **state)
{
	const struct store_cred cred = { .uid = 1001, .gid = 1001, .umask = 022 };
	const struct store_new new = { .mode = S_IFREG | 0666, .cred = &cred };
	const struct store_setattr open_dir = { .valid = STORE_SET_MODE, .mode = 0777 };
	struct fixture *f = *state;
	struct locator dir = make_dir(f->store, &f->root, "dir"), locator;
	struct store_attr attr;
	struct store_file *file;

	assert_int_equal(store_create(f->store, &dir, "file", &new, &locator, &attr), -EACCES);
	assert_int_equal(setfsuid((uid_t)-1), 0);
	assert_int_equal(setfsgid((gid_t)-1), 0);
	assert_int_equal(store_tmpfile(f->store, &dir, &new, true, &locator, &attr, &file),
			 -EACCES);
	assert_int_equal(setfsuid((uid_t)-1), 0);
	assert_int_equal(store_setattr(f->store, &dir, &open_dir, NULL), 0);
	assert_int_equal(store_tmpfile(f->store, &dir, &new, true, &locator, &attr, &file), 0);
	assert_int_equal(attr.uid, 1001);
	assert_int_equal(attr.mode, S_IFREG | 0644);
	store_file_close(file);
}

static void client_that_is_root_with_another_group_keeps_it(void **state)
{
	const struct store_cred cred = { .uid = 0, .gid = 1001, .umask = 0 };
	const struct store_new new = { .mode = S_IFREG | 0666, .cred = &cred };
	const struct store_new device = { .mode = S_IFCHR | 0600, .rdev = 0x103, .cred = &cred };
	struct fixture *f = *state;
	struct locator locator;
	struct store_attr attr;

	assert_int_equal(store_create(f->store, &f->root, "file", &new, &locator, &attr), 0);
	assert_int_equal(attr.gid, 1001);
	assert_int_equal(attr.mode, S_IFREG | 0666);
	assert_int_equal(store_create(f->store, &f->root, "device", &device, &locator, &attr), 0);
	assert_int_equal(attr.rdev, 0x103);
}

/* Groups count below, for the one thread that creates: by glibc's own setgroups() the
 * other thread would have them too. */
static atomic_bool watching, has_seen_group;

static void *watch_groups(void *unused)
{
	gid_t groups[64];

	while (watching) {
		int n = getgroups(ARRAY_SIZE(groups), groups);

		for (int i = 0; i < n; i++)
			if (groups[i] == 2002)
				has_seen_group = true;
	}
	return unused;
}

static void supplementary_groups_are_the_threads_own(void **state)
{
	const uint32_t groups[] = { 2001, 2002 };
	const struct store_cred cred = {
		.uid = 1001, .gid = 1001, .group_count = 2, .groups = groups
	};
	const struct store_cred without = { .uid = 1001, .gid = 1001 };
	struct store_new new = { .mode = S_IFREG | 0666, .cred = &cred };
	struct store_setattr set = { .valid = STORE_SET_MODE | STORE_SET_GID,
				     .mode = 0770,
				     .gid = 2002 };
	struct fixture *f = *state;
	struct locator locator;
	struct store_attr attr;
	pthread_t thread;

	assert_int_equal(store_setattr(f->store, &f->root, &set, NULL), 0);
	watching = true;
	has_seen_group = false;
	assert_int_equal(pthread_create(&thread, NULL, watch_groups, NULL), 0);
	for (int i = 0; i < 500; i++) {
		assert_int_equal(store_create(f->store, &f->root, "x", &new, &locator, &attr), 0);
		assert_int_equal(attr.gid, 1001);
		assert_int_equal(store_unlink(f->store, &f->root, "x"), 0);
	}
	watching = false;
	pthread_join(thread, NULL);
	assert_false(has_seen_group);

	new.cred = &without;
	assert_int_equal(store_create(f->store, &f->root, "x", &new, &locator, &attr), -EACCES);
	/* Root's own groups are not lent either. */
	set.gid = 0;
	assert_int_equal(store_setattr(f->store, &f->root, &set, NULL), 0);
	assert_int_equal(store_create(f->store, &f->root, "x", &new, &locator, &attr), -EACCES);
}

/* ---- threads ------------------------------------------------------------- */

struct worker {
	struct fixture *f;
	unsigned number;
};

/* Each creates as a client of its own, and as root, in directories shared by all. */
static void *work(void *arg)
{
	struct worker *worker = arg;
	struct fixture *f = worker->f;
	const uint32_t groups[] = { 5000 + worker->number };
	const struct store_cred cred = { .uid = 3000 + worker->number,
					 .gid = 4000 + worker->number,
					 .umask = worker->number * 010 & 077,
					 .group_count = 1,
					 .groups = groups };
	const struct store_new as_client = { .mode = S_IFREG | 0666, .cred = &cred };
	struct locator dir, locator;
	struct store_attr attr;
	char name[32], other[32];
	int r;

	for (int i = 0; i < 400; i++) {
		(void)snprintf(name, sizeof(name), "dir%d",
			       i % 300); /* more than the cache holds */
		r = store_create(f->store, &f->root, name, &a_dir, &dir, &attr);
		if (r == 0) {
			const struct store_setattr set = { .valid = STORE_SET_MODE, .mode = 0777 };

			r = store_setattr(f->store, &dir, &set, NULL);
		} else if (r == -EEXIST) {
			r = store_lookup(f->store, &f->root, name, &dir, &attr);
		}
		assert(r == 0 || r == -ENOENT || r == -ESTALE);
		if (r < 0)
			continue;
		(void)snprintf(name, sizeof(name), "file-%u-%d", worker->number, i);
		r = store_create(f->store, &dir, name, &as_client, &locator, &attr);
		assert(r == 0 || r == -ESTALE || r == -EACCES);
		if (r < 0)
			continue;
		assert(attr.uid == cred.uid);
		assert(attr.gid == cred.gid);
		assert((attr.mode & 07777) == (0666 & ~cred.umask));
		(void)snprintf(other, sizeof(other), "root-%u-%d", worker->number, i);
		r = store_create(f->store, &dir, other, &a_file, &locator, &attr);
		assert(r == 0);
		assert(attr.uid == 0);
		r = store_rename(f->store, &dir, name, &f->root, name, 0);
		assert(r == 0);
		r = store_unlink(f->store, &f->root, name);
		assert(r == 0);
		r = store_unlink(f->store, &dir, other);
		assert(r == 0);
		(void)snprintf(name, sizeof(name), "dir%d", i % 300);
		r = store_rmdir(f->store, &f->root, name); /* under the others' feet */
		assert(r == 0 || r == -ENOENT || r == -ENOTEMPTY);
	}
	return NULL;
}

static void threads_do_not_mix_identities(void **state)
{
	struct worker workers[6];
	pthread_t threads[ARRAY_SIZE(workers)];
	struct fixture *f = *state;

	for (unsigned i = 0; i < ARRAY_SIZE(workers); i++) {
		workers[i] = (struct worker){ .f = f, .number = i };
		assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(workers); i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(geteuid(), 0);
}

/* ---- probing a target ---------------------------------------------------- */

static void probe_finds_what_is_there_and_leaves_nothing(void **state)
{
	struct fixture *f = *state;
	struct store_dir *stream;
	struct store_entry entry;
	int before = open_fd_count();

	assert_int_equal(store_probe_target(f->store), 0);
	assert_int_equal(open_fd_count(), before);
	assert_true(store_caps(f->store)->is_local);
	assert_true(store_caps(f->store)->has_handles);
	assert_true(store_caps(f->store)->has_punch_hole);
	assert_true(store_caps(f->store)->has_tmpfile);
	assert_true(store_caps(f->store)->has_rename_flags);
	assert_true(store_caps(f->store)->has_symlink_times);
	assert_int_equal(store_last_loss_ms(f->store), 0);
	assert_int_equal(store_caps(f->store)->time_granularity_ns, 1);
	assert_int_equal(store_dir_open(f->store, &f->root, &stream), 0);
	assert_int_equal(store_dir_next(stream, &entry), STORE_E_END);
	store_dir_close(stream);
}

static void probe_refuses_a_read_only_target(void **state)
{
	struct fixture *f = *state;
	struct store *store;
	char path[300];

	make_dir(f->store, &f->root, "mnt");
	(void)snprintf(path, sizeof(path), "%s/mnt", f->path);
	assert_int_equal(mount("none", path, "tmpfs", MS_RDONLY, NULL), 0);
	assert_int_equal(store_posix_open(path, &store), 0);
	assert_int_equal(store_probe_target(store), -EROFS);
	store_close(store);
	assert_int_equal(umount(path), 0);
}

static void probe_refuses_a_full_target(void **state)
{
	struct fixture *f = *state;
	struct store *store;
	struct store_file *file;
	struct locator root, locator;
	struct store_dir *stream;
	struct store_entry entry;
	char path[300], data[4096] = { 1 };
	uint64_t offset = 0;

	make_dir(f->store, &f->root, "mnt");
	(void)snprintf(path, sizeof(path), "%s/mnt", f->path);
	assert_int_equal(mount("none", path, "tmpfs", 0, "size=64k"), 0);
	assert_int_equal(store_posix_open(path, &store), 0);
	assert_true(store_caps(store)->is_volatile);
	store_root(store, &root);
	locator = make_file(store, &root, "full", NULL, 0);
	assert_int_equal(store_open(store, &locator, STORE_OPEN_WRITE, &file), 0);
	while (store_write(file, data, sizeof(data), offset, false) == 0)
		offset += sizeof(data);
	assert_int_equal(store_write(file, data, sizeof(data), offset, false), -ENOSPC);
	store_file_close(file);
	assert_int_equal(store_probe_target(store), -ENOSPC);

	assert_int_equal(store_dir_open(store, &root, &stream), 0);
	assert_int_equal(store_dir_next(stream, &entry), 0);
	assert_string_equal(entry.name, "full");
	assert_int_equal(store_dir_next(stream, &entry), STORE_E_END);
	store_dir_close(stream);
	store_close(store);
	assert_int_equal(umount(path), 0);
}

static int run_group(const char *name, const char *base)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		CASE(identity_is_the_same_when_opened_again),
		CASE(open_refuses_what_it_cannot_use),
		CASE(later_mounts_are_not_entered),
		CASE(nothing_is_left_open),
		CASE(damaged_locators_are_stale),
		CASE(fifo_with_a_waiting_writer_is_left_alone),
		CASE(open_of_what_was_said_to_be_regular_is_checked),
		CASE(reading_with_noatime_leaves_the_atime),
		CASE(create_as_a_client_is_checked_below),
		CASE(client_that_is_root_with_another_group_keeps_it),
		CASE(supplementary_groups_are_the_threads_own),
		CASE(threads_do_not_mix_identities),
		CASE(probe_finds_what_is_there_and_leaves_nothing),
		CASE(probe_refuses_a_read_only_target),
		CASE(probe_refuses_a_full_target),
	};
#undef CASE
	char path[256], group_name[64];
	struct store *store;
	int failed;

	base_dir = base;
	(void)snprintf(group_name, sizeof(group_name), "store_posix on %s", name);
	failed = cmocka_run_group_tests_name(group_name, tests, NULL, NULL);

	if (make_base(path, sizeof(path)) < 0 || store_posix_open(path, &store) < 0)
		return failed + 1;
	(void)snprintf(group_name, sizeof(group_name), "conformance of posix on %s", name);
	failed += store_conformance_run(group_name, store);
	store_close(store);
	if (rmdir(path) < 0)
		failed++;
	return failed;
}

int main(void)
{
	const char *tmpdir = getenv("TMPDIR");
	int failed;

	if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0) {
		(void)fprintf(stderr, "skipped: needs root and CAP_SYS_ADMIN\n");
		return 77;
	}
	/* Shared, so that a mount would propagate into a clone that is not private. */
	if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("none", "/", NULL, MS_REC | MS_SHARED, NULL) < 0) {
		(void)fprintf(stderr, "skipped: cannot make a mount namespace of its own\n");
		return 77;
	}
	log_set_level(LOG_LEVEL_ERROR);
	failed = run_group("memory", "/dev/shm");
	failed += run_group("TMPDIR", tmpdir ? tmpdir : "/tmp");
	return failed ? 1 : 0;
}
