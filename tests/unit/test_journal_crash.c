/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the journal keeps when a process or the machine dies, the disk fills, or bytes of
 * its files change. The writers are processes of their own: see start_task().
 */
#include "journal/journal.h"

#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include "tests/unit/journal_fixture.h"
#include "util/attr.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/log.h"

/* ---- the writer ---------------------------------------------------------- */

/* Number @i of the writer: a batch over all families, which must be whole or absent. */
static int write_batch(struct journal *journal, uint64_t i)
{
	struct locator locator = locator_of(i);
	struct object object, old;
	struct synced synced = { .size = i };
	struct intent intent = { .number = i % 8, .op = INTENT_REMOVE, .object = i, .place = { 1, "x" } };
	struct journal_mark mark = { .kind = JOURNAL_MARK_DATA, .number = i, .value = i };
	char name[32];
	uint64_t id;

	if (journal_object_intern(journal, SIDE_A, &locator, S_IFREG, i, &id) != 0 ||
	    journal_object_get(journal, id, &old) != 0)
		return -EIO;
	object = old;
	object.locator[SIDE_B] = locator;
	mark.object = id;
	(void)snprintf(name, sizeof(name), "%08llu", (unsigned long long)i);
	journal_compose(journal);
	journal_put_number(journal, "first", i);
	journal_put_object(journal, &object, &old);
	journal_put_synced(journal, id, &synced);
	journal_put_shadow(journal, 3, name, id);
	journal_put_intents(journal, &intent, 1);
	journal_put_mark(journal, &mark);
	journal_put_number(journal, "last", i);
	return journal_flush(journal, journal_submit(journal));
}

/* The state that a killed writer leaves besides its journal: a mapped file. */
struct progress {
	volatile uint64_t flushed; /* the last batch acknowledged */
	volatile uint64_t id;	   /* the highest id seen */
	volatile uint64_t limit;   /* 0: for ever; else it stops there, as if killed */
	volatile uint64_t synced;  /* it syncs after this one */
};

static struct progress *map_progress(const char *journal_path)
{
	char path[4096];
	struct progress *progress;
	int fd;

	(void)snprintf(path, sizeof(path), "%s.progress", journal_path);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, sizeof(*progress)), 0);
	progress = mmap(NULL, sizeof(*progress), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(progress != MAP_FAILED);
	close(fd);
	return progress;
}

static int task_write(const char *path)
{
	struct progress *progress = map_progress(path);
	struct journal *journal;
	bool is_new;

	if (journal_open(path, &test_pair, &is_new, &journal) < 0)
		return 10;
	if (write(STDOUT_FILENO, "!", 1) != 1)
		return 11;
	for (uint64_t i = progress->flushed + 1; i <= progress->limit - 1; i++) {
		struct locator locator = locator_of(i);
		uint64_t id;

		if (write_batch(journal, i) < 0)
			return 12;
		if (journal_object_find(journal, SIDE_A, &locator, &id) != 0)
			return 13;
		if (i == progress->synced && journal_sync(journal) < 0)
			return 14;
		progress->flushed = i;
		progress->id = id;
	}
	_exit(0); /* without closing */
}

/* Writes batches up to number @count and dies. */
static void write_some(const char *name, uint64_t count, uint64_t synced)
{
	struct progress *progress = map_progress(test_path(name));

	progress->limit = count + 1;
	progress->synced = synced;
	assert_int_equal(run_task("write", test_path(name)), 0);
	assert_int_equal(progress->flushed, count);
	munmap(progress, sizeof(*progress));
}

static int open_code(const char *name)
{
	struct journal *journal = NULL;
	bool is_new;
	int r;

	r = journal_open(test_path(name), &test_pair, &is_new, &journal);
	journal_close(journal);
	return r;
}

/* ---- what must be there -------------------------------------------------- */

