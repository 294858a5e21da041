/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the NFS store keeps its promises towards a real server, above all when that
 * server or the way to it fails under it. Method: nfs-ganesha, killed and stopped at will
 * (tests/lib/ganesha.sh restarts it), and a proxy that loses what it is told to lose.
 *
 * Started by store-nfs.sh, which says in the environment where the servers are.
 */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cmocka.h>

#include "fs/store/nfs_lib.h"
#include "fs/store/nfs_url.h"
#include "fs/store/store.h"
#include "tests/lib/rpc_proxy.h"
#include "tests/lib/testlib.h"
#include "tests/unit/store_conformance.h"
#include "util/clock.h"
#include "util/log.h"

enum {
	WRITERS = 32,
	FILES_EACH_MAX = 4096,
	FILE_BYTES = 40000,
	RESTART_MS_MAX = 20 * 1000,
	URL_BYTES = NFSURL_EXPORT_MAX + 128,
};

static const char *server_url, *server_dir;

static const char *need_env(const char *name)
{
	const char *value = getenv(name);

	if (!value)
		die(TEST_TROUBLE, "%s is not set: start store-nfs.sh", name);
	return value;
}

static void pause_ms(unsigned ms)
{
	struct timespec time = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };

	while (nanosleep(&time, &time) < 0)
		;
}

/* ---- the server ------------------------------------------------------------------ */

static pid_t server_pid(void)
{
	char path[PATH_MAX];
	FILE *file;
	int pid = 0;

	(void)snprintf(path, sizeof(path), "%s/pid", server_dir);
	file = fopen(path, "re");
	if (!file)
		return 0;
	if (fscanf(file, "%d", &pid) != 1)
		pid = 0;
	fclose(file);
	return pid;
}

static void signal_server(int signal)
{
	assert_int_equal(kill(server_pid(), signal), 0);
}

/* As long as this file is there, a server that was killed stays away. */
static void hold_server(bool is_held)
{
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%s/hold", server_dir);
	if (is_held)
		fclose(fopen(path, "we"));
	else
		assert_int_equal(unlink(path), 0);
}

/* Until another server than @old answers. */
static void await_server(pid_t old)
{
	uint64_t until_ms = clock_ms() + RESTART_MS_MAX;
	struct store *store;

	while (server_pid() == old) {
		assert_true(clock_ms() < until_ms);
		pause_ms(20);
	}
	while (store_nfs_open(server_url, 1, true, &store) != 0) {
		assert_true(clock_ms() < until_ms);
		pause_ms(50);
	}
	store_close(store);
}

static void restart_server(void)
{
	pid_t old = server_pid();

	signal_server(SIGKILL);
	await_server(old);
}

/* ---- the store ------------------------------------------------------------------- */

static struct store *open_store(const char *url, unsigned connections, bool reports_unknown)
{
	struct store *store;

	assert_int_equal(store_nfs_open(url, connections, reports_unknown, &store), 0);
	return store;
}

/* With its calls given up sooner than in life. */
static struct store *open_impatient(const char *url, unsigned connections, bool reports_unknown,
				    const char *timeout_ms)
{
	struct store *store;

	assert_int_equal(setenv("FERRYFS_NFS_TIMEOUT_MS", timeout_ms, 1), 0);
	store = open_store(url, connections, reports_unknown);
	assert_int_equal(unsetenv("FERRYFS_NFS_TIMEOUT_MS"), 0);
	return store;
}

static struct locator root_of(struct store *store)
{
	struct locator root;

	store_root(store, &root);
	return root;
}

static int create_file(struct store *store, const struct locator *dir, const char *name,
		       struct locator *ret_file)
{
	const struct store_new new = { .mode = S_IFREG | 0640, .uid = 1234, .gid = 5678 };
	struct store_attr attr;

	return store_create(store, dir, name, &new, ret_file, &attr);
}

static int write_pattern(struct store *store, const struct locator *object, uint64_t seed,
			 size_t size, bool is_stable)
{
	char *bytes = xcalloc(1, size);
	struct store_file *file;
	int r;

	fill_bytes(bytes, size, seed, 0);
	r = store_open(store, object, STORE_OPEN_WRITE, &file);
	if (r == 0) {
		r = store_write(file, bytes, size, 0, is_stable);
		store_file_close(file);
	}
	free(bytes);
	return r;
}

