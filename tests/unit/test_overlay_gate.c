/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gate: who is let through when, and that passing and being counted is one step.
 */
#include "fs/overlay/gate.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "util/clock.h"

enum { BYTES_MAX = 1000, PATIENCE_MS = 10000 };

static int set_up(void **state)
{
	*state = gate_new(BYTES_MAX);
	return *state ? 0 : -1;
}

static int tear_down(void **state)
{
	*state = gate_free(*state);
	return 0;
}

static struct parked *parked_new(uint64_t unique, size_t size)
{
	struct parked *parked = calloc(1, sizeof(*parked) + size);

	assert_non_null(parked);
	parked->unique = unique;
	parked->since_ms = clock_ms();
	parked->size = size;
	return parked;
}

static void freeze(struct gate *gate)
{
	assert_int_equal(gate_freeze(gate, clock_ms() + PATIENCE_MS), 0);
}

static void open_gate_lets_all_through(void **state)
{
	struct gate *gate = *state;

	assert_int_equal(gate_enter(gate, GATE_CHANGE), 0);
	assert_int_equal(gate_enter(gate, GATE_CHANGE), 0);
	assert_int_equal(gate_enter(gate, GATE_READ), 0);
	gate_leave(gate, GATE_READ);
	gate_leave(gate, GATE_CHANGE);
	gate_leave(gate, GATE_CHANGE);
	assert_int_equal(gate_parked(gate), 0);
}

static void frozen_gate_lets_reads_through_and_no_changes(void **state)
{
	struct gate *gate = *state;

	freeze(gate);
	assert_int_equal(gate_enter(gate, GATE_CHANGE), GATE_E_CLOSED);
	assert_int_equal(gate_enter(gate, GATE_READ), 0);
	gate_leave(gate, GATE_READ);
	gate_open(gate);
	assert_int_equal(gate_enter(gate, GATE_CHANGE), 0);
	gate_leave(gate, GATE_CHANGE);
}

static void freeze_gives_up_at_the_deadline_and_is_open_again(void **state)
{
	struct gate *gate = *state;

	assert_int_equal(gate_enter(gate, GATE_CHANGE), 0);
	assert_int_equal(gate_freeze(gate, clock_ms() + 20), -ETIMEDOUT);
	assert_int_equal(gate_enter(gate, GATE_CHANGE), 0);
	gate_leave(gate, GATE_CHANGE);
	gate_leave(gate, GATE_CHANGE);
	freeze(gate);
	gate_open(gate);
}

static void parking_at_an_open_gate_is_refused(void **state)
{
	struct gate *gate = *state;
	struct parked *parked = parked_new(1, 10);

	assert_int_equal(gate_park(gate, parked), GATE_E_OPEN);
	free(parked);
}

static void parked_ones_come_back_in_order(void **state)
{
	struct gate *gate = *state;

	freeze(gate);
	for (uint64_t unique = 1; unique <= 5; unique++)
		assert_int_equal(gate_park(gate, parked_new(unique, 10)), 0);
	assert_int_equal(gate_parked(gate), 5);
	gate_open(gate);
	for (uint64_t unique = 1; unique <= 5; unique++) {
		struct parked *parked = gate_next(gate);

		assert_int_equal(parked->unique, unique);
		free(parked);
		gate_leave(gate, GATE_CHANGE);
	}
	assert_int_equal(gate_parked(gate), 0);
}

/* Else a request could be parked by one freeze after the other for ever. */
static void next_freeze_waits_for_what_the_last_one_parked(void **state)
{
	struct gate *gate = *state;
	struct parked *parked;

	freeze(gate);
	assert_int_equal(gate_park(gate, parked_new(1, 10)), 0);
	gate_open(gate);
	assert_int_equal(gate_freeze(gate, clock_ms() + 20), -ETIMEDOUT);
	parked = gate_next(gate);
	assert_int_equal(gate_freeze(gate, clock_ms() + 20), -ETIMEDOUT); /* it is still inside */
	free(parked);
	gate_leave(gate, GATE_CHANGE);
	freeze(gate);
	gate_open(gate);
}

static void interrupt_takes_a_parked_request_out(void **state)
{
	struct gate *gate = *state;
	struct parked *parked;

	freeze(gate);
	for (uint64_t unique = 1; unique <= 3; unique++)
		assert_int_equal(gate_park(gate, parked_new(unique, 10)), 0);
	parked = gate_interrupt(gate, 3); /* the last: the queue's end moves */
	assert_int_equal(parked->unique, 3);
	free(parked);
	assert_int_equal(gate_park(gate, parked_new(4, 10)), 0);
	parked = gate_interrupt(gate, 1);
	assert_int_equal(parked->unique, 1);
	free(parked);
	gate_open(gate);
	for (uint64_t unique = 2; unique <= 4; unique += 2) {
		parked = gate_next(gate);
		assert_int_equal(parked->unique, unique);
		free(parked);
		gate_leave(gate, GATE_CHANGE);
	}
}