static void assert_batch(struct journal *journal, uint64_t i, bool is_whole)
{
	struct locator locator = locator_of(i);
	struct object object;
	struct synced synced;
	struct place place;
	char name[32];
	uint64_t id, found;

	(void)snprintf(name, sizeof(name), "%08llu", (unsigned long long)i);
	if (!is_whole) {
		/* Its object may have been interned, which is a batch before it. */
		assert_int_equal(journal_shadow_get(journal, 3, name, &found), JOURNAL_E_NONE);
		assert_int_equal(journal_object_find(journal, SIDE_B, &locator, &found),
				 JOURNAL_E_NONE);
		return;
	}
	assert_int_equal(journal_object_find(journal, SIDE_A, &locator, &id), 0);
	assert_int_equal(journal_object_find(journal, SIDE_B, &locator, &found), 0);
	assert_int_equal(found, id);
	assert_int_equal(journal_object_get(journal, id, &object), 0);
	assert_true(locator_equal(&object.locator[SIDE_B], &locator));
	assert_int_equal(object.ino, i);
	assert_int_equal(journal_synced_get(journal, id, &synced), 0);
	assert_int_equal(synced.size, i);
	assert_int_equal(journal_shadow_get(journal, 3, name, &found), 0);
	assert_int_equal(found, id);
	assert_int_equal(journal_place_get(journal, id, 0, NULL, &place), 0);
	assert_string_equal(place.name, name);
}

static int check_intent(void *context, const struct intent *intent)
{
	uint64_t last = *(uint64_t *)context;

	assert_int_equal(intent->object % 8, intent->number);
	assert_in_range(intent->object, last < 8 ? 0 : last - 7, last);
	return 0;
}

/* Returns the number of the last batch, all before which are whole. */
static uint64_t assert_prefix(struct journal *journal)
{
	struct journal_cursor *cursor;
	struct journal_mark mark;
	uint64_t first = 0, last = 0, marks = 0;

	assert_true(journal_number_get(journal, "first", &first) >= 0);
	assert_true(journal_number_get(journal, "last", &last) >= 0);
	assert_int_equal(first, last);
	for (uint64_t i = last > 300 ? last - 300 : 1; i <= last; i++)
		assert_batch(journal, i, true);
	assert_batch(journal, last + 1, false);
	assert_int_equal(journal_marks_open(journal, JOURNAL_MARK_DATA, &cursor), 0);
	while (journal_marks_next(cursor, &mark) == 0) {
		assert_int_equal(mark.value, mark.number);
		marks++;
	}
	journal_cursor_close(cursor);
	assert_int_equal(marks, last);
	assert_int_equal(journal_settle_intents(journal, check_intent, &last), 0);
	return last;
}

/* ---- death of the process ------------------------------------------------ */

static bool is_long(void)
{
	const char *value = getenv("FERRYFS_LONG");

	return value && strcmp(value, "1") == 0;
}

/* Goal: what was flushed is there, batches are whole, ids never come again. Method: kill
 * a writer at random, look, let the next one go on; also while it opens. */
static void a_killed_writer_loses_nothing_acknowledged(void **state)
{
	unsigned kills = is_long() ? 200 : 15;
	struct progress *progress = map_progress(test_path("k"));

	(void)state;
	progress->limit = UINT64_MAX;
	srandom((unsigned)getpid());
	for (unsigned i = 0; i < kills; i++) {
		struct journal *journal;
		uint64_t last, id;
		struct locator locator = locator_of(UINT64_MAX - i);
		int fd, pid;
		char byte;

		pid = start_task("write", test_path("k"), &fd);
		if (i % 4)
			assert_int_equal(read(fd, &byte, 1), 1);
		usleep((useconds_t)(random() % 100000));
		assert_int_equal(kill(pid, SIGKILL), 0);
		assert_true(WIFSIGNALED(wait_task(pid)));
		close(fd);

		journal = open_journal("k");
		last = assert_prefix(journal);
		assert_in_range(last, progress->flushed, progress->flushed + 1);
		assert_int_equal(journal_object_intern(journal, SIDE_A, &locator, S_IFREG, 1, &id), 0);
		assert_true(id > progress->id);
		progress->id = id;
		progress->flushed = last;
		journal_close(journal);
	}
	assert_true(progress->flushed > 0);
	munmap(progress, sizeof(*progress));
}

