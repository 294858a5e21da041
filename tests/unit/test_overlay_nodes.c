/* SPDX-License-Identifier: Apache-2.0 */
/* The node table: counts, copies, growth, many threads. */
#include "fs/overlay/nodes.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static int set_up(void **state)
{
	*state = nodes_new();
	return *state ? 0 : -1;
}

static int tear_down(void **state)
{
	*state = nodes_free(*state);
	return 0;
}

static struct node make_node(uint64_t id, uint8_t length)
{
	struct node node = { .id = id, .ino = id + 1000, .type = S_IFREG, .side = SIDE_A };

	node.locator.length = length;
	memset(node.locator.bytes, (int)id, length);
	return node;
}

static void node_lives_until_its_last_lookup_is_forgotten(void **state)
{
	struct node node = make_node(20, 12), found;
	unsigned flags = 0;

	node.flags = NODE_PRIVILEGED;
	assert_int_equal(nodes_add(*state, &node, 1), 0);
	assert_int_equal(nodes_add(*state, &node, 2), 0);
	assert_int_equal(nodes_count(*state), 1);
	assert_true(nodes_get(*state, 20, &found));
	assert_int_equal(found.ino, 1020);
	assert_int_equal(found.type, S_IFREG);
	assert_true(locator_equal(&found.locator, &node.locator));
	assert_false(nodes_forget(*state, 20, 2, &flags));
	assert_true(nodes_forget(*state, 20, 1, &flags));
	assert_int_equal(flags, NODE_PRIVILEGED);
	assert_false(nodes_get(*state, 20, &found));
	assert_false(nodes_forget(*state, 20, 1, &flags));
	assert_int_equal(nodes_count(*state), 0);
}

static void root_is_never_forgotten(void **state)
{
	struct node root = make_node(JOURNAL_ROOT_ID, 12), found;
	unsigned flags;

	assert_int_equal(nodes_add(*state, &root, 1), 0);
	assert_false(nodes_forget(*state, JOURNAL_ROOT_ID, 5, &flags));
	assert_true(nodes_get(*state, JOURNAL_ROOT_ID, &found));
}

static void forgetting_more_than_was_given_ends_the_node(void **state)
{
	struct node node = make_node(20, 12);
	unsigned flags;

	assert_int_equal(nodes_add(*state, &node, 1), 0);
	assert_true(nodes_forget(*state, 20, 100, &flags));
}

static void locator_of_the_other_side_may_be_longer(void **state)
{
	struct node node = make_node(20, 12), other = make_node(20, LOCATOR_BYTES_MAX), found;
	struct node neighbour = make_node(21, 12);

	assert_int_equal(nodes_add(*state, &node, 1), 0);
	assert_int_equal(nodes_add(*state, &neighbour, 1), 0);
	other.side = SIDE_B;
	assert_int_equal(nodes_add(*state, &other, 0), 0);
	assert_true(nodes_get(*state, 20, &found));
	assert_int_equal(found.side, SIDE_B);
	assert_true(locator_equal(&found.locator, &other.locator));
	assert_int_equal(nodes_add(*state, &node, 0), 0);
	assert_true(nodes_get(*state, 20, &found));
	assert_int_equal(found.side, SIDE_A);
	assert_true(locator_equal(&found.locator, &node.locator));
	assert_true(nodes_get(*state, 21, &found));
}

static void flags_and_parents_are_kept_beside_lookups(void **state)
{
	struct node node = make_node(20, 12), found;

	node.type = S_IFDIR;
	node.parent = 7;
	assert_int_equal(nodes_add(*state, &node, 1), 0);
	nodes_set_flags(*state, 20, NODE_ORPHAN, 0);
	node.parent = 0;
	assert_int_equal(nodes_add(*state, &node, 1), 0);
	assert_true(nodes_get(*state, 20, &found));
	assert_int_equal(found.parent, 7);
	assert_int_equal(nodes_flags(*state, 20), NODE_ORPHAN);
	nodes_set_flags(*state, 20, NODE_PRIVILEGED, NODE_ORPHAN);
	assert_int_equal(nodes_flags(*state, 20), NODE_PRIVILEGED);
	nodes_set_parent(*state, 20, 9);
	assert_true(nodes_get(*state, 20, &found));
	assert_int_equal(found.parent, 9);
	assert_int_equal(nodes_flags(*state, 12345), 0);
}

static void many_nodes_are_all_found(void **state)
{
	enum { MANY = 100000, KEPT_EACH = 1000 };
	struct node found;
	unsigned flags;

	for (uint64_t id = 16; id < 16 + MANY; id++) {
		struct node node = make_node(id, 12);

		assert_int_equal(nodes_add(*state, &node, 1), 0);
	}
	assert_int_equal(nodes_count(*state), MANY);
	for (uint64_t id = 16; id < 16 + MANY; id++) {
		assert_true(nodes_get(*state, id, &found));
		assert_int_equal(found.ino, id + 1000);
		if (id % KEPT_EACH)
			assert_true(nodes_forget(*state, id, 1, &flags));
	}
	/* The table is small again. */
	assert_int_equal(nodes_count(*state), MANY / KEPT_EACH);
	for (uint64_t id = 16; id < 16 + MANY; id++)
		assert_int_equal(nodes_get(*state, id, &found), id % KEPT_EACH == 0);
}

/* ---- races --------------------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 20000, SHARED = 8 };

/* Looks up and forgets the same few objects as the others do. */
static void *churn(void *argument)
{
	struct nodes *nodes = argument;

	for (unsigned i = 0; i < ROUNDS; i++) {
		struct node node = make_node(16 + i % SHARED, 12), found;
		unsigned flags;

		if (nodes_add(nodes, &node, 2) < 0)
			return argument;
		(void)nodes_get(nodes, node.id, &found); /* another may have ended it */
		(void)nodes_forget(nodes, node.id, 1, &flags);
		(void)nodes_forget(nodes, node.id, 1, &flags);
	}
	return NULL;
}

static void counts_are_right_after_a_race(void **state)
{
	pthread_t threads[THREADS];
	void *failed;

	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, churn, *state), 0);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], &failed);
		assert_null(failed);
	}
	assert_int_equal(nodes_count(*state), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(node_lives_until_its_last_lookup_is_forgotten,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(root_is_never_forgotten, set_up, tear_down),
		cmocka_unit_test_setup_teardown(forgetting_more_than_was_given_ends_the_node,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(locator_of_the_other_side_may_be_longer, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(flags_and_parents_are_kept_beside_lookups, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(many_nodes_are_all_found, set_up, tear_down),
		cmocka_unit_test_setup_teardown(counts_are_right_after_a_race, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
