/* SPDX-License-Identifier: Apache-2.0 */
/* What the journal promises while nothing dies; test_journal_crash.c has the rest. */
#include "journal/journal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "journal/rocks.h"
#include "tests/unit/journal_fixture.h"
#include "util/log.h"

static const struct locator no_locator;

/* A journal of its own for each case. */
static int set_up(void **state)
{
	test_remove(test_path("j"));
	*state = open_journal("j");
	return 0;
}

static int tear_down(void **state)
{
	journal_close(*state);
	return 0;
}

static void reopen(void **state)
{
	journal_close(*state);
	*state = open_journal("j");
}

/* ---- the directory ------------------------------------------------------- */

static void opening_makes_the_directory_with_its_parents(void **state)
{
	struct journal *journal;
	uint64_t uuid;
	struct stat st;
	bool is_new;

	(void)state;
	assert_int_equal(journal_open(test_path("a//b/c/"), &test_pair, &is_new, &journal), 0);
	assert_true(is_new);
	uuid = journal_uuid(journal);
	journal_close(journal);
	assert_int_equal(stat(test_path("a/b/c"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	assert_int_equal(journal_open(test_path("a/b/c"), &test_pair, &is_new, &journal), 0);
	assert_false(is_new);
	assert_int_equal(journal_uuid(journal), uuid);
	assert_null(journal_close(journal));
	assert_null(journal_close(NULL));
}

static int open_code(const char *path, const struct journal_pair *pair)
{
	struct journal *journal = NULL;
	bool is_new;
	int r;

	r = journal_open(path, pair, &is_new, &journal);
	assert_int_equal(r == 0, journal != NULL);
	journal_close(journal);
	return r;
}

/* In a process of its own: exits with the errno of opening @path. */
static int task_open(const char *path)
{
	struct journal *journal;
	bool is_new;

	return -journal_open(path, &test_pair, &is_new, &journal);
}

static void a_second_process_is_refused(void **state)
{
	int status = run_task("open", test_path("j"));

	(void)state;
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), EBUSY);
}

static void another_pair_is_refused(void **state)
{
	struct journal_pair pair = test_pair;

	*state = journal_close(*state);
	pair.target_identity = "nfs:3";
	assert_int_equal(open_code(test_path("j"), &pair), -EXDEV);
	pair = test_pair;
	pair.source_identity = "nfs:3";
	assert_int_equal(open_code(test_path("j"), &pair), -EXDEV);
	pair = test_pair;
	pair.source = "/another/name/of/it";
	assert_int_equal(open_code(test_path("j"), &pair), 0);
	assert_int_equal(open_code(test_path("j"), &test_pair), 0);
}

/* Opens the database below the journal and hands it to @change. */
static void change_database(void (*change)(struct rocks *rocks))
{
	struct rocks rocks;

	assert_int_equal(rocks_open(&rocks, test_path("j/db"), ROCKS_RECOVER_PROCESS), 0);
	change(&rocks);
	rocks_close(&rocks);
}

static void put_meta(struct rocks *rocks, const char *name, const void *value, size_t length)
{
	char *text = NULL;

	rocksdb_put_cf(rocks->db, rocks->write, rocks->column[COLUMN_META], name, strlen(name), value,
		       length, &text);
	assert_null(text);
}

static void raise_format(struct rocks *rocks)
{
	put_meta(rocks, "format", "\0\0\0\0\0\0\0\2", 8);
}

static void spoil_format(struct rocks *rocks)
{
	put_meta(rocks, "format", "2", 1);
}

static void add_family(struct rocks *rocks)
{
	rocksdb_options_t *options = rocksdb_options_create();
	char *text = NULL;

	rocksdb_column_family_handle_destroy(
		rocksdb_create_column_family(rocks->db, options, "of_a_later_version", &text));
	rocksdb_options_destroy(options);
	assert_null(text);
}

static void a_newer_format_is_refused(void **state)
{
	*state = journal_close(*state);
	change_database(raise_format);
	assert_int_equal(open_code(test_path("j"), &test_pair), -EPROTO);
	change_database(spoil_format);
	assert_int_equal(open_code(test_path("j"), &test_pair), -EBADMSG);
}

static void a_family_of_a_later_version_is_left_alone(void **state)
{
	*state = journal_close(*state);
	change_database(add_family);
	assert_int_equal(open_code(test_path("j"), &test_pair), 0);
	assert_int_equal(open_code(test_path("j"), &test_pair), 0);
}

static void a_directory_of_something_else_is_refused(void **state)
{
	(void)state;
	assert_int_equal(mkdir(test_path("other"), 0755), 0);
	assert_int_equal(mkdir(test_path("other/photos"), 0755), 0);
	assert_int_equal(open_code(test_path("other"), &test_pair), -ENOTEMPTY);
	assert_int_equal(rmdir(test_path("other/photos")), 0);
	assert_int_equal(rmdir(test_path("other")), 0); /* nothing was put there */
	close(open(test_path("file"), O_CREAT | O_WRONLY, 0600));
	assert_int_equal(open_code(test_path("file"), &test_pair), -ENOTDIR);
	assert_int_equal(open_code(test_path("file/below"), &test_pair), -ENOTDIR);
	assert_int_equal(open_code("", &test_pair), -ENAMETOOLONG);
}

static void a_root_of_a_file_system_may_be_the_directory(void **state)
{
	(void)state;
	assert_int_equal(mkdir(test_path("root"), 0755), 0);
	assert_int_equal(mkdir(test_path("root/lost+found"), 0700), 0);
	assert_int_equal(open_code(test_path("root"), &test_pair), 0);
}

/* Of entries in @path; -1: it is not there. */
static int count_entries(const char *path)
{
	DIR *list = opendir(path);
	int count = 0;

	if (!list)
		return -1;
	while (readdir(list))
		count++;
	closedir(list);
	return count;
}

/* Opens @path with room for more and more file descriptors, until that goes well. Exits
 * with 0 if until then nothing appeared or disappeared. */
static int task_open_limited(const char *path)
{
	enum { FDS_MIN = 4, FDS_MAX = 64 };
	int before = count_entries(path), failures = 0;

	for (rlim_t fds = FDS_MIN; fds < FDS_MAX; fds++) {
		struct rlimit limit = { .rlim_cur = fds, .rlim_max = FDS_MAX };
		int r;

		if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
			return 10;
		r = open_code(path, &test_pair);
		limit.rlim_cur = FDS_MAX;
		if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
			return 11;
		if (r == 0)
			return failures > 5 ? 0 : 12;
		failures++;
		if (count_entries(path) != before)
			return 13;
	}
	return 14;
}

/* Goal: what a failing open has made is gone, what was there is not. Method: let it fail
 * at each of its files. */
static void a_failure_leaves_what_was_there(void **state)
{
	uint64_t uuid = journal_uuid(*state);

	*state = journal_close(*state);
	assert_int_equal(run_task("open-limited", test_path("new/parent/dir")), 0);
	assert_int_equal(mkdir(test_path("empty"), 0755), 0);
	assert_int_equal(run_task("open-limited", test_path("empty")), 0);
	assert_int_equal(run_task("open-limited", test_path("j")), 0);
	*state = open_journal("j");
	assert_int_equal(journal_uuid(*state), uuid);
}

/* ---- composing ----------------------------------------------------------- */

static uint64_t number_of(struct journal *journal, const char *name)
{
	uint64_t value = 0;
	int r = journal_number_get(journal, name, &value);

	assert_true(r == 0 || r == JOURNAL_E_NONE);
	return value;
}

static void reading_sees_what_was_flushed(void **state)
{
	struct journal *journal = *state;
	uint64_t seq;

	journal_compose(journal);
	journal_put_number(journal, "a", 1);
	journal_put_number(journal, "b", 2);
	seq = journal_submit(journal);
	assert_int_equal(number_of(journal, "a"), 0);
	assert_true(journal_flushed(journal) < seq);
	assert_int_equal(journal_flush(journal, seq), 0);
	assert_int_equal(journal_flushed(journal), seq);
	assert_int_equal(number_of(journal, "a"), 1);
	assert_int_equal(number_of(journal, "b"), 2);
	assert_int_equal(journal_flush(journal, seq), 0);

	journal_compose(journal);
	assert_int_equal(journal_submit(journal), seq); /* nothing composed */
	reopen(state);
	assert_int_equal(number_of(*state, "b"), 2);
}

static void closing_flushes(void **state)
{
	journal_compose(*state);
	journal_put_number(*state, "a", 1);
	(void)journal_submit(*state); /* closing does it */
	reopen(state);
	assert_int_equal(number_of(*state, "a"), 1);
}

static void much_that_is_pending_is_written(void **state)
{
	struct journal *journal = *state;
	uint64_t seq = 0;

	for (unsigned i = 0; i < 100000; i++) {
		journal_compose(journal);
		journal_put_shadow(journal, 5, "a name of some length that fills the batch", i + 1);
		seq = journal_submit(journal);
	}
	assert_true(journal_flushed(journal) > 0);
	assert_int_equal(journal_flush(journal, seq), 0);
}

static void a_sync_covers_what_was_flushed(void **state)
{
	struct journal *journal = *state;

	FLUSHED(journal, journal_put_number(journal, "a", 1));
	assert_true(journal_synced(journal) < journal_flushed(journal));
	assert_int_equal(journal_sync(journal), 0);
	assert_int_equal(journal_synced(journal), journal_flushed(journal));
	assert_int_equal(journal_sync(journal), 0);
}

/* ---- objects ------------------------------------------------------------- */

static uint64_t intern(struct journal *journal, enum side side, uint64_t number)
{
	struct locator locator = locator_of(number);
	uint64_t id;

	assert_int_equal(journal_object_intern(journal, side, &locator, S_IFREG, number, &id), 0);
	return id;
}

/* 0: none. */
static uint64_t find(struct journal *journal, enum side side, uint64_t number)
{
	struct locator locator = locator_of(number);
	uint64_t id = 0;
	int r;

	r = journal_object_find(journal, side, &locator, &id);
	assert_true(r == 0 || r == JOURNAL_E_NONE);
	return id;
}

static struct object get(struct journal *journal, uint64_t id)
{
	struct object object;

	assert_int_equal(journal_object_get(journal, id, &object), 0);
	assert_int_equal(object.id, id);
	return object;
}

static void interning_gives_one_id_to_a_locator(void **state)
{
	struct journal *journal = *state;
	struct object object;
	uint64_t id = intern(journal, SIDE_A, 1);

	assert_int_equal(id, JOURNAL_FIRST_ID);
	assert_int_equal(intern(journal, SIDE_A, 1), id);
	assert_int_equal(find(journal, SIDE_A, 1), id);
	assert_int_equal(find(journal, SIDE_B, 1), 0);
	assert_int_equal(intern(journal, SIDE_B, 1), id + 1);
	object = get(journal, id);
	assert_int_equal(object.ino, 1);
	assert_int_equal(object.type, S_IFREG);
	assert_true(locator_is_null(&object.locator[SIDE_B]));
	object = get(journal, intern(journal, SIDE_A, 0));
	assert_int_equal(object.ino, (UINT64_C(1) << 48) + object.id);
	reopen(state);
	assert_int_equal(intern(*state, SIDE_A, 1), id);
}

static void a_put_moves_the_index(void **state)
{
	struct journal *journal = *state;
	struct object old = get(journal, intern(journal, SIDE_A, 1)), object = old;

	object.locator[SIDE_B] = locator_of(2);
	FLUSHED(journal, journal_put_object(journal, &object, &old));
	assert_int_equal(find(journal, SIDE_A, 1), old.id);
	assert_int_equal(find(journal, SIDE_B, 2), old.id);

	old = object;
	object.locator[SIDE_A] = no_locator;
	object.locator[SIDE_B] = locator_of(3);
	journal_compose(journal);
	journal_put_object(journal, &object, &old);
	(void)journal_submit(journal); /* the finds below flush it */
	assert_int_equal(find(journal, SIDE_A, 1), 0);
	assert_int_equal(find(journal, SIDE_B, 2), 0);
	assert_int_equal(find(journal, SIDE_B, 3), old.id);
	object = get(journal, old.id);
	assert_true(locator_is_null(&object.locator[SIDE_A]));
}

static void a_deleted_object_is_gone(void **state)
{
	struct journal *journal = *state;
	struct object object = get(journal, intern(journal, SIDE_A, 1));
	struct synced synced = { .size = 1 };

	FLUSHED(journal, journal_put_synced(journal, object.id, &synced));
	FLUSHED(journal, journal_delete_object(journal, &object));
	assert_int_equal(find(journal, SIDE_A, 1), 0);
	assert_int_equal(journal_object_get(journal, object.id, &object), JOURNAL_E_NONE);
	assert_int_equal(journal_synced_get(journal, object.id, &synced), JOURNAL_E_NONE);
}

/* The delete and the new object meet in one pending batch, in either order of flushes. */
static void a_locator_seen_again_is_a_new_object(void **state)
{
	struct journal *journal = *state;

	for (int i = 0; i < 3; i++) {
		struct object object = get(journal, intern(journal, SIDE_A, 1));
		uint64_t id;

		journal_compose(journal);
		journal_delete_object(journal, &object);
		if (i == 0)
			assert_int_equal(journal_flush(journal, journal_submit(journal)), 0);
		else
			(void)journal_submit(journal); /* pending */
		id = intern(journal, SIDE_A, 1);
		assert_true(id > object.id);
		assert_int_equal(find(journal, SIDE_A, 1), id);
		assert_int_equal(journal_object_get(journal, object.id, &object), JOURNAL_E_NONE);
		reopen(state);
		journal = *state;
		assert_int_equal(find(journal, SIDE_A, 1), id);
	}
}

static void the_root_keeps_its_locators(void **state)
{
	struct locator a = locator_of(1), b = locator_of(2), other = locator_of(3);
	struct journal *journal = *state;
	struct object root;

	assert_int_equal(journal_set_root(journal, SIDE_A, &a, S_IFDIR, 0), 0);
	assert_int_equal(journal_set_root(journal, SIDE_B, &b, S_IFDIR, 9), 0);
	assert_int_equal(journal_set_root(journal, SIDE_A, &a, S_IFDIR, 7), 0);
	assert_int_equal(journal_set_root(journal, SIDE_A, &other, S_IFDIR, 7), -EXDEV);
	assert_int_equal(journal_set_root(journal, SIDE_B, &a, S_IFDIR, 7), -EXDEV);
	root = get(journal, JOURNAL_ROOT_ID);
	assert_int_equal(root.ino, (UINT64_C(1) << 48) + 1);
	assert_int_equal(find(journal, SIDE_B, 2), JOURNAL_ROOT_ID);
	assert_int_equal(intern(journal, SIDE_A, 1), JOURNAL_ROOT_ID);
}

static void objects_are_counted(void **state)
{
	struct journal *journal = *state;

	for (uint64_t i = 0; i < 1000; i++)
		(void)intern(journal, SIDE_A, i); /* for the count */
	assert_in_range(journal_object_count(journal), 900, 1100);
}

static void synced_attributes_are_kept(void **state)
{
	struct journal *journal = *state;
	struct synced synced = { .mode = 0644, .size = 12, .mtime = { 3, 4 } }, found;

	FLUSHED(journal, journal_put_synced(journal, 20, &synced));
	assert_int_equal(journal_synced_get(journal, 20, &found), 0);
	assert_int_equal(found.size, 12);
	assert_int_equal(found.mtime.tv_nsec, 4);
	assert_int_equal(journal_synced_get(journal, 21, &found), JOURNAL_E_NONE);
	FLUSHED(journal, journal_delete_synced(journal, 20));
	assert_int_equal(journal_synced_get(journal, 20, &found), JOURNAL_E_NONE);
}

/* ---- shadow -------------------------------------------------------------- */

static void the_shadow_lists_a_directory_in_order(void **state)
{
	static const char *const names[] = { "A", "a", "a.b", "ab", "b", "\xff\xfe" };
	struct journal *journal = *state;
	struct journal_cursor *cursor;
	char name[JOURNAL_NAME_MAX + 1];
	uint64_t id;

	journal_compose(journal);
	for (size_t i = ARRAY_SIZE(names); i-- > 0;)
		journal_put_shadow(journal, 0x200, names[i], 100 + i);
	journal_put_shadow(journal, 0x1ff, "before", 1);
	journal_put_shadow(journal, 0x201, "after", 1);
	journal_put_shadow(journal, UINT64_MAX, "last", 1);
	assert_int_equal(journal_flush(journal, journal_submit(journal)), 0);

	assert_int_equal(journal_shadow_open(journal, 0x200, &cursor), 0);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		assert_int_equal(journal_shadow_next(cursor, name, &id), 0);
		assert_string_equal(name, names[i]);
		assert_int_equal(id, 100 + i);
	}
	assert_int_equal(journal_shadow_next(cursor, name, &id), JOURNAL_E_END);
	assert_int_equal(journal_shadow_next(cursor, name, &id), JOURNAL_E_END);
	assert_null(journal_cursor_close(cursor));
	assert_int_equal(journal_shadow_open(journal, UINT64_MAX, &cursor), 0);
	assert_int_equal(journal_shadow_next(cursor, name, &id), 0);
	assert_string_equal(name, "last");
	assert_int_equal(journal_shadow_next(cursor, name, &id), JOURNAL_E_END);
	journal_cursor_close(cursor);
	assert_null(journal_cursor_close(NULL));

	assert_int_equal(journal_shadow_get(journal, 0x200, "a.b", &id), 0);
	assert_int_equal(id, 102);
	assert_int_equal(journal_shadow_get(journal, 0x200, "a.", &id), JOURNAL_E_NONE);
}