/* ---- damage -------------------------------------------------------------- */

/* The path of the newest write-ahead log of @name; returns its size. */
static off_t newest_log(const char *name, char ret_path[static 4096])
{
	unsigned long newest = 0;
	struct dirent *entry;
	struct stat st;
	char dir[4000];
	DIR *list;

	(void)snprintf(dir, sizeof(dir), "%s/db", test_path(name));
	list = opendir(dir);
	assert_non_null(list);
	while ((entry = readdir(list)))
		if (strstr(entry->d_name, ".log") && strtoul(entry->d_name, NULL, 10) > newest)
			newest = strtoul(entry->d_name, NULL, 10);
	closedir(list);
	assert_true(newest > 0);
	(void)snprintf(ret_path, 4096, "%s/%06lu.log", dir, newest);
	assert_int_equal(stat(ret_path, &st), 0);
	return st.st_size;
}

static void copy_journal(const char *from, const char *to)
{
	char command[9000];

	test_remove(test_path(to));
	(void)snprintf(command, sizeof(command), "cp -a '%s' '%s'", test_path(from), test_path(to));
	assert_int_equal(system(command), 0);
}

static void flip(const char *path, off_t at)
{
	int fd = open(path, O_RDWR);
	uint8_t byte;

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte ^= 0x41;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	close(fd);
}

/* A journal of 2,000 batches, the first 500 of them synced, that died. */
static int write_damaged(void **state)
{
	(void)state;
	write_some("d", 2000, 500);
	return 0;
}

static void an_unfinished_record_at_the_end_is_dropped(void **state)
{
	static const uint8_t unfinished[] = { 1, 2, 3, 4, 200, 0, 1, 'u', 'n', 'f', 'i', 'n' };
	struct journal *journal;
	char path[4096];
	int fd;

	(void)state;
	for (size_t length = 1; length <= sizeof(unfinished); length++) {
		copy_journal("d", "c");
		assert_true(newest_log("c", path) > 0);
		fd = open(path, O_WRONLY | O_APPEND);
		assert_int_equal(write(fd, unfinished, length), (ssize_t)length);
		close(fd);
		journal = open_journal("c");
		assert_int_equal(assert_prefix(journal), 2000);
		journal_close(journal);
	}
}

/* Any byte, be it of a checksum, a length or a type, near the end or not. It is refused
 * again the second time, and so is what a refused opening left. */
static void a_flipped_byte_is_refused(void **state)
{
	off_t size;
	char path[4096];

	(void)state;
	srandom(3);
	for (unsigned i = 0; i < (is_long() ? 200 : 20); i++) {
		copy_journal("d", "c");
		size = newest_log("c", path);
		assert_true(size > 10000);
		flip(path, i < 8 ? (off_t)i : i < 12 ? size - 1 - (off_t)i * 20 : random() % size);
		assert_int_equal(open_code("c"), -EBADMSG);
		assert_int_equal(open_code("c"), -EBADMSG);
	}
}

static void a_log_cut_short_or_gone_is_refused(void **state)
{
	off_t size;
	char path[4096];

	(void)state;
	copy_journal("d", "c");
	size = newest_log("c", path);
	assert_int_equal(truncate(path, size - 1), 0);
	assert_int_equal(open_code("c"), -EBADMSG);
	assert_int_equal(open_code("c"), -EBADMSG);
	copy_journal("d", "c");
	assert_int_equal(truncate(path, 0), 0);
	assert_int_equal(open_code("c"), -EBADMSG);
	copy_journal("d", "c");
	assert_int_equal(unlink(path), 0);
	assert_int_equal(open_code("c"), -EBADMSG);
	copy_journal("d", "c");
	assert_int_equal(open_code("c"), 0);
}

static void a_lost_journal_is_begun_anew(void **state)
{
	struct journal *journal;
	char path[4096];
	bool is_new;

	(void)state;
	copy_journal("d", "c");
	(void)snprintf(path, sizeof(path), "%s/db", test_path("c"));
	test_remove(path);
	assert_int_equal(journal_open(test_path("c"), &test_pair, &is_new, &journal), 0);
	assert_true(is_new);
	journal_close(journal);
}

