/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fs/store/nfs_loss.h"

static const char first_life[] = "11111111", second_life[] = "22222222";

static void newest_loss_counts(void **state)
{
	struct nfsloss loss;

	(void)state;
	nfsloss_init(&loss);
	assert_int_equal(nfsloss_last_ms(&loss), 0);
	nfsloss_note(&loss, 0, 100, first_life);
	nfsloss_note(&loss, 1, 90, first_life);
	assert_int_equal(nfsloss_last_ms(&loss), 100);
	nfsloss_note(&loss, 1, 110, first_life);
	assert_int_equal(nfsloss_last_ms(&loss), 110);
	nfsloss_done(&loss);
}

static void another_life_seen_later_settles_it(void **state)
{
	struct nfsloss loss;

	(void)state;
	nfsloss_init(&loss);
	nfsloss_note(&loss, 0, 100, first_life);
	nfsloss_note(&loss, 3, 105, first_life);
	nfsloss_seen(&loss, 200, first_life); /* it lives on */
	assert_int_equal(nfsloss_last_ms(&loss), 105);
	nfsloss_seen(&loss, 50, second_life); /* an older connection proves nothing */
	assert_int_equal(nfsloss_last_ms(&loss), 105);
	nfsloss_seen(&loss, 103, second_life); /* newer than one of the losses */
	assert_int_equal(nfsloss_last_ms(&loss), 105);
	nfsloss_seen(&loss, 200, second_life);
	assert_int_equal(nfsloss_last_ms(&loss), 0);
	nfsloss_done(&loss);
}

static void loss_to_an_unknown_life_is_never_settled(void **state)
{
	struct nfsloss loss;

	(void)state;
	nfsloss_init(&loss);
	nfsloss_note(&loss, 0, 100, NULL);
	nfsloss_seen(&loss, 200, second_life);
	assert_int_equal(nfsloss_last_ms(&loss), 100);
	nfsloss_done(&loss);
}

static void losses_to_two_lives_are_never_settled(void **state)
{
	struct nfsloss loss;

	(void)state;
	nfsloss_init(&loss);
	nfsloss_note(&loss, 0, 100, first_life);
	nfsloss_note(&loss, 0, 150, second_life);
	nfsloss_seen(&loss, 200, "33333333");
	nfsloss_seen(&loss, 200, first_life);
	assert_int_equal(nfsloss_last_ms(&loss), 150);
	nfsloss_done(&loss);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(newest_loss_counts),
		cmocka_unit_test(another_life_seen_later_settles_it),
		cmocka_unit_test(loss_to_an_unknown_life_is_never_settled),
		cmocka_unit_test(losses_to_two_lives_are_never_settled),
	};

	return cmocka_run_group_tests_name("nfs_loss", tests, NULL, NULL);
}