/* Goal: a cursor over a changing directory misses nothing that stays. Method: between
 * its steps, delete what it has passed and put names everywhere. */
static void a_cursor_misses_nothing_that_stays(void **state)
{
	enum { NAMES = 20000 };
	struct journal *journal = *state;
	struct journal_cursor *cursor;
	char name[JOURNAL_NAME_MAX + 1], other[32];
	unsigned expected = 0;
	uint64_t id;

	journal_compose(journal);
	for (unsigned i = 0; i < NAMES; i++) {
		(void)snprintf(name, sizeof(name), "%06u", i);
		journal_put_shadow(journal, 50, name, 1000 + i);
	}
	assert_int_equal(journal_flush(journal, journal_submit(journal)), 0);

	assert_int_equal(journal_shadow_open(journal, 50, &cursor), 0);
	while (journal_shadow_next(cursor, name, &id) == 0) {
		if (strlen(name) > 6)
			continue;
		assert_int_equal(atoi(name), expected);
		assert_int_equal(id, 1000 + expected);
		expected++;
		(void)snprintf(other, sizeof(other), "%06ux", (unsigned)random() % NAMES);
		FLUSHED(journal, journal_delete_shadow(journal, 50, name, id);
			journal_put_shadow(journal, 50, other, 7));
	}
	assert_int_equal(expected, NAMES);
	journal_cursor_close(cursor);
}