/* A read error must not be taken for the end of the log. RocksDB reads logs with this
 * function, so ours is found in its place. */
static bool fails_reads;

#undef fread_unlocked
size_t fread_unlocked(void *bytes, size_t size, size_t count, FILE *file)
{
	char link[64], path[4096];
	ssize_t n;

	if (!fails_reads)
		return fread(bytes, size, count, file);
	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fileno(file));
	n = readlink(link, path, sizeof(path));
	if (n < 4 || memcmp(path + n - 4, ".log", 4) != 0)
		return fread(bytes, size, count, file);
	errno = EIO;
	return 0;
}

static void a_log_that_cannot_be_read_is_refused(void **state)
{
	struct journal *journal;

	(void)state;
	copy_journal("d", "c");
	fails_reads = true;
	assert_int_equal(open_code("c"), -EIO);
	fails_reads = false;
	journal = open_journal("c");
	assert_int_equal(assert_prefix(journal), 2000);
	journal_close(journal);
}

/* ---- death of the machine ------------------------------------------------ */

/* Makes the watermark one of another boot (docs/journal-format.md). */
static void change_boot(const char *name)
{
	uint8_t file[72];
	uint64_t checksum;
	char path[4096];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/watermark", test_path(name));
	fd = open(path, O_RDWR);
	assert_int_equal(pread(fd, file, sizeof(file), 0), sizeof(file));
	file[12] = file[12] == 'a' ? 'b' : 'a';
	checksum = htobe64(XXH3_64bits(file, 64));
	memcpy(file + 64, &checksum, 8);
	assert_int_equal(pwrite(fd, file, sizeof(file), 0), sizeof(file));
	close(fd);
}

/* Goal: after a power loss the unsynced end may be gone or garbage, the synced part may
 * not. Method: spoil the log at many places, under another boot id. */
static void a_power_loss_costs_what_was_not_synced(void **state)
{
	off_t size;
	char path[4096];
	unsigned refused = 0, opened = 0;

	(void)state;
	for (unsigned i = 0; i < 20; i++) {
		struct journal *journal;
		bool is_new;
		int r;

		copy_journal("d", "c");
		change_boot("c");
		size = newest_log("c", path);
		if (i % 2)
			flip(path, size * i / 20);
		else
			assert_int_equal(truncate(path, size * i / 20), 0);
		r = journal_open(test_path("c"), &test_pair, &is_new, &journal);
		if (r == 0) {
			assert_false(is_new);
			assert_in_range(assert_prefix(journal), 500, 2000);
			journal_close(journal);
			opened++;
		} else {
			assert_int_equal(r, -EBADMSG);
			assert_true(i <= 6); /* about a quarter was synced */
			refused++;
		}
	}
	assert_true(refused > 0 && opened > 10);
}

static void another_boot_after_a_clean_close_is_strict(void **state)
{
	char path[4096];

	(void)state;
	copy_journal("d", "c");
	journal_close(open_journal("c")); /* what it recovered is in tables now */
	{
		struct journal *journal = open_journal("c");

		FLUSHED(journal, journal_put_number(journal, "a", 1));
		journal_close(journal);
	}
	change_boot("c");
	assert_int_equal(truncate(path, newest_log("c", path) - 1), 0);
	assert_int_equal(open_code("c"), -EBADMSG);
}

/* ---- a full disk --------------------------------------------------------- */

enum { DISK_BYTES = 64 << 20 };

static bool has_all_marks(struct journal *journal, uint64_t count)
{
	struct journal_cursor *cursor;
	struct journal_mark mark;
	uint64_t found = 0;

	if (journal_marks_open(journal, JOURNAL_MARK_ATTR, &cursor) < 0)
		return false;
	while (journal_marks_next(cursor, &mark) == 0)
		found++;
	journal_cursor_close(cursor);
	return found >= count;
}

