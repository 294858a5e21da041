/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/store/dir_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static struct locator locator_of(unsigned n)
{
	struct locator locator = { .length = 12 };

	memcpy(locator.bytes + 4, &n, sizeof(n));
	return locator;
}

static int new_fd(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

static struct dir_cache_entry *add(struct dir_cache *cache, unsigned n)
{
	struct locator locator = locator_of(n);
	struct dir_cache_entry *entry = dir_cache_add(cache, &locator, new_fd());

	assert_non_null(entry);
	return entry;
}

static struct dir_cache_entry *get(struct dir_cache *cache, unsigned n)
{
	struct locator locator = locator_of(n);

	return dir_cache_get(cache, &locator);
}

static void gives_back_what_was_added(void **state)
{
	struct dir_cache *cache = dir_cache_new(DIR_CACHE_ENTRIES_MAX);
	struct dir_cache_entry *entry;

	(void)state;
	assert_non_null(cache);
	assert_null(get(cache, 1));
	entry = add(cache, 1);
	dir_cache_put(cache, entry);
	assert_ptr_equal(get(cache, 1), entry);
	assert_true(is_open(dir_cache_entry_fd(entry)));
	assert_null(get(cache, 2));
	dir_cache_put(cache, entry);
	assert_null(dir_cache_free(cache));
	assert_null(dir_cache_free(NULL));
}

static void second_to_add_gets_the_first(void **state)
{
	struct dir_cache *cache = dir_cache_new(DIR_CACHE_ENTRIES_MAX);
	struct locator locator = locator_of(1);
	struct dir_cache_entry *first = add(cache, 1);
	int fd = new_fd();

	(void)state;
	assert_ptr_equal(dir_cache_add(cache, &locator, fd), first);
	assert_false(is_open(fd));
	dir_cache_put(cache, first);
	dir_cache_put(cache, first);
	dir_cache_free(cache);
}

static void closes_the_least_recently_used(void **state)
{
	struct dir_cache *cache = dir_cache_new(DIR_CACHE_ENTRIES_MAX);
	struct dir_cache_entry *entry;
	int fd_of_0 = -1, fd_of_1 = -1;

	(void)state;
	for (unsigned n = 0; n < DIR_CACHE_ENTRIES_MAX; n++) {
		entry = add(cache, n);
		if (n == 0)
			fd_of_0 = dir_cache_entry_fd(entry);
		if (n == 1)
			fd_of_1 = dir_cache_entry_fd(entry);
		dir_cache_put(cache, entry);
	}
	dir_cache_put(cache, get(cache, 0)); /* so 1 is the oldest */
	dir_cache_put(cache, add(cache, 1000));
	assert_null(get(cache, 1));
	assert_true(is_open(fd_of_0));
	assert_true(fd_of_1 >= 0);
	entry = get(cache, 0);
	assert_non_null(entry);
	dir_cache_put(cache, entry);
	dir_cache_free(cache);
	assert_false(is_open(fd_of_0));
}

static void keeps_what_is_pinned_and_no_more_than_its_bound(void **state)
{
	enum { KEPT = 3 };
	struct dir_cache_entry *pinned[KEPT], *extra;
	struct dir_cache *cache = dir_cache_new(KEPT);
	int fd;

	(void)state;
	for (unsigned n = 0; n < KEPT; n++)
		pinned[n] = add(cache, n);
	extra = add(cache, 1000);
	fd = dir_cache_entry_fd(extra);
	assert_true(is_open(fd));
	assert_null(get(cache, 1000)); /* handed out, not kept */
	dir_cache_put(cache, extra);
	assert_false(is_open(fd));
	for (unsigned n = 0; n < KEPT; n++) {
		assert_true(is_open(dir_cache_entry_fd(pinned[n])));
		dir_cache_put(cache, pinned[n]);
	}
	dir_cache_free(cache);
}

static void forgotten_entry_lives_to_its_last_pin(void **state)
{
	struct dir_cache *cache = dir_cache_new(DIR_CACHE_ENTRIES_MAX);
	struct dir_cache_entry *entry = add(cache, 1);
	int fd = dir_cache_entry_fd(entry);

	(void)state;
	assert_ptr_equal(get(cache, 1), entry);
	dir_cache_forget(cache, entry);
	dir_cache_forget(cache, entry); /* by both users */
	assert_null(get(cache, 1));
	dir_cache_put(cache, entry);
	assert_true(is_open(fd));
	dir_cache_put(cache, entry);
	assert_false(is_open(fd));
	dir_cache_free(cache);
}

static void *use(void *arg)
{
	struct dir_cache *cache = arg;
	unsigned seed = (unsigned)(uintptr_t)&seed;

	for (int i = 0; i < 5000; i++) {
		unsigned n = (unsigned)rand_r(&seed) % (2 * DIR_CACHE_ENTRIES_MAX);
		struct dir_cache_entry *entry = get(cache, n);

		if (!entry)
			entry = add(cache, n);
		assert_true(is_open(dir_cache_entry_fd(entry)));
		if (n % 17 == 0)
			dir_cache_forget(cache, entry);
		dir_cache_put(cache, entry);
	}
	return NULL;
}

static void threads_share_it(void **state)
{
	struct dir_cache *cache = dir_cache_new(DIR_CACHE_ENTRIES_MAX);
	pthread_t threads[4];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, use, cache), 0);
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		pthread_join(threads[i], NULL);
	dir_cache_free(cache);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gives_back_what_was_added),
		cmocka_unit_test(second_to_add_gets_the_first),
		cmocka_unit_test(closes_the_least_recently_used),
		cmocka_unit_test(keeps_what_is_pinned_and_no_more_than_its_bound),
		cmocka_unit_test(forgotten_entry_lives_to_its_last_pin),
		cmocka_unit_test(threads_share_it),
	};

	return cmocka_run_group_tests_name("dir_cache", tests, NULL, NULL);
}