static void places_are_found_by_object(void **state)
{
	const struct place first = { 10, "one" };
	struct journal *journal = *state;
	struct place place;

	FLUSHED(journal, journal_put_shadow(journal, 10, "one", 99);
		journal_put_shadow(journal, 10, "two", 99); journal_put_shadow(journal, 11, "one", 99);
		journal_put_shadow(journal, 10, "three", 98));
	assert_int_equal(journal_place_get(journal, 99, 0, NULL, &place), 0);
	assert_int_equal(place.dir, 10);
	assert_string_equal(place.name, "one");
	assert_int_equal(journal_place_get(journal, 99, 0, &first, &place), 0);
	assert_string_equal(place.name, "two");
	assert_int_equal(journal_place_get(journal, 99, 1, &first, &place), 0);
	assert_int_equal(place.dir, 11);
	assert_int_equal(journal_place_get(journal, 99, 2, &first, &place), JOURNAL_E_NONE);
	assert_int_equal(journal_place_get(journal, 99, 3, NULL, &place), JOURNAL_E_NONE);
	assert_int_equal(journal_place_get(journal, 97, 0, NULL, &place), JOURNAL_E_NONE);

	FLUSHED(journal, journal_delete_shadow(journal, 10, "one", 99));
	assert_int_equal(journal_place_get(journal, 99, 0, NULL, &place), 0);
	assert_string_equal(place.name, "two");
}