static void assert_pattern(struct store *store, const struct locator *object, uint64_t seed,
			   size_t size)
{
	char *bytes = xcalloc(1, size), *found = xcalloc(1, size);
	struct store_file *file;

	fill_bytes(bytes, size, seed, 0);
	assert_int_equal(store_open(store, object, STORE_OPEN_READ, &file), 0);
	assert_int_equal(store_read(file, found, size, 0), size);
	assert_memory_equal(found, bytes, size);
	store_file_close(file);
	free(bytes);
	free(found);
}

/* ---- many writers, and what becomes of them ---------------------------------------- */

struct writer {
	pthread_t thread;
	struct store *store;
	struct locator dir;
	unsigned index, count; /* files begun */
	atomic_bool *is_over;
	unsigned unknown_count, down_count, failed_count;
	int failure;
	bool is_done[FILES_EACH_MAX];
};

static uint64_t seed_of(const struct writer *writer, unsigned file)
{
	return (uint64_t)writer->index << 32 | file;
}

static int write_one(struct writer *writer, unsigned number)
{
	const struct store_setattr set = { .valid = STORE_SET_MODE | STORE_SET_MTIME,
					   .mode = 04755,
					   .mtime = { .tv_sec = 1000000000 } };
	struct locator file;
	char name[32];
	int r;

	(void)snprintf(name, sizeof(name), "%u-%u", writer->index, number);
	r = create_file(writer->store, &writer->dir, name, &file);
	if (r == 0)
		r = write_pattern(writer->store, &file, seed_of(writer, number), FILE_BYTES, true);
	if (r == 0)
		r = store_setattr(writer->store, &file, &set, NULL);
	return r;
}

static void *run_writer(void *private)
{
	struct writer *writer = private;

	while (!atomic_load(writer->is_over) && writer->count < FILES_EACH_MAX) {
		int r = write_one(writer, writer->count);

		if (r == 0) {
			writer->is_done[writer->count] = true;
		} else if (r == STORE_E_UNKNOWN) {
			writer->unknown_count++;
		} else if (r == -EHOSTDOWN) {
			writer->down_count++;
		} else {
			writer->failed_count++;
			writer->failure = r;
		}
		writer->count++;
	}
	return NULL;
}

static void start_writers(struct writer *writers, struct store *store, struct locator dir,
			  atomic_bool *is_over)
{
	for (unsigned i = 0; i < WRITERS; i++) {
		writers[i] = (struct writer){
			.store = store, .dir = dir, .index = i, .is_over = is_over
		};
		assert_int_equal(pthread_create(&writers[i].thread, NULL, run_writer, &writers[i]),
				 0);
	}
}

struct totals {
	unsigned done, unknown, down;
};

/* Ends them; all files whose writing succeeded must be there and right. */
static struct totals finish_writers(struct writer *writers, atomic_bool *is_over)
{
	struct totals totals = { 0 };

	atomic_store(is_over, true);
	for (unsigned i = 0; i < WRITERS; i++)
		assert_int_equal(pthread_join(writers[i].thread, NULL), 0);
	for (unsigned i = 0; i < WRITERS; i++) {
		struct writer *writer = &writers[i];

		assert_int_equal(writer->failure, 0);
		totals.unknown += writer->unknown_count;
		totals.down += writer->down_count;
		for (unsigned number = 0; number < writer->count; number++) {
			struct locator file;
			struct store_attr attr;
			char name[32];

			if (!writer->is_done[number])
				continue;
			totals.done++;
			(void)snprintf(name, sizeof(name), "%u-%u", writer->index, number);
			assert_int_equal(
				store_lookup(writer->store, &writer->dir, name, &file, &attr), 0);
			assert_int_equal(attr.size, FILE_BYTES);
			assert_int_equal(attr.mode, S_IFREG | 04755);
			assert_int_equal(attr.uid, 1234);
			assert_int_equal(attr.gid, 5678);
			assert_pattern(writer->store, &file, seed_of(writer, number), FILE_BYTES);
		}
	}
	return totals;
}

