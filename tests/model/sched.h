/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * A deterministic scheduler for real threads. Of all threads of the process only the one
 * that holds the token runs; at each lock, unlock, wait, signal, create and join, and
 * wherever sched_point() is called, the token may go to another one, as the seed says.
 * The calls are caught by the linker (--wrap), so the code under test knows nothing of it.
 *
 * Time is virtual: it creeps with each step and jumps when everybody waits, so a timeout
 * costs nothing. That nobody can run and no timer is set is a deadlock, and a failure.
 *
 * Free mode (sched_config.is_free): the calls go through, threads race as they will, time
 * is real. It finds with the thread sanitizer what a token hides.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/attr.h"

enum { SCHED_THREADS_MAX = 64 };

enum sched_policy {
	SCHED_RANDOM,	/* anybody who can run, at each point */
	SCHED_STICKY,	/* the same one goes on, mostly */
	SCHED_PRIORITY, /* the highest of random priorities, which fall at random points */
	SCHED_POLICY_MAX,
};

struct sched_config {
	uint64_t seed;
	bool is_free, is_traced;
	enum sched_policy policy;
	unsigned stickiness; /* STICKY: of 1000 points, so many go on */
	unsigned changes;    /* PRIORITY: in 10000 points, about so many falls */
	unsigned jump;	     /* in 10000 points, about so many jumps of time to the next timer */
	uint64_t steps_max;  /* more are a livelock, and a failure */
	uint64_t *clock_ns;  /* virtual time; outlives the process */
	void (*hook)(uint64_t step); /* at each point, with the token held; NULL: none */
};

/* The calling thread becomes the first, with the token. Once a process. */
void sched_begin(const struct sched_config *config);
bool sched_is_on(void);
bool sched_is_traced(void);

void sched_point(void);
void sched_sleep_ms(uint64_t ms);
uint64_t sched_step(void);
uint64_t sched_clock_ns(void);

/* Random numbers of the calling thread, [0, @n). */
uint64_t sched_random(uint64_t n);
/* Of a thread that sched_begin() does not know. */
void sched_reseed(uint64_t seed);
bool sched_chance(unsigned of_1000);

/* What the calling thread is about to do to the outside world; NULL: nothing. Read at a
 * crash by sched_each_pending(). */
void sched_set_pending(void *pending);
void sched_each_pending(void (*call)(void *pending));

void sched_set_name(const char *name);
void sched_trace(const char *format, ...) PRINTF_LIKE(1, 2);

/* Mutual exclusion of the test's own data: nothing under a token, a real lock in free mode. */
void sched_guard(void);
void sched_unguard(void);

/* Ends the process with a verdict; the text goes to where the parent finds it. */
_Noreturn void sched_fail(const char *format, ...) PRINTF_LIKE(1, 2);
/* Who waits for what, to stderr. */
void sched_dump(void);
/* Where sched_fail() writes, of @size bytes, shared with the parent. */
void sched_set_verdict(char *text, size_t size);

enum { SCHED_EXIT_FAILED = 99 };