/* ---- intents, marks ------------------------------------------------------ */

static int count_intent(void *context, const struct intent *intent)
{
	uint64_t *sum = context;

	if (intent->number == 13)
		return -ECANCELED;
	*sum += intent->number;
	return 0;
}

static void intents_are_found_until_settled(void **state)
{
	struct intent intent = { .op = INTENT_REMOVE, .object = 20, .place = { 10, "x" } };
	struct intent several[] = { intent, intent, intent };
	struct journal *journal = *state;
	uint64_t sum = 0;

	journal_compose(journal);
	for (intent.number = 1; intent.number <= 4; intent.number++)
		journal_put_intents(journal, &intent, 1);
	journal_delete_intents(journal, 3);
	for (unsigned i = 0; i < 3; i++)
		several[i].number = 7;
	journal_put_intents(journal, several, 3);
	assert_int_equal(journal_flush(journal, journal_submit(journal)), 0);
	reopen(state);
	journal = *state;
	assert_int_equal(journal_settle_intents(journal, count_intent, &sum), 0);
	assert_int_equal(sum, 1 + 2 + 4 + 3 * 7);
	sum = 0;
	assert_int_equal(journal_settle_intents(journal, count_intent, &sum), 0);
	assert_int_equal(sum, 0);
}

/* Method: the second record of three is not settled. */
static void intents_not_settled_are_found_again(void **state)
{
	struct intent intent = { .op = INTENT_REMOVE, .object = 20, .place = { 10, "x" } };
	struct journal *journal = *state;
	uint64_t sum = 0;

	journal_compose(journal);
	for (intent.number = 12; intent.number <= 14; intent.number++)
		journal_put_intents(journal, &intent, 1);
	assert_int_equal(journal_flush(journal, journal_submit(journal)), 0);
	assert_int_equal(journal_settle_intents(journal, count_intent, &sum), -ECANCELED);
	assert_int_equal(sum, 12);
	FLUSHED(journal, journal_delete_intents(journal, 13));
	assert_int_equal(journal_settle_intents(journal, count_intent, &sum), 0);
	assert_int_equal(sum, 12 + 14);
}