static struct totals kill_under_writers(struct store *store, const char *name)
{
	struct writer *writers = xcalloc(WRITERS, sizeof(*writers));
	struct locator root = root_of(store), dir = make_dir(store, &root, name);
	atomic_bool is_over = false;
	struct totals totals;
	pid_t old = server_pid();

	start_writers(writers, store, dir, &is_over);
	pause_ms(500);
	signal_server(SIGKILL);
	await_server(old);
	pause_ms(500);
	totals = finish_writers(writers, &is_over);
	free(writers);
	remove_tree(store, &root, name);
	return totals;
}

static void killed_server_makes_changes_unknown_but_never_wrong(void **state)
{
	struct store *store = open_store(server_url, 4, true);
	struct totals totals = kill_under_writers(store, "soft");

	(void)state;
	print_message("%u files written, %u unknown, %u not reached\n", totals.done, totals.unknown,
		      totals.down);
	assert_true(totals.done > 0);
	assert_true(totals.unknown > 0);
	/* The new server has answered writes: nothing of the old one can land. */
	assert_int_equal(store_last_loss_ms(store), 0);
	store_close(store);
}

static void killed_server_is_waited_for_after_the_flip(void **state)
{
	struct store *store = open_store(server_url, 4, true);
	struct totals totals;

	(void)state;
	store_set_reports_unknown(store, false);
	totals = kill_under_writers(store, "hard");
	print_message("%u files written\n", totals.done);
	assert_true(totals.done > 0);
	assert_int_equal(totals.unknown, 0);
	assert_int_equal(totals.down, 0);
	store_close(store);
}

/* ---- a server that is away, or stopped ----------------------------------------------- */

static void unreachable_server_is_hostdown_within_the_timeout(void **state)
{
	struct store *store = open_impatient(server_url, 2, true, "1500");
	struct locator root = root_of(store), file;
	struct store_attr attr;
	pid_t old = server_pid();
	uint64_t begin_ms;

	(void)state;
	hold_server(true);
	signal_server(SIGKILL);
	begin_ms = clock_ms();
	assert_int_equal(store_getattr(store, &root, &attr), -EHOSTDOWN);
	assert_in_range(clock_ms() - begin_ms, 1000, 4000);
	assert_int_equal(create_file(store, &root, "never", &file), -EHOSTDOWN);
	hold_server(false);
	await_server(old);
	pause_ms(1000); /* its connections come back by themselves */
	assert_int_equal(store_getattr(store, &root, &attr), 0);
	assert_false(has_name(store, &root, "never"));
	store_close(store);
}

static void *write_in_background(void *private)
{
	struct writer *writer = private;

	writer->failure = write_one(writer, 0);
	return NULL;
}

static void stopped_server_makes_a_change_unknown(void **state)
{
	struct store *store = open_impatient(server_url, 1, true, "1000");
	struct locator root = root_of(store), file;
	struct store_attr attr;

	(void)state;
	assert_int_equal(create_file(store, &root, "file", &file), 0);
	assert_int_equal(store_last_loss_ms(store), 0);
	signal_server(SIGSTOP);
	assert_int_equal(write_pattern(store, &file, 1, 1000, true), STORE_E_UNKNOWN);
	assert_true(store_last_loss_ms(store) > 0);
	assert_int_equal(store_getattr(store, &file, &attr), -EHOSTDOWN);
	signal_server(SIGCONT);
	pause_ms(3000);
	assert_int_equal(store_getattr(store, &file, &attr), 0);
	/* The same server lives on: what was under way may still land. */
	assert_int_equal(write_pattern(store, &file, 2, 1000, true), 0);
	assert_true(store_last_loss_ms(store) > 0);
	assert_int_equal(store_unlink(store, &root, "file"), 0);
	store_close(store);
}