static void interrupt_that_comes_first_is_remembered(void **state)
{
	struct gate *gate = *state;
	struct parked *parked = parked_new(7, 10);

	freeze(gate);
	assert_null(gate_interrupt(gate, 7));
	assert_int_equal(gate_park(gate, parked), GATE_E_INTERRUPTED);
	assert_int_equal(gate_park(gate, parked), 0); /* once */
	gate_open(gate);
	parked = gate_next(gate);
	free(parked);
	gate_leave(gate, GATE_CHANGE);

	/* And not beyond its freeze. */
	assert_null(gate_interrupt(gate, 8));
	freeze(gate);
	assert_null(gate_interrupt(gate, 9));
	gate_open(gate);
	freeze(gate);
	assert_int_equal(gate_park(gate, parked_new(8, 10)), 0);
	assert_int_equal(gate_park(gate, parked_new(9, 10)), 0);
	gate_open(gate);
}

static void too_much_parked_is_told_and_kept(void **state)
{
	struct gate *gate = *state;

	freeze(gate);
	assert_int_equal(gate_park(gate, parked_new(1, BYTES_MAX)), 0);
	assert_false(gate_is_overfull(gate));
	assert_int_equal(gate_park(gate, parked_new(2, 1)), 0);
	assert_true(gate_is_overfull(gate));
	assert_int_equal(gate_parked(gate), 2);
	gate_open(gate);
	for (int i = 0; i < 2; i++) {
		free(gate_next(gate));
		gate_leave(gate, GATE_CHANGE);
	}
	assert_false(gate_is_overfull(gate));
}

/* ---- races --------------------------------------------------------------- */

/*
 * Goal: between a freeze's return and the opening nobody is inside, and everybody gets
 * through. Method: threads change a counter inside the gate, or park and are served by
 * releasers; the closer looks at it twice.
 */
enum { WORKERS = 3, RELEASERS = 2, ROUNDS = 300 };

struct race {
	struct gate *gate;
	_Atomic uint64_t inside, changes, parked, released, reads;
	atomic_bool is_over;
};

static void change(struct race *race)
{
	atomic_fetch_add(&race->inside, 1);
	atomic_fetch_add(&race->changes, 1);
	atomic_fetch_sub(&race->inside, 1);
}

static void *work(void *argument)
{
	struct race *race = argument;

	while (!atomic_load(&race->is_over)) {
		struct parked *parked;

		if (gate_enter(race->gate, GATE_READ) == 0) {
			atomic_fetch_add(&race->reads, 1);
			gate_leave(race->gate, GATE_READ);
		}
		if (gate_enter(race->gate, GATE_CHANGE) == 0) {
			change(race);
			gate_leave(race->gate, GATE_CHANGE);
			continue;
		}
		parked = parked_new(1, 1);
		if (gate_park(race->gate, parked) == 0) {
			atomic_fetch_add(&race->parked, 1);
			usleep(100); /* as a client does: it waits for the answer */
		} else {
			free(parked);
		}
	}
	return NULL;
}

static void *release(void *argument)
{
	struct race *race = argument;
	struct parked *parked;

	while ((parked = gate_next(race->gate))) {
		change(race);
		atomic_fetch_add(&race->released, 1);
		gate_leave(race->gate, GATE_CHANGE);
		free(parked);
	}
	return NULL;
}

static void nobody_is_inside_a_frozen_gate(void **state)
{
	struct race race = { .gate = *state };
	pthread_t threads[WORKERS + RELEASERS];

	for (unsigned i = 0; i < ARRAY_SIZE(threads); i++)
		assert_int_equal(
			pthread_create(&threads[i], NULL, i < WORKERS ? work : release, &race), 0);
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t changes;

		freeze(race.gate);
		changes = atomic_load(&race.changes);
		assert_int_equal(atomic_load(&race.inside), 0);
		if (i % 2) {
			uint64_t reads;

			assert_int_equal(gate_close_reads(race.gate, clock_ms() + 60000), 0);
			reads = atomic_load(&race.reads);
			sched_yield();
			assert_int_equal(atomic_load(&race.reads), reads);
		} else {
			usleep(200);
		}
		assert_int_equal(atomic_load(&race.inside), 0);
		assert_int_equal(atomic_load(&race.changes), changes);
		gate_open(race.gate);
	}
	atomic_store(&race.is_over, true);
	for (unsigned i = 0; i < WORKERS; i++)
		pthread_join(threads[i], NULL);
	while (gate_parked(race.gate) > 0)
		usleep(1000);
	gate_stop(race.gate);
	for (unsigned i = WORKERS; i < ARRAY_SIZE(threads); i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(atomic_load(&race.released), atomic_load(&race.parked));
	assert_true(atomic_load(&race.parked) > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(open_gate_lets_all_through, set_up, tear_down),
		cmocka_unit_test_setup_teardown(frozen_gate_lets_reads_through_and_no_changes,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(freeze_gives_up_at_the_deadline_and_is_open_again,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(parking_at_an_open_gate_is_refused, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(parked_ones_come_back_in_order, set_up, tear_down),
		cmocka_unit_test_setup_teardown(next_freeze_waits_for_what_the_last_one_parked,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(interrupt_takes_a_parked_request_out, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(interrupt_that_comes_first_is_remembered, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(too_much_parked_is_told_and_kept, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(nobody_is_inside_a_frozen_gate, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