static unsigned count_marks(struct journal *journal, enum journal_mark_kind kind, uint64_t *ret_sum)
{
	struct journal_cursor *cursor;
	struct journal_mark mark;
	unsigned count = 0;

	*ret_sum = 0;
	assert_int_equal(journal_marks_open(journal, kind, &cursor), 0);
	/* As they were at the call. */
	FLUSHED(journal, journal_put_mark(journal, &(struct journal_mark){ .kind = kind,
									    .object = 1 << 20,
									    .name = "late" }));
	while (journal_marks_next(cursor, &mark) == 0) {
		assert_int_equal(mark.kind, kind);
		*ret_sum += mark.object + mark.value + (mark.number == JOURNAL_TAIL);
		count++;
	}
	journal_cursor_close(cursor);
	return count;
}

static void marks_are_listed_by_kind(void **state)
{
	static const struct journal_mark marks[] = {
		{ .kind = JOURNAL_MARK_SCAN, .object = 100, .value = 1 },
		{ .kind = JOURNAL_MARK_NAME, .object = 101, .name = "a" },
		{ .kind = JOURNAL_MARK_NAME, .object = 101, .name = "b" },
		{ .kind = JOURNAL_MARK_DATA, .object = 102, .number = 7 },
		{ .kind = JOURNAL_MARK_DATA, .object = 102, .number = 8 },
		{ .kind = JOURNAL_MARK_DATA, .object = 102, .number = JOURNAL_TAIL, .value = 4096 },
		{ .kind = JOURNAL_MARK_ATTR, .object = 103 },
	};
	struct journal *journal = *state;
	uint64_t sum;

	journal_compose(journal);
	for (size_t i = 0; i < ARRAY_SIZE(marks); i++)
		journal_put_mark(journal, &marks[i]);
	journal_delete_mark(journal, &marks[4]);
	assert_int_equal(journal_flush(journal, journal_submit(journal)), 0);
	assert_int_equal(count_marks(journal, JOURNAL_MARK_SCAN, &sum), 1);
	assert_int_equal(sum, 100 + 1);
	assert_int_equal(count_marks(journal, JOURNAL_MARK_NAME, &sum), 2);
	assert_int_equal(sum, 101 * 2);
	assert_int_equal(count_marks(journal, JOURNAL_MARK_DATA, &sum), 2);
	assert_int_equal(sum, 102 * 2 + 4096 + 1);
	assert_int_equal(count_marks(journal, JOURNAL_MARK_ATTR, &sum), 1);
	assert_int_equal(sum, 103);
}