static void fill_disk(int fd, off_t left)
{
	static const uint8_t bytes[1 << 16];
	off_t size = lseek(fd, 0, SEEK_END);
	ssize_t n;

	while ((n = write(fd, bytes, sizeof(bytes))) > 0)
		size += n;
	if (ftruncate(fd, size > left ? size - left : 0) < 0)
		abort();
}

/* Writes until it fails on a disk with so much left; then, with room again, everything
 * acknowledged must be there. */
static int fill_and_reopen(const char *dir, off_t left)
{
	char state[4096], ballast[4096];
	struct journal *journal;
	uint64_t count = 0;
	bool is_new;
	int fd, r = 0;

	(void)snprintf(state, sizeof(state), "%s/state", dir);
	(void)snprintf(ballast, sizeof(ballast), "%s/ballast", dir);
	if (journal_open(state, &test_pair, &is_new, &journal) < 0)
		return 20;
	fd = open(ballast, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	fill_disk(fd, left);
	while (r == 0 && count < 4000000) {
		journal_compose(journal);
		for (unsigned i = 0; i < 10; i++) {
			struct journal_mark mark = { .kind = JOURNAL_MARK_ATTR, .object = count + i + 1 };
			char name[64];

			(void)snprintf(name, sizeof(name), "%lx%lx%lx", random(), random(), random());
			journal_put_mark(journal, &mark);
			journal_put_shadow(journal, count + 1, name, count + 1);
		}
		r = journal_flush(journal, journal_submit(journal));
		if (r == 0)
			count += 10;
	}
	if (r != -ENOSPC || !journal_is_failed(journal))
		return 21;
	journal_close(journal);
	fill_disk(fd, 0);
	if (journal_open(state, &test_pair, &is_new, &journal) != -ENOSPC)
		return 22;
	close(fd);
	if (unlink(ballast) < 0 || journal_open(state, &test_pair, &is_new, &journal) < 0 || is_new)
		return 23;
	r = has_all_marks(journal, count) ? 0 : 24;
	journal_close(journal);
	return r;
}

static int task_fill(const char *dir)
{
	static const off_t left[] = { 0, 1 << 20, 6 << 20, 20 << 20 };

	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return 77;
	for (size_t i = 0; i < ARRAY_SIZE(left); i++) {
		char options[32];
		int r;

		(void)snprintf(options, sizeof(options), "size=%d", DISK_BYTES);
		if (mount("ferryfs-test", dir, "tmpfs", 0, options) < 0)
			return 77;
		r = fill_and_reopen(dir, left[i]);
		if (umount2(dir, MNT_DETACH) < 0)
			return 30;
		if (r != 0)
			return r;
	}
	return 0;
}

static void a_full_disk_fails_the_journal_and_loses_nothing(void **state)
{
	int status;

	(void)state;
	assert_int_equal(mkdir(test_path("disk"), 0700), 0);
	status = run_task("fill", test_path("disk"));
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip(); /* it needs a mount namespace */
	assert_int_equal(WEXITSTATUS(status), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_killed_writer_loses_nothing_acknowledged),
		cmocka_unit_test(an_unfinished_record_at_the_end_is_dropped),
		cmocka_unit_test(a_flipped_byte_is_refused),
		cmocka_unit_test(a_log_cut_short_or_gone_is_refused),
		cmocka_unit_test(a_lost_journal_is_begun_anew),
		cmocka_unit_test(a_log_that_cannot_be_read_is_refused),
		cmocka_unit_test(a_power_loss_costs_what_was_not_synced),
		cmocka_unit_test(another_boot_after_a_clean_close_is_strict),
		cmocka_unit_test(a_full_disk_fails_the_journal_and_loses_nothing),
	};

	if (argc == 3 && strcmp(argv[1], "write") == 0)
		return task_write(argv[2]);
	if (argc == 3 && strcmp(argv[1], "fill") == 0)
		return task_fill(argv[2]);
	(void)test_dir(); /* made before any thread is */
	return cmocka_run_group_tests(tests, write_damaged, NULL);
}
