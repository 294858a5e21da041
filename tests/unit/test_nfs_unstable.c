/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "fs/store/nfs_unstable.h"

static const char first_life[] = "11111111", second_life[] = "22222222";

static struct locator file_of(uint32_t number)
{
	struct locator file = { .length = sizeof(number) };

	memcpy(file.bytes, &number, sizeof(number));
	return file;
}

static size_t free_chain(struct nfsunstable_file *chain)
{
	size_t count = 0;

	while (chain) {
		struct nfsunstable_file *next = chain->next;

		free(chain);
		chain = next;
		count++;
	}
	return count;
}

static void takes_out_each_file_once(void **state)
{
	struct nfsunstable unstable;
	struct locator file = file_of(7);
	bool is_lost = true;

	(void)state;
	nfsunstable_init(&unstable);
	assert_null(nfsunstable_take(&unstable, &file));
	for (uint32_t i = 0; i < 3 * NFSUNSTABLE_BUCKETS; i++) {
		struct locator other = file_of(i);

		nfsunstable_note(&unstable, &other, first_life);
		nfsunstable_note(&unstable, &other, first_life);
	}
	assert_true(nfsunstable_has(&unstable, &file));
	assert_int_equal(free_chain(nfsunstable_take(&unstable, &file)), 1);
	assert_false(nfsunstable_has(&unstable, &file));
	assert_int_equal(free_chain(nfsunstable_take_all(&unstable, &is_lost)),
			 3 * NFSUNSTABLE_BUCKETS - 1);
	assert_false(is_lost);
	assert_null(nfsunstable_take_all(&unstable, &is_lost));
	nfsunstable_done(&unstable);
}

static void second_verifier_means_lost(void **state)
{
	struct nfsunstable unstable;
	struct locator file = file_of(1);
	struct nfsunstable_file *entry;
	bool is_lost;

	(void)state;
	nfsunstable_init(&unstable);
	nfsunstable_note(&unstable, &file, first_life);
	nfsunstable_note(&unstable, &file, second_life);
	entry = nfsunstable_take_all(&unstable, &is_lost);
	assert_true(entry->is_lost);

	/* Put back, it stays so; also beside an entry that came meanwhile. */
	nfsunstable_note(&unstable, &file, second_life);
	nfsunstable_put_back(&unstable, entry);
	entry = nfsunstable_take_all(&unstable, &is_lost);
	assert_true(entry->is_lost);
	assert_int_equal(free_chain(entry), 1);

	nfsunstable_note(&unstable, &file, first_life);
	entry = nfsunstable_take_all(&unstable, &is_lost);
	assert_false(entry->is_lost);
	nfsunstable_note(&unstable, &file, second_life);
	nfsunstable_put_back(&unstable, entry);
	entry = nfsunstable_take_all(&unstable, &is_lost);
	assert_true(entry->is_lost);
	assert_int_equal(free_chain(entry), 1);
	nfsunstable_done(&unstable);
}

static void noted_loss_is_said_once(void **state)
{
	struct nfsunstable unstable;
	bool is_lost = false;

	(void)state;
	nfsunstable_init(&unstable);
	nfsunstable_note_lost(&unstable);
	assert_null(nfsunstable_take_all(&unstable, &is_lost));
	assert_true(is_lost);
	assert_null(nfsunstable_take_all(&unstable, &is_lost));
	assert_false(is_lost);
	nfsunstable_done(&unstable);
}

static void room_ends_at_the_bound(void **state)
{
	struct nfsunstable unstable;

	(void)state;
	nfsunstable_init(&unstable);
	for (uint32_t i = 0; i < NFSUNSTABLE_FILES_MAX; i++) {
		struct locator file = file_of(i);

		assert_true(nfsunstable_has_room(&unstable));
		nfsunstable_note(&unstable, &file, first_life);
	}
	assert_false(nfsunstable_has_room(&unstable));
	nfsunstable_done(&unstable);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(takes_out_each_file_once),
		cmocka_unit_test(second_verifier_means_lost),
		cmocka_unit_test(noted_loss_is_said_once),
		cmocka_unit_test(room_ends_at_the_bound),
	};

	return cmocka_run_group_tests_name("nfs_unstable", tests, NULL, NULL);
}
