/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Time as the daemon uses it: monotonic, in milliseconds or nanoseconds. */

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline uint64_t clock_ms(void)
{
	return clock_ns() / 1000000u;
}

/* The absolute CLOCK_MONOTONIC time @ms, as pthread_cond_timedwait() takes it of
 * a condition made by cond_init_monotonic(). */
static inline struct timespec clock_timespec(uint64_t ms)
{
	return (struct timespec){ .tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000 };
}

static inline int timespec_cmp(struct timespec a, struct timespec b)
{
	if (a.tv_sec != b.tv_sec)
		return a.tv_sec < b.tv_sec ? -1 : 1;
	return a.tv_nsec < b.tv_nsec ? -1 : a.tv_nsec > b.tv_nsec;
}