static void stopped_server_is_waited_for_after_the_flip(void **state)
{
	const unsigned stops_ms[] = { 2000, 7000 }; /* shorter and longer than 4 timeouts */
	struct store *store = open_impatient(server_url, 1, false, "1000");
	struct locator root = root_of(store), dir = make_dir(store, &root, "dir"), file;
	struct store_attr attr;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(stops_ms); i++) {
		struct writer writer = { .store = store, .dir = dir };

		signal_server(SIGSTOP);
		assert_int_equal(pthread_create(&writer.thread, NULL, write_in_background, &writer),
				 0);
		pause_ms(stops_ms[i]);
		signal_server(SIGCONT);
		assert_int_equal(pthread_join(writer.thread, NULL), 0);
		assert_int_equal(writer.failure, 0);
		assert_int_equal(store_lookup(store, &dir, "0-0", &file, &attr), 0);
		assert_pattern(store, &file, 0, FILE_BYTES);
		assert_int_equal(store_unlink(store, &dir, "0-0"), 0);
	}
	remove_tree(store, &root, "dir");
	store_close(store);
}

/* ---- durability ------------------------------------------------------------------------ */

static void restart_between_write_and_commit_is_lost(void **state)
{
	struct store *store = open_store(server_url, 2, true);
	struct locator root = root_of(store), one, two;
	struct store_file *file;

	(void)state;
	assert_int_equal(create_file(store, &root, "one", &one), 0);
	assert_int_equal(create_file(store, &root, "two", &two), 0);

	/* Nothing happened in between. */
	assert_int_equal(write_pattern(store, &one, 1, FILE_BYTES, false), 0);
	assert_int_equal(store_commit(store), 0);

	/* Only one of two files is concerned; it is written on after the restart. */
	assert_int_equal(write_pattern(store, &one, 1, FILE_BYTES, false), 0);
	pause_ms(1100); /* the server's verifier is the second it started in */
	restart_server();
	assert_int_equal(write_pattern(store, &one, 2, 100, false), 0);
	assert_int_equal(write_pattern(store, &two, 2, 100, false), 0);
	assert_int_equal(store_commit(store), STORE_E_LOST);
	assert_int_equal(store_commit(store), 0); /* was said once */

	/* Found by fsync: its caller has an error, and the next commit says it to all. */
	assert_int_equal(write_pattern(store, &two, 3, FILE_BYTES, false), 0);
	restart_server();
	assert_int_equal(store_open(store, &two, STORE_OPEN_WRITE, &file), 0);
	assert_int_equal(store_fsync(file, false), -EIO);
	assert_int_equal(store_fsync(file, false), 0);
	assert_int_equal(store_commit(store), STORE_E_LOST);
	assert_int_equal(store_commit(store), 0);
	store_file_close(file);

	/* Stable writes are no part of it. */
	assert_int_equal(write_pattern(store, &one, 4, FILE_BYTES, true), 0);
	restart_server();
	assert_int_equal(store_commit(store), 0);
	assert_pattern(store, &one, 4, FILE_BYTES);
	assert_int_equal(store_unlink(store, &root, "one"), 0);

	/* A file that is gone has nothing to lose. */
	assert_int_equal(write_pattern(store, &two, 5, FILE_BYTES, false), 0);
	assert_int_equal(store_unlink(store, &root, "two"), 0);
	assert_int_equal(store_commit(store), 0);
	store_close(store);
}

/* ---- a bad line ---------------------------------------------------------------------- */

static struct rpc_proxy *open_proxy(char *ret_url, size_t size)
{
	struct nfsurl url;
	const char *why;
	struct rpc_proxy *proxy;

	assert_int_equal(nfsurl_parse(server_url, &url, &why), 0);
	proxy = rpc_proxy_new(url.nfs_port);
	assert_non_null(proxy);
	(void)snprintf(ret_url, size, "nfs://127.0.0.1%s?nfsport=%u&mountport=%u", url.export,
		       rpc_proxy_port(proxy), url.mount_port);
	return proxy;
}

enum { READ_FILE_BYTES = 16 * 1024 * 1024, READERS = 8, READS_EACH = 100 };

struct reader {
	pthread_t thread;
	struct store *store;
	struct locator object;
	const char *bytes;
	uint64_t seed;
	unsigned wrong_count;
	int failure;
};

