/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Rates of the last seconds, from counters that are sampled once a second, and the
 * time that is left by them. Not thread-safe.
 */

#include <stdbool.h>
#include <stdint.h>

enum {
	RATES_SAMPLES_MAX = 64,	  /* a minute's */
	RATES_WINDOW_S = 10,	  /* of what is shown */
	RATES_WINDOW_LONG_S = 60, /* the other end of an estimate */
};

struct rates_sample {
	uint64_t at_ms; /* clock_ms() */
	/* Ever. What is dirty because it was found, not because it was changed, is in
	 * found_bytes too, and does not count as a change. */
	uint64_t dirtied_bytes, found_bytes, drained_bytes, done_objects;
};

struct rates {
	struct rates_sample samples[RATES_SAMPLES_MAX]; /* a ring */
	unsigned count, next;
};

struct rates_speed {
	double dirty_bytes_s, drain_bytes_s, objects_s;
};

void rates_add(struct rates *rates, const struct rates_sample *sample);

/* Over the last @window_s seconds, or as many as there are; all 0 without two samples. */
struct rates_speed rates_get(const struct rates *rates, unsigned window_s);

struct rates_backlog {
	uint64_t bytes, objects; /* still to do */
};

/* The seconds until @backlog is empty, as a range. False: it does not shrink. */
bool rates_eta(const struct rates *rates, const struct rates_backlog *backlog, double *ret_low_s,
	       double *ret_high_s);

/* How long what is marked waits on the average until it is done (Little's law), in
 * seconds; INFINITY when nothing gets done. */
double rates_wait_s(const struct rates *rates, const struct rates_backlog *backlog);