static void numbers_are_kept(void **state)
{
	uint64_t value;

	FLUSHED(*state, journal_put_number(*state, "baseline/bytes", UINT64_MAX));
	reopen(state);
	assert_int_equal(journal_number_get(*state, "baseline/bytes", &value), 0);
	assert_true(value == UINT64_MAX);
	assert_int_equal(journal_number_get(*state, "format", &value), JOURNAL_E_NONE);
}

/* ---- threads ------------------------------------------------------------- */

enum { THREADS = 8, ROUNDS = 2000, LOCATORS = 500 };

static struct journal *shared;
static uint64_t ids[THREADS][LOCATORS];
static _Atomic uint64_t composed;

static void *compose_and_flush(void *argument)
{
	unsigned me = (unsigned)(uintptr_t)argument;
	struct journal_mark mark = { .kind = JOURNAL_MARK_DATA, .object = me + 1 };

	for (unsigned i = 0; i < ROUNDS; i++) {
		uint64_t seq, found;
		char name[16];

		(void)snprintf(name, sizeof(name), "t%u", me);
		mark.number = i;
		journal_compose(shared);
		journal_put_mark(shared, &mark);
		journal_put_number(shared, name, i + 1);
		journal_put_number(shared, "all", ++composed);
		seq = journal_submit(shared);
		if (i % 3 == 0)
			continue;
		if (journal_flush(shared, seq) < 0 || journal_flushed(shared) < seq)
			return (void *)1;
		if (journal_number_get(shared, name, &found) != 0 || found != i + 1)
			return (void *)2;
		if (i % 500 == 1 && (journal_sync(shared) < 0 || journal_synced(shared) < seq))
			return (void *)3;
	}
	return NULL;
}