static void *run_reader(void *private)
{
	struct reader *reader = private;
	struct rng rng = { .state = reader->seed };
	char *buffer = xcalloc(1, READ_FILE_BYTES);
	struct store_file *file;

	reader->failure = store_open(reader->store, &reader->object, STORE_OPEN_READ, &file);
	for (unsigned i = 0; i < READS_EACH && reader->failure == 0; i++) {
		size_t size = 1 + rng_below(&rng, i % 10 == 0 ? 3 * 1024 * 1024 : 128 * 1024);
		uint64_t offset = rng_below(&rng, READ_FILE_BYTES - size);
		ssize_t n = store_read(file, buffer, size, offset);

		if (n != (ssize_t)size)
			reader->failure = n < 0 ? (int)n : -EIO;
		else if (memcmp(buffer, reader->bytes + offset, size) != 0)
			reader->wrong_count++;
	}
	if (reader->failure == 0)
		store_file_close(file);
	free(buffer);
	return NULL;
}

static void replies_cut_in_the_middle_never_give_wrong_data(void **state)
{
	char url[URL_BYTES], *bytes = xcalloc(1, READ_FILE_BYTES);
	struct rpc_proxy *proxy = open_proxy(url, sizeof(url));
	struct store *store = open_store(url, 2, true);
	struct locator root = root_of(store), file;
	struct reader readers[READERS];

	(void)state;
	fill_bytes(bytes, READ_FILE_BYTES, 7, 0);
	assert_int_equal(create_file(store, &root, "file", &file), 0);
	assert_int_equal(write_pattern(store, &file, 7, READ_FILE_BYTES, true), 0);
	rpc_proxy_cut_after(proxy, 5 * 1024 * 1024 + 12345);
	for (unsigned i = 0; i < READERS; i++) {
		readers[i] = (struct reader){
			.store = store, .object = file, .bytes = bytes, .seed = i
		};
		assert_int_equal(pthread_create(&readers[i].thread, NULL, run_reader, &readers[i]),
				 0);
	}
	for (unsigned i = 0; i < READERS; i++) {
		assert_int_equal(pthread_join(readers[i].thread, NULL), 0);
		assert_int_equal(readers[i].failure, 0);
		assert_int_equal(readers[i].wrong_count, 0);
	}
	print_message("%u connections cut\n", rpc_proxy_cut_count(proxy));
	assert_true(rpc_proxy_cut_count(proxy) > 3);
	rpc_proxy_cut_after(proxy, 0);
	assert_int_equal(store_unlink(store, &root, "file"), 0);
	store_close(store);
	rpc_proxy_free(proxy);
	free(bytes);
}

/* Each changing call, done once with its reply lost. */
struct change {
	const char *name;
	unsigned procedure;
	int (*run)(struct store *store, const struct locator *dir);
};

static int make(struct store *store, const struct locator *dir, const char *name, mode_t type)
{
	const struct store_new new = { .mode = type | 0751,
				       .uid = 11,
				       .gid = 22,
				       .rdev = makedev(1, 3),
				       .link_target = S_ISLNK(type) ? "target" : NULL };
	struct locator locator;
	struct store_attr attr;
	int r = store_create(store, dir, name, &new, &locator, &attr);

	if (r == 0) {
		assert_int_equal(attr.uid, 11);
		assert_int_equal(attr.gid, 22);
		if (!S_ISLNK(type))
			assert_int_equal(attr.mode, type | 0751);
	}
	return r;
}

static int change_create(struct store *store, const struct locator *dir)
{
	return make(store, dir, "new", S_IFREG);
}

static int change_mkdir(struct store *store, const struct locator *dir)
{
	return make(store, dir, "newdir", S_IFDIR);
}

static int change_symlink(struct store *store, const struct locator *dir)
{
	return make(store, dir, "newlink", S_IFLNK);
}

static int change_mknod(struct store *store, const struct locator *dir)
{
	return make(store, dir, "newnode", S_IFCHR);
}

static int change_link(struct store *store, const struct locator *dir)
{
	struct store_attr attr;
	struct locator file;

	assert_int_equal(store_lookup(store, dir, "new", &file, &attr), 0);
	return store_link(store, &file, dir, "second");
}

static int change_rename(struct store *store, const struct locator *dir)
{
	return store_rename(store, dir, "second", dir, "third", 0);
}

static int change_remove(struct store *store, const struct locator *dir)
{
	return store_unlink(store, dir, "third");
}

