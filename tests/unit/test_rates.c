/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tools/rates.h"

/* @seconds samples, one a second, at constant speeds. */
static void fill(struct rates *rates, unsigned seconds, uint64_t dirty, uint64_t drain,
		 uint64_t objects)
{
	struct rates_sample sample = { .at_ms = 1000000 };

	*rates = (struct rates){ 0 };
	for (unsigned i = 0; i < seconds; i++) {
		rates_add(rates, &sample);
		sample.at_ms += 1000;
		sample.dirtied_bytes += dirty;
		sample.drained_bytes += drain;
		sample.done_objects += objects;
	}
}

static void nothing_is_known_at_first(void **state)
{
	struct rates_backlog backlog = { .bytes = 1 };
	struct rates rates = { 0 };
	double low, high;

	(void)state;
	assert_true(rates_get(&rates, 10).drain_bytes_s == 0);
	assert_false(rates_eta(&rates, &backlog, &low, &high));
	fill(&rates, 1, 1, 1, 1);
	assert_true(rates_get(&rates, 10).drain_bytes_s == 0);
}

static void speeds_are_of_the_window(void **state)
{
	struct rates_sample sample;
	struct rates rates;

	(void)state;
	fill(&rates, 200, 100, 300, 5); /* round the ring, too */
	assert_true(rates_get(&rates, 10).dirty_bytes_s == 100);
	assert_true(rates_get(&rates, 60).drain_bytes_s == 300);
	assert_true(rates_get(&rates, 10).objects_s == 5);

	/* A burst is seen in the short window, and diluted in the long one. */
	sample = rates.samples[(rates.next + RATES_SAMPLES_MAX - 1) % RATES_SAMPLES_MAX];
	sample.at_ms += 1000;
	sample.dirtied_bytes += 10000;
	rates_add(&rates, &sample);
	assert_true(rates_get(&rates, 10).dirty_bytes_s > 1000);
	assert_true(rates_get(&rates, 60).dirty_bytes_s < 300);
}

static void what_was_found_is_no_change(void **state)
{
	struct rates_sample sample = { .at_ms = 1000 };
	struct rates rates = { 0 };

	(void)state;
	rates_add(&rates, &sample);
	sample = (struct rates_sample){ .at_ms = 2000, .dirtied_bytes = 150, .found_bytes = 100 };
	rates_add(&rates, &sample);
	assert_true(rates_get(&rates, 10).dirty_bytes_s == 50);
	sample = (struct rates_sample){ .at_ms = 3000, .dirtied_bytes = 150, .found_bytes = 500 };
	rates_add(&rates, &sample);
	assert_true(rates_get(&rates, 10).dirty_bytes_s == 0);
}

static void time_left_is_a_range_around_the_truth(void **state)
{
	struct rates_backlog backlog = { .bytes = 20000, .objects = 10 };
	struct rates rates;
	double low, high;

	(void)state;
	fill(&rates, 100, 100, 300, 5);
	assert_true(rates_eta(&rates, &backlog, &low, &high));
	assert_true(low < 100 && high > 100 && low > 50 && high < 200);
}

static void many_small_objects_take_their_time_too(void **state)
{
	struct rates_backlog backlog = { .bytes = 10, .objects = 1000 };
	struct rates rates;
	double low, high;

	(void)state;
	fill(&rates, 100, 100, 300, 5);
	assert_true(rates_eta(&rates, &backlog, &low, &high));
	assert_true(low > 100 && high > 200);
}

static void a_backlog_that_grows_has_no_end(void **state)
{
	struct rates_backlog backlog = { .bytes = 20000, .objects = 0 };
	struct rates rates;
	double low, high;

	(void)state;
	fill(&rates, 100, 300, 300, 5);
	assert_false(rates_eta(&rates, &backlog, &low, &high));
}

static void waiting_is_the_backlog_over_what_gets_done(void **state)
{
	struct rates_backlog backlog = { .bytes = 600, .objects = 20 };
	struct rates rates;

	(void)state;
	fill(&rates, 100, 300, 300, 5);
	assert_true(rates_wait_s(&rates, &backlog) == 4);
	backlog.bytes = 3000;
	assert_true(rates_wait_s(&rates, &backlog) == 10);
	fill(&rates, 100, 300, 0, 5);
	assert_true(rates_wait_s(&rates, &backlog) > 1e9);
	backlog = (struct rates_backlog){ 0 };
	assert_true(rates_wait_s(&rates, &backlog) == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_known_at_first),
		cmocka_unit_test(speeds_are_of_the_window),
		cmocka_unit_test(what_was_found_is_no_change),
		cmocka_unit_test(time_left_is_a_range_around_the_truth),
		cmocka_unit_test(many_small_objects_take_their_time_too),
		cmocka_unit_test(a_backlog_that_grows_has_no_end),
		cmocka_unit_test(waiting_is_the_backlog_over_what_gets_done),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