static void run_threads(void *(*function)(void *))
{
	pthread_t threads[THREADS];
	void *result;

	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, function, (void *)(uintptr_t)i), 0);
	for (unsigned i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_join(threads[i], &result), 0);
		assert_null(result);
	}
}

static void many_threads_compose_and_flush(void **state)
{
	uint64_t sum;

	shared = *state;
	composed = 0;
	run_threads(compose_and_flush);
	reopen(state);
	/* In the order of submission: the last one counted last. */
	assert_int_equal(number_of(*state, "all"), THREADS * ROUNDS);
	assert_int_equal(count_marks(*state, JOURNAL_MARK_DATA, &sum), THREADS * ROUNDS);
}

static void *intern_all(void *argument)
{
	unsigned me = (unsigned)(uintptr_t)argument;

	for (unsigned i = 0; i < LOCATORS; i++) {
		struct locator locator = locator_of((i + me * 7) % LOCATORS);
		struct object object;
		uint64_t *id = &ids[me][(i + me * 7) % LOCATORS];

		if (journal_object_intern(shared, SIDE_A, &locator, S_IFREG, 1, id) != 0)
			return (void *)1;
		if (journal_object_get(shared, *id, &object) != 0 ||
		    !locator_equal(&object.locator[SIDE_A], &locator))
			return (void *)2;
	}
	return NULL;
}

static void threads_that_intern_one_locator_get_one_id(void **state)
{
	static bool seen[JOURNAL_FIRST_ID + THREADS * LOCATORS];

	shared = *state;
	run_threads(intern_all);
	memset(seen, 0, sizeof(seen));
	for (unsigned i = 0; i < LOCATORS; i++) {
		for (unsigned me = 0; me < THREADS; me++)
			assert_int_equal(ids[me][i], ids[0][i]);
		assert_in_range(ids[0][i], JOURNAL_FIRST_ID, ARRAY_SIZE(seen) - 1);
		assert_false(seen[ids[0][i]]);
		seen[ids[0][i]] = true;
	}
}

/* Each thread makes, changes and deletes objects with locators that nobody else uses, in
 * a table that all do. */
static void *intern_and_delete(void *argument)
{
	unsigned me = (unsigned)(uintptr_t)argument;
	uint64_t last = 0;

	for (unsigned i = 0; i < ROUNDS; i++) {
		struct locator locator = locator_of(me * 10 + i % 3);
		struct object object;
		uint64_t id, found;

		if (journal_object_intern(shared, SIDE_B, &locator, S_IFREG, 1, &id) != 0)
			return (void *)1;
		if (id <= last) /* it was deleted, so this must be a new one */
			return (void *)2;
		last = id;
		if (journal_object_get(shared, id, &object) != 0)
			return (void *)3;
		journal_compose(shared);
		journal_delete_object(shared, &object);
		(void)journal_submit(shared); /* pending at the next intern */
		if (i % 2 && journal_object_find(shared, SIDE_B, &locator, &found) != JOURNAL_E_NONE)
			return (void *)4;
	}
	return NULL;
}

static void threads_that_delete_never_find_what_they_deleted(void **state)
{
	shared = *state;
	run_threads(intern_and_delete);
	reopen(state);
	for (unsigned i = 0; i < THREADS * 10; i++)
		assert_int_equal(find(*state, SIDE_B, i), 0);
}

/* ---- failure ------------------------------------------------------------- */

/* Files may have @bytes at most: what is longer fails as on a full disk. */
static void limit_files(rlim_t bytes)
{
	struct rlimit limit = { .rlim_cur = bytes, .rlim_max = bytes };

	(void)signal(SIGXFSZ, SIG_IGN); /* it cannot fail */
	if (setrlimit(RLIMIT_FSIZE, &limit) < 0)
		abort();
}