static int change_rmdir(struct store *store, const struct locator *dir)
{
	return store_rmdir(store, dir, "newdir");
}

static int change_setattr(struct store *store, const struct locator *dir)
{
	const struct store_setattr set = { .valid = STORE_SET_SIZE | STORE_SET_UID | STORE_SET_MODE,
					   .uid = 33,
					   .mode = 06711,
					   .size = 99 };
	struct store_attr attr;
	struct locator file;

	assert_int_equal(store_lookup(store, dir, "new", &file, &attr), 0);
	return store_setattr(store, &file, &set, NULL);
}

static int change_write(struct store *store, const struct locator *dir)
{
	struct store_attr attr;
	struct locator file;

	assert_int_equal(store_lookup(store, dir, "new", &file, &attr), 0);
	return write_pattern(store, &file, 3, FILE_BYTES, true);
}

static const struct change changes[] = {
	{ "CREATE", NFS3_CREATE, change_create },    { "MKDIR", NFS3_MKDIR, change_mkdir },
	{ "SYMLINK", NFS3_SYMLINK, change_symlink }, { "MKNOD", NFS3_MKNOD, change_mknod },
	{ "LINK", NFS3_LINK, change_link },	     { "RENAME", NFS3_RENAME, change_rename },
	{ "REMOVE", NFS3_REMOVE, change_remove },    { "RMDIR", NFS3_RMDIR, change_rmdir },
	{ "SETATTR", NFS3_SETATTR, change_setattr }, { "WRITE", NFS3_WRITE, change_write },
};

/* Every change was carried out once, whatever its caller was told. */
static void assert_changed(struct store *store, const struct locator *dir)
{
	struct locator file;
	struct store_attr attr;

	assert_int_equal(store_lookup(store, dir, "new", &file, &attr), 0);
	assert_int_equal(attr.nlink, 1);
	assert_int_equal(attr.uid, 33);
	assert_int_equal(attr.size, FILE_BYTES);
	assert_pattern(store, &file, 3, FILE_BYTES);
	assert_true(has_name(store, dir, "newlink"));
	assert_true(has_name(store, dir, "newnode"));
	assert_false(has_name(store, dir, "newdir"));
	assert_false(has_name(store, dir, "second"));
	assert_false(has_name(store, dir, "third"));
}

static void lose_each_reply(bool reports_unknown)
{
	char url[URL_BYTES];
	struct rpc_proxy *proxy = open_proxy(url, sizeof(url));
	struct store *store = open_store(url, 1, reports_unknown);
	struct locator root = root_of(store), dir = make_dir(store, &root, "dir");

	for (size_t i = 0; i < ARRAY_SIZE(changes); i++) {
		int r;

		rpc_proxy_swallow(proxy, changes[i].procedure);
		r = changes[i].run(store, &dir);
		if (!rpc_proxy_has_swallowed(proxy))
			fail_msg("the reply to %s was not lost", changes[i].name);
		if (r != (reports_unknown ? STORE_E_UNKNOWN : 0))
			fail_msg("%s gave %d", changes[i].name, r);
		assert_true(store_last_loss_ms(store) > 0);
		if (reports_unknown && changes[i].procedure == NFS3_SETATTR)
			assert_int_equal(changes[i].run(store, &dir),
					 0); /* its second call is missing */
	}
	assert_changed(store, &dir);
	remove_tree(store, &root, "dir");
	store_close(store);
	rpc_proxy_free(proxy);
}

static void lost_reply_to_a_change_is_unknown(void **state)
{
	(void)state;
	lose_each_reply(true);
}

static void lost_reply_to_a_change_is_made_good_after_the_flip(void **state)
{
	(void)state;
	lose_each_reply(false);
}

