/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache of open files, over a store that only counts: what is opened, what is
 * closed when, and that nothing is closed under its holder.
 */
#include "fs/overlay/fdcache.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>

#include <cmocka.h>

#include "fs/store/store_ops.h"

enum { FILES_MAX = 4 };

/* ---- a store that counts ------------------------------------------------- */

struct fake_file {
	struct store_file base; /* first */
	unsigned flags;
	atomic_bool is_closed;
};

static _Atomic int opened, closed;
static int fail_write; /* errno values */
static _Atomic int fail_next;

static int fake_open(struct store *store, const struct locator *object, unsigned flags,
		     struct store_file **ret_file)
{
	struct fake_file *file;
	int error = atomic_exchange(&fail_next, 0);

	(void)object;
	if (error)
		return -error;
	if (flags & STORE_OPEN_WRITE && fail_write)
		return -fail_write;
	file = calloc(1, sizeof(*file));
	assert_non_null(file);
	file->base.ops = store->ops;
	file->flags = flags;
	atomic_fetch_add(&opened, 1);
	*ret_file = &file->base;
	return 0;
}

static struct store_file *fake_close(struct store_file *base)
{
	struct fake_file *file = (struct fake_file *)base;

	assert(!atomic_exchange(&file->is_closed, true));
	atomic_fetch_add(&closed, 1);
	free(file);
	return NULL;
}

static const struct store_ops fake_ops = { .open = fake_open, .file_close = fake_close };
static struct store fake_store = { .ops = &fake_ops };
static const struct locator somewhere = { .length = 1 };

static int set_up(void **state)
{
	opened = closed = 0;
	fail_write = fail_next = 0;
	*state = fdcache_new(FILES_MAX);
	return *state ? 0 : -1;
}

static int tear_down(void **state)
{
	*state = fdcache_free(*state);
	return opened == closed ? 0 : -1;
}

static struct cached_file *get(struct fdcache *cache, uint64_t id, unsigned flags)
{
	struct cached_file *file;

	assert_int_equal(fdcache_get(cache, id, flags, &fake_store, &somewhere, &file), 0);
	return file;
}

/* ---- cases --------------------------------------------------------------- */

static void file_is_opened_once_and_for_writing_too(void **state)
{
	struct cached_file *reader = get(*state, 20, STORE_OPEN_READ);
	struct cached_file *writer = get(*state, 20, STORE_OPEN_WRITE);

	assert_ptr_equal(reader, writer);
	assert_int_equal(opened, 1);
	fdcache_put(*state, reader);
	fdcache_put(*state, writer);
	assert_int_equal(closed, 0);
	assert_int_equal(fdcache_count(*state), 1);
}

static void file_that_cannot_be_written_is_opened_for_reading(void **state)
{
	struct cached_file *reader, *writer;

	fail_write = EROFS;
	reader = get(*state, 20, STORE_OPEN_READ);
	assert_int_equal(fdcache_get(*state, 20, STORE_OPEN_WRITE, &fake_store, &somewhere,
				     &writer),
			 -EROFS);

	/* Once it can be, the better one takes its place; the reader keeps its own. */
	fail_write = 0;
	writer = get(*state, 20, STORE_OPEN_WRITE);
	assert_ptr_not_equal(reader, writer);
	assert_int_equal(closed, 0);
	fdcache_put(*state, reader);
	assert_int_equal(closed, 1);
	fdcache_put(*state, writer);
	assert_int_equal(closed, 1);
}

static void least_recently_used_goes_first(void **state)
{
	for (uint64_t id = 16; id < 16 + FILES_MAX; id++)
		fdcache_put(*state, get(*state, id, STORE_OPEN_READ));
	fdcache_put(*state, get(*state, 16, STORE_OPEN_READ));
	fdcache_put(*state, get(*state, 100, STORE_OPEN_READ));
	assert_int_equal(closed, 1);
	assert_null(fdcache_find(*state, 17, STORE_OPEN_READ));
	fdcache_put(*state, fdcache_find(*state, 16, STORE_OPEN_READ));
}