/* Exits with 0 if a journal that cannot write any more behaves. */
static int task_fail(const char *path)
{
	struct journal *journal;
	uint64_t seq, id, again, known;
	struct locator old = locator_of(1), new = locator_of(2);
	bool is_new;

	if (journal_open(path, &test_pair, &is_new, &journal) < 0)
		return 10;
	if (journal_object_intern(journal, SIDE_A, &old, S_IFREG, 1, &known) < 0)
		return 11;
	limit_files(100);
	journal_compose(journal);
	journal_put_number(journal, "a", 1);
	seq = journal_submit(journal);
	if (journal_flush(journal, seq) == 0 || !journal_is_failed(journal))
		return 12;
	/* Later ones fail too, and waste nothing. */
	for (unsigned i = 0; i < 100000; i++) {
		journal_compose(journal);
		journal_put_shadow(journal, 5, "a name of some length that fills the batch", i + 1);
		seq = journal_submit(journal);
	}
	if (journal_flush(journal, seq) == 0 || journal_sync(journal) == 0)
		return 13;
	/* The workload goes on. */
	if (journal_object_intern(journal, SIDE_A, &old, S_IFREG, 1, &id) != 0 || id != known)
		return 14;
	if (journal_object_intern(journal, SIDE_A, &new, S_IFREG, 1, &id) != 0 || id <= known)
		return 15;
	if (journal_object_intern(journal, SIDE_A, &new, S_IFREG, 1, &again) != 0 || id != again)
		return 16;
	for (uint64_t i = 0; i < 10000; i++) {
		struct locator locator = locator_of(100 + i);

		if (journal_object_intern(journal, SIDE_A, &locator, S_IFREG, 1, &id) != 0)
			return 17;
	}
	journal_close(journal);
	return 0;
}

static void a_failed_write_is_final_until_reopened(void **state)
{
	(void)state;
	assert_int_equal(run_task("fail", test_path("f")), 0);
	*state = open_journal("f");
	assert_int_equal(number_of(*state, "a"), 0);
	assert_true(find(*state, SIDE_A, 1) != 0);
	assert_int_equal(find(*state, SIDE_A, 2), 0);
	FLUSHED(*state, journal_put_number(*state, "a", 1));
	assert_int_equal(number_of(*state, "a"), 1);
	*state = journal_close(*state);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(opening_makes_the_directory_with_its_parents),
		cmocka_unit_test_setup_teardown(a_second_process_is_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(another_pair_is_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_newer_format_is_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_family_of_a_later_version_is_left_alone, set_up,
						tear_down),
		cmocka_unit_test(a_directory_of_something_else_is_refused),
		cmocka_unit_test(a_root_of_a_file_system_may_be_the_directory),
		cmocka_unit_test_setup_teardown(a_failure_leaves_what_was_there, set_up, tear_down),
		cmocka_unit_test_setup_teardown(reading_sees_what_was_flushed, set_up, tear_down),
		cmocka_unit_test_setup_teardown(closing_flushes, set_up, tear_down),
		cmocka_unit_test_setup_teardown(much_that_is_pending_is_written, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_sync_covers_what_was_flushed, set_up, tear_down),
		cmocka_unit_test_setup_teardown(interning_gives_one_id_to_a_locator, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_put_moves_the_index, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_deleted_object_is_gone, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_locator_seen_again_is_a_new_object, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_root_keeps_its_locators, set_up, tear_down),
		cmocka_unit_test_setup_teardown(objects_are_counted, set_up, tear_down),
		cmocka_unit_test_setup_teardown(synced_attributes_are_kept, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_shadow_lists_a_directory_in_order, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_cursor_misses_nothing_that_stays, set_up, tear_down),
		cmocka_unit_test_setup_teardown(places_are_found_by_object, set_up, tear_down),
		cmocka_unit_test_setup_teardown(intents_are_found_until_settled, set_up, tear_down),
		cmocka_unit_test_setup_teardown(intents_not_settled_are_found_again, set_up, tear_down),
		cmocka_unit_test_setup_teardown(marks_are_listed_by_kind, set_up, tear_down),
		cmocka_unit_test_setup_teardown(numbers_are_kept, set_up, tear_down),
		cmocka_unit_test_setup_teardown(many_threads_compose_and_flush, set_up, tear_down),
		cmocka_unit_test_setup_teardown(threads_that_intern_one_locator_get_one_id, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(threads_that_delete_never_find_what_they_deleted, set_up,
						tear_down),
		cmocka_unit_test(a_failed_write_is_final_until_reopened),
	};

	if (argc == 3 && strcmp(argv[1], "open") == 0)
		return task_open(argv[2]);
	if (argc == 3 && strcmp(argv[1], "open-limited") == 0)
		return task_open_limited(argv[2]);
	if (argc == 3 && strcmp(argv[1], "fail") == 0)
		return task_fail(argv[2]);
	(void)test_dir(); /* made before any thread is */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