/* A reply that is lost must not turn a failure into a success. */
static void lost_reply_does_not_hide_a_failure(void **state)
{
	char url[URL_BYTES];
	struct rpc_proxy *proxy = open_proxy(url, sizeof(url));
	struct store *store = open_store(url, 1, false);
	struct locator root = root_of(store), dir = make_dir(store, &root, "dir"), file;

	(void)state;
	assert_int_equal(create_file(store, &dir, "lock", &file), 0); /* looks like new */
	pause_ms(100);
	rpc_proxy_swallow(proxy, NFS3_CREATE);
	assert_int_equal(create_file(store, &dir, "lock", &file), -EEXIST);
	assert_true(rpc_proxy_has_swallowed(proxy));
	rpc_proxy_swallow(proxy, NFS3_MKDIR);
	assert_int_equal(make(store, &dir, "lock", S_IFDIR), -EEXIST);
	rpc_proxy_swallow(proxy, NFS3_RENAME);
	assert_int_equal(store_rename(store, &dir, "none", &dir, "gone", 0), -ENOENT);
	remove_tree(store, &root, "dir");
	store_close(store);
	rpc_proxy_free(proxy);
}

static void busy_server_is_asked_again(void **state)
{
	char url[URL_BYTES];
	struct rpc_proxy *proxy = open_proxy(url, sizeof(url));

	(void)state;
	for (int reports_unknown = 0; reports_unknown < 2; reports_unknown++) {
		struct store *store = open_store(url, 1, reports_unknown);
		struct locator root = root_of(store), dir = make_dir(store, &root, "dir"), file;

		for (unsigned i = 0; i < 10; i++) {
			rpc_proxy_jukebox(proxy, 3);
			assert_int_equal(create_file(store, &dir, "file", &file), 0);
			rpc_proxy_jukebox(proxy, 3);
			assert_int_equal(write_pattern(store, &file, i, FILE_BYTES, i % 2), 0);
			rpc_proxy_jukebox(proxy, 3);
			assert_int_equal(store_commit(store), 0);
			assert_pattern(store, &file, i, FILE_BYTES);
			rpc_proxy_jukebox(proxy, 3);
			assert_int_equal(store_unlink(store, &dir, "file"), 0);
			assert_int_equal(rpc_proxy_jukebox_left(proxy), 0);
		}
		remove_tree(store, &root, "dir");
		store_close(store);
	}
	rpc_proxy_free(proxy);
}

/* ---- opening and probing ----------------------------------------------------------------- */

static void open_says_what_is_wrong(void **state)
{
	struct nfsurl url;
	struct store *store = NULL;
	const char *why;
	char text[256];
	uint64_t begin_ms;

	(void)state;
	assert_int_equal(nfsurl_parse(server_url, &url, &why), 0);
	assert_int_equal(store_nfs_open("nfs://127.0.0.1/export?nfsport=1&mountport=1", 1, true,
					&store),
			 -ECONNREFUSED);
	assert_int_equal(store_nfs_open("nfs://host.invalid/export?nfsport=1&mountport=1", 1, true,
					&store),
			 -EHOSTUNREACH);
	assert_int_equal(store_nfs_open("nfs:/oops", 1, true, &store), -EINVAL);
	(void)snprintf(text, sizeof(text), "nfs://127.0.0.1/nothing?nfsport=%u&mountport=%u",
		       url.nfs_port, url.mount_port);
	assert_true(store_nfs_open(text, 1, true, &store) < 0);
	signal_server(SIGSTOP);
	begin_ms = clock_ms();
	assert_int_equal(store_nfs_open(server_url, 1, true, &store), -ETIMEDOUT);
	assert_in_range(clock_ms() - begin_ms, 1000, 12000);
	signal_server(SIGCONT);
	assert_null(store);
}

static void probe_finds_what_a_target_lacks(void **state)
{
	const struct {
		const char *variable;
		int r;
	} targets[] = {
		{ "NFS_URL", 0 },
		{ "NFS_READ_ONLY_URL", -EROFS },
		{ "NFS_SQUASHED_URL", -EPERM },
		{ "NFS_FULL_URL", -ENOSPC },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(targets); i++) {
		struct store *store;
		struct store_entry entry;
		struct store_dir *dir;
		struct locator root;

		if (!getenv(targets[i].variable))
			continue;
		store = open_store(getenv(targets[i].variable), 1, true);
		root = root_of(store);
		assert_int_equal(store_probe_target(store), targets[i].r);
		if (targets[i].r == 0) {
			assert_int_equal(store_caps(store)->time_granularity_ns, 1);
			assert_false(store_caps(store)->has_xattr);
			assert_true(store_caps(store)->has_handles);
		}
		assert_int_equal(store_dir_open(store, &root, &dir), 0);
		while (store_dir_next(dir, &entry) == 0) /* it leaves nothing behind */
			assert_int_not_equal(strncmp(entry.name, ".ferryfs", 8), 0);
		store_dir_close(dir);
		store_close(store);
	}
}