static void pinned_file_is_not_counted_and_not_closed(void **state)
{
	struct cached_file *pin = get(*state, 20, STORE_OPEN_READ);

	for (uint64_t id = 100; id < 100 + 3 * FILES_MAX; id++)
		fdcache_put(*state, get(*state, id, STORE_OPEN_READ));
	assert_int_equal(closed, 2 * FILES_MAX);
	assert_int_equal(fdcache_count(*state), FILES_MAX + 1);
	assert_ptr_equal(get(*state, 20, STORE_OPEN_READ), pin);
	fdcache_put(*state, pin);
	fdcache_put(*state, pin);
}

static void dropped_file_is_closed_by_its_last_holder(void **state)
{
	struct cached_file *file = get(*state, 20, STORE_OPEN_READ);

	fdcache_drop(*state, 20);
	assert_null(fdcache_find(*state, 20, STORE_OPEN_READ));
	assert_int_equal(closed, 0);
	fdcache_put(*state, file);
	assert_int_equal(closed, 1);
	fdcache_drop(*state, 20);
}

static void flush_unpublishes_all(void **state)
{
	struct cached_file *held = get(*state, 20, STORE_OPEN_READ);

	fdcache_put(*state, get(*state, 20 + 1024, STORE_OPEN_READ)); /* the same bucket */
	fdcache_flush(*state);
	assert_int_equal(fdcache_count(*state), 0);
	assert_int_equal(closed, 1);
	fdcache_put(*state, held);
	assert_int_equal(closed, 2);
}

static void short_of_descriptors_it_closes_idle_files(void **state)
{
	fdcache_put(*state, get(*state, 20, STORE_OPEN_READ));
	fail_next = EMFILE;
	fdcache_put(*state, get(*state, 21, STORE_OPEN_READ));
	assert_int_equal(closed, 1);
	fail_next = EIO;
	assert_int_equal(fdcache_get(*state, 22, STORE_OPEN_READ, &fake_store, &somewhere,
				     &(struct cached_file *){ NULL }),
			 -EIO);
}

static void inserted_file_is_found(void **state)
{
	struct cached_file *pin, *found;
	struct store_file *file;

	assert_int_equal(
		fake_open(&fake_store, &somewhere, STORE_OPEN_READ | STORE_OPEN_WRITE, &file), 0);
	assert_int_equal(fdcache_insert(*state, 20, file, &pin), 0);
	found = fdcache_find(*state, 20, STORE_OPEN_WRITE);
	assert_ptr_equal(cached_file_get(found), file);
	fdcache_put(*state, found);
	fdcache_drop(*state, 20);
	assert_int_equal(closed, 0);
	fdcache_put(*state, pin);
	assert_int_equal(closed, 1);
}

/* ---- races --------------------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 20000, SHARED = 2 * FILES_MAX };

static void *churn(void *argument)
{
	struct fdcache *cache = argument;

	for (unsigned i = 0; i < ROUNDS; i++) {
		struct cached_file *file;
		uint64_t id = 16 + (i * 7) % SHARED;

		if (fdcache_get(cache, id, STORE_OPEN_READ, &fake_store, &somewhere, &file) < 0)
			return argument;
		if (atomic_load(&((struct fake_file *)cached_file_get(file))->is_closed))
			return argument;
		if (i % 5 == 0)
			fdcache_drop(cache, id);
		fdcache_put(cache, file);
	}
	return NULL;
}

static void nothing_is_closed_under_its_holder(void **state)
{
	pthread_t threads[THREADS];
	void *failed;

	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, churn, *state), 0);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], &failed);
		assert_null(failed);
	}
	assert_true(fdcache_count(*state) <= FILES_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(file_is_opened_once_and_for_writing_too, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(file_that_cannot_be_written_is_opened_for_reading,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(least_recently_used_goes_first, set_up, tear_down),
		cmocka_unit_test_setup_teardown(pinned_file_is_not_counted_and_not_closed, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(dropped_file_is_closed_by_its_last_holder, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(flush_unpublishes_all, set_up, tear_down),
		cmocka_unit_test_setup_teardown(short_of_descriptors_it_closes_idle_files, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(inserted_file_is_found, set_up, tear_down),
		cmocka_unit_test_setup_teardown(nothing_is_closed_under_its_holder, set_up,
						tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