/* ---- speed, to be read by people ------------------------------------------------------------ */

struct load {
	pthread_t thread;
	struct store *store;
	struct locator dir;
	unsigned index, count;
};

static void *run_load(void *private)
{
	const struct store_setattr set = { .valid = STORE_SET_MODE | STORE_SET_MTIME,
					   .mode = 0644,
					   .mtime = { .tv_sec = 1000000000 } };
	struct load *load = private;
	struct locator file;
	char name[32];

	for (unsigned i = 0; i < load->count; i++) {
		(void)snprintf(name, sizeof(name), "%u-%u", load->index, i);
		if (create_file(load->store, &load->dir, name, &file) != 0 ||
		    write_pattern(load->store, &file, i, 4096, true) != 0 ||
		    store_setattr(load->store, &file, &set, NULL) != 0)
			die(TEST_TROUBLE, "a small file failed");
	}
	return NULL;
}

static void small_files_go_faster_with_many_threads(void **state)
{
	enum { FILES = 1024 };
	const unsigned thread_counts[] = { 1, 16, 64 };
	struct store *store = open_store(server_url, 2, true);
	struct locator root = root_of(store);
	struct load loads[64];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(thread_counts); i++) {
		struct locator dir = make_dir(store, &root, "load");
		unsigned count = thread_counts[i];
		uint64_t begin_ns = clock_ns();

		for (unsigned k = 0; k < count; k++) {
			loads[k] = (struct load){
				.store = store, .dir = dir, .index = k, .count = FILES / count
			};
			assert_int_equal(
				pthread_create(&loads[k].thread, NULL, run_load, &loads[k]), 0);
		}
		for (unsigned k = 0; k < count; k++)
			assert_int_equal(pthread_join(loads[k].thread, NULL), 0);
		print_message("%u threads: %.0f small files per second\n", count,
			      FILES * 1e9 / (double)(clock_ns() - begin_ns));
		remove_tree(store, &root, "load");
	}
	store_close(store);
}

static int run_conformance(void)
{
	int failed = 0;

	for (int reports_unknown = 0; reports_unknown < 2; reports_unknown++) {
		struct store *store;

		if (store_nfs_open(server_url, 2, reports_unknown, &store) != 0 ||
		    store_probe_target(store) != 0)
			return 1;
		failed += store_conformance_run(reports_unknown ? "nfs" : "nfs after the flip",
						store);
		store_close(store);
	}
	return failed;
}

int main(int argc, char *argv[])
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(open_says_what_is_wrong),
		cmocka_unit_test(probe_finds_what_a_target_lacks),
		cmocka_unit_test(lost_reply_to_a_change_is_unknown),
		cmocka_unit_test(lost_reply_to_a_change_is_made_good_after_the_flip),
		cmocka_unit_test(lost_reply_does_not_hide_a_failure),
		cmocka_unit_test(busy_server_is_asked_again),
		cmocka_unit_test(replies_cut_in_the_middle_never_give_wrong_data),
		cmocka_unit_test(restart_between_write_and_commit_is_lost),
		cmocka_unit_test(killed_server_makes_changes_unknown_but_never_wrong),
		cmocka_unit_test(killed_server_is_waited_for_after_the_flip),
		cmocka_unit_test(unreachable_server_is_hostdown_within_the_timeout),
		cmocka_unit_test(stopped_server_makes_a_change_unknown),
		cmocka_unit_test(stopped_server_is_waited_for_after_the_flip),
		cmocka_unit_test(small_files_go_faster_with_many_threads),
	};
	int failed;

	server_url = need_env("NFS_URL");
	server_dir = need_env("NFS_DIR");
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	failed = argc > 1 ? 0 : run_conformance();
	failed += cmocka_run_group_tests_name("store-nfs", tests, NULL, NULL);
	return failed > 0 ? 1 : 0;
}
