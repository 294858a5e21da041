/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/model/sched.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tests/model/rng.h"

/*
 * A mutex is the real one, taken by trylock: who does not get it is blocked until it is
 * unlocked. A condition variable is only an address that threads wait on. `current` and
 * all of `threads` are touched by the holder of the token only; the token is handed on by
 * a futex word of the receiver.
 */

#define JUMP_NS_MAX UINT64_C(1000000000) /* while others could run */

enum state { RUNNABLE, ON_MUTEX, ON_COND, ON_JOIN, ON_SLEEP, DONE };

static const char *const state_names[] = {
	"runnable", "mutex", "condition", "join", "sleep", "done"
};

struct thread {
	_Atomic uint32_t has_token;
	pthread_t real;
	enum state state;
	const void *waits_for;
	uint64_t deadline_ns; /* UINT64_MAX: none */
	bool is_timed_out;
	uint64_t priority;
	struct rng rng;
	void *pending;
	char name[16];
	void *(*run)(void *);
	void *context;
};

static struct {
	bool is_on;
	struct sched_config config;
	struct thread threads[SCHED_THREADS_MAX];
	unsigned count;
	unsigned current;
	uint64_t step;
	uint64_t low_priority;
	struct rng rng;
	char *verdict;
	size_t verdict_size;
} s;

static _Thread_local struct thread *self;
static _Thread_local struct rng free_rng;
static _Atomic uint64_t free_rngs;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
int __real_pthread_mutex_trylock(pthread_mutex_t *mutex);
int __real_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __real_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex);
int __real_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
				  const struct timespec *until);
int __real_pthread_cond_signal(pthread_cond_t *cond);
int __real_pthread_cond_broadcast(pthread_cond_t *cond);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
			  void *context);
int __real_pthread_join(pthread_t thread, void **ret);
int __real_clock_gettime(clockid_t clock, struct timespec *ret);
ssize_t __real_getrandom(void *buffer, size_t size, unsigned flags);

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_trylock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex);
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
				  const struct timespec *until);
int __wrap_pthread_cond_signal(pthread_cond_t *cond);
int __wrap_pthread_cond_broadcast(pthread_cond_t *cond);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
			  void *context);
int __wrap_pthread_join(pthread_t thread, void **ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
ssize_t __wrap_getrandom(void *buffer, size_t size, unsigned flags);

/* ---- verdicts and traces ------------------------------------------------- */

void sched_set_verdict(char *text, size_t size)
{
	s.verdict = text;
	s.verdict_size = size;
}

void sched_dump(void)
{
	for (unsigned i = 0; i < s.count; i++) {
		const struct thread *t = &s.threads[i];

		fprintf(stderr, "  %-10s %-9s %p", t->name, state_names[t->state], t->waits_for);
		if (t->deadline_ns != UINT64_MAX)
			fprintf(stderr, " until %llu ms",
				(unsigned long long)t->deadline_ns / 1000000);
		fputc('\n', stderr);
	}
}

_Noreturn void sched_fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	if (s.verdict)
		(void)vsnprintf(s.verdict, s.verdict_size, format, args); /* cut if long */
	va_end(args);
	_exit(SCHED_EXIT_FAILED);
}

bool sched_is_traced(void)
{
	return s.config.is_traced;
}

void sched_trace(const char *format, ...)
{
	va_list args;

	if (!s.config.is_traced)
		return;
	fprintf(stderr, "%7llu %8.3f %-10s ", (unsigned long long)s.step,
		(double)sched_clock_ns() / 1e6, self ? self->name : "-");
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
}

/* ---- random numbers ------------------------------------------------------ */

uint64_t sched_random(uint64_t n)
{
	if (self)
		return rng_below(&self->rng, n);
	if (free_rng.state == 0)
		rng_init(&free_rng, s.config.seed * 1000003 + atomic_fetch_add(&free_rngs, 1));
	return rng_below(&free_rng, n);
}

void sched_reseed(uint64_t seed)
{
	rng_init(&free_rng, seed);
}

bool sched_chance(unsigned of_1000)
{
	return of_1000 > 0 && sched_random(1000) < of_1000;
}

/* ---- the token ----------------------------------------------------------- */

static void futex(_Atomic uint32_t *word, int op, uint32_t value)
{
	(void)syscall(SYS_futex, word, op, value, NULL, NULL,
		      0); /* looked at again by the caller */
}

static void take_token(struct thread *t)
{
	while (atomic_exchange(&t->has_token, 0) == 0)
		futex(&t->has_token, FUTEX_WAIT_PRIVATE, 0);
}

static void give_token(struct thread *t)
{
	s.current = (unsigned)(t - s.threads);
	atomic_store(&t->has_token, 1);
	futex(&t->has_token, FUTEX_WAKE_PRIVATE, 1);
}

static void expire(void)
{
	for (unsigned i = 0; i < s.count; i++) {
		struct thread *t = &s.threads[i];

		if (t->state != RUNNABLE && t->state != DONE &&
		    t->deadline_ns <= *s.config.clock_ns) {
			t->is_timed_out = true;
			t->state = RUNNABLE;
			t->deadline_ns = UINT64_MAX;
		}
	}
}

static bool jump_to_next_timer(uint64_t within_ns)
{
	uint64_t next = UINT64_MAX;

	for (unsigned i = 0; i < s.count; i++)
		if (s.threads[i].state != DONE && s.threads[i].deadline_ns < next)
			next = s.threads[i].deadline_ns;
	if (next == UINT64_MAX ||
	    (next > *s.config.clock_ns && next - *s.config.clock_ns > within_ns))
		return false;
	if (next > *s.config.clock_ns)
		*s.config.clock_ns = next;
	expire();
	return true;
}

static struct thread *choose(void)
{
	struct thread *runnable[SCHED_THREADS_MAX], *best = NULL;
	unsigned count = 0;

	for (;;) {
		for (unsigned i = 0; i < s.count; i++)
			if (s.threads[i].state == RUNNABLE)
				runnable[count++] = &s.threads[i];
		if (count > 0)
			break;
		if (!jump_to_next_timer(UINT64_MAX)) {
			sched_dump();
			sched_fail("deadlock: nobody can run, and no timer is set");
		}
	}
	switch (s.config.policy) {
	case SCHED_STICKY:
		if (s.threads[s.current].state == RUNNABLE &&
		    rng_below(&s.rng, 1000) < s.config.stickiness)
			return &s.threads[s.current];
		break;
	case SCHED_PRIORITY:
		/* What spins (a loop that waits with a timeout) must let others go on. */
		if (rng_below(&s.rng, 10000) < s.config.changes)
			s.threads[s.current].priority = --s.low_priority;
		if (rng_below(&s.rng, 50) == 0)
			break;
		for (unsigned i = 0; i < count; i++)
			if (!best || runnable[i]->priority > best->priority)
				best = runnable[i];
		return best;
	case SCHED_RANDOM:
	case SCHED_POLICY_MAX:
		break;
	}
	return runnable[rng_below(&s.rng, count)];
}

/* Gives the token on; returns when it is back. */
static void pass(void)
{
	struct thread *next;
	bool is_done = self->state == DONE; /* nothing is ours when the token is gone */

	s.step++;
	*s.config.clock_ns += rng_below(&s.rng, 20000);
	if (rng_below(&s.rng, 10000) < s.config.jump)
		(void)jump_to_next_timer(JUMP_NS_MAX); /* nothing if there is none */
	else
		expire();
	if (s.config.hook)
		s.config.hook(s.step);
	if (s.step > s.config.steps_max) {
		sched_dump();
		sched_fail("it does not end: %llu steps", (unsigned long long)s.step);
	}
	next = choose();
	if (next == self)
		return;
	give_token(next);
	if (!is_done)
		take_token(self);
}

static void block(enum state state, const void *waits_for, uint64_t deadline_ns)
{
	self->state = state;
	self->waits_for = waits_for;
	self->deadline_ns = deadline_ns;
	self->is_timed_out = false;
	pass();
	self->waits_for = NULL;
	self->deadline_ns = UINT64_MAX;
}

static void wake(struct thread *t)
{
	t->state = RUNNABLE;
	t->deadline_ns = UINT64_MAX;
}

static void wake_all(enum state state, const void *waited_for)
{
	for (unsigned i = 0; i < s.count; i++)
		if (s.threads[i].state == state && s.threads[i].waits_for == waited_for)
			wake(&s.threads[i]);
}

static struct thread *thread_add(const char *name)
{
	struct thread *t = &s.threads[s.count];

	assert(s.count < SCHED_THREADS_MAX);
	*t = (struct thread){ .state = RUNNABLE, .deadline_ns = UINT64_MAX };
	t->priority = UINT64_C(1) << 32 | rng_next(&s.rng) >> 32;
	rng_init(&t->rng, rng_next(&s.rng));
	if (name)
		(void)snprintf(t->name, sizeof(t->name), "%s", name); /* fits */
	else
		(void)snprintf(t->name, sizeof(t->name), "t%u", s.count); /* fits */
	s.count++;
	return t;
}

void sched_begin(const struct sched_config *config)
{
	assert(s.count == 0);
	s.config = *config;
	s.low_priority = UINT64_C(1) << 32;
	rng_init(&s.rng, config->seed);
	s.is_on = !config->is_free;
	if (!s.is_on)
		return;
	self = thread_add("main");
	self->real = pthread_self();
}

bool sched_is_on(void)
{
	return s.is_on;
}

void sched_point(void)
{
	if (self)
		pass();
}

void sched_sleep_ms(uint64_t ms)
{
	struct timespec time = { .tv_sec = (time_t)(ms / 1000),
				 .tv_nsec = (long)(ms % 1000) * 1000000 };

	if (self)
		block(ON_SLEEP, NULL, *s.config.clock_ns + ms * 1000000);
	else
		(void)nanosleep(&time, NULL); /* a shorter one does no harm */
}

uint64_t sched_step(void)
{
	return s.step;
}

uint64_t sched_clock_ns(void)
{
	struct timespec now;

	if (s.config.clock_ns && !s.config.is_free)
		return *s.config.clock_ns;
	__real_clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void sched_set_pending(void *pending)
{
	if (self)
		self->pending = pending;
}

void sched_each_pending(void (*call)(void *pending))
{
	for (unsigned i = 0; i < s.count; i++)
		if (s.threads[i].pending)
			call(s.threads[i].pending);
}

void sched_set_name(const char *name)
{
	if (self)
		(void)snprintf(self->name, sizeof(self->name), "%s", name); /* cut if long */
}

void sched_guard(void)
{
	if (!self)
		__real_pthread_mutex_lock(&guard);
}

void sched_unguard(void)
{
	if (!self)
		__real_pthread_mutex_unlock(&guard);
}

/* ---- what the linker catches --------------------------------------------- */

static void lock(pthread_mutex_t *mutex)
{
	while (__real_pthread_mutex_trylock(mutex) == EBUSY)
		block(ON_MUTEX, mutex, UINT64_MAX);
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
	if (!self)
		return __real_pthread_mutex_lock(mutex);
	pass();
	lock(mutex);
	return 0;
}

int __wrap_pthread_mutex_trylock(pthread_mutex_t *mutex)
{
	sched_point();
	return __real_pthread_mutex_trylock(mutex);
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
	int r = __real_pthread_mutex_unlock(mutex);

	if (!self)
		return r;
	assert(r == 0);
	wake_all(ON_MUTEX, mutex);
	pass();
	return r;
}

static int wait_cond(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t deadline_ns)
{
	bool is_timed_out;
	int r;

	r = __real_pthread_mutex_unlock(mutex);
	assert(r == 0);
	wake_all(ON_MUTEX, mutex);
	block(ON_COND, cond, deadline_ns);
	is_timed_out = self->is_timed_out;
	lock(mutex);
	return is_timed_out ? ETIMEDOUT : 0;
}

int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
	return self ? wait_cond(cond, mutex, UINT64_MAX) : __real_pthread_cond_wait(cond, mutex);
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
				  const struct timespec *until)
{
	if (!self)
		return __real_pthread_cond_timedwait(cond, mutex, until);
	return wait_cond(cond, mutex,
			 (uint64_t)until->tv_sec * 1000000000 + (uint64_t)until->tv_nsec);
}

int __wrap_pthread_cond_signal(pthread_cond_t *cond)
{
	struct thread *waiters[SCHED_THREADS_MAX];
	unsigned count = 0;

	if (!self)
		return __real_pthread_cond_signal(cond);
	for (unsigned i = 0; i < s.count; i++)
		if (s.threads[i].state == ON_COND && s.threads[i].waits_for == cond)
			waiters[count++] = &s.threads[i];
	if (count > 0)
		wake(waiters[rng_below(&s.rng, count)]);
	pass();
	return 0;
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *cond)
{
	if (!self)
		return __real_pthread_cond_broadcast(cond);
	wake_all(ON_COND, cond);
	pass();
	return 0;
}

static void *run_thread(void *context)
{
	void *ret;

	self = context;
	take_token(self);
	ret = self->run(self->context);
	self->state = DONE;
	wake_all(ON_JOIN, self);
	pass();
	self = NULL;
	return ret;
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
			  void *context)
{
	struct thread *t;
	int r;

	if (!self)
		return __real_pthread_create(thread, attr, run, context);
	t = thread_add(NULL);
	t->run = run;
	t->context = context;
	/* A sanitizer needs more stack than the code under test asks for. */
	r = __real_pthread_create(&t->real, NULL, run_thread, t);
	assert(r == 0);
	*thread = t->real;
	pass();
	return r;
}

int __wrap_pthread_join(pthread_t thread, void **ret)
{
	if (!self)
		return __real_pthread_join(thread, ret);
	for (unsigned i = 0; i < s.count; i++) {
		struct thread *t = &s.threads[i];

		if (!t->run || !pthread_equal(t->real, thread))
			continue;
		while (t->state != DONE)
			block(ON_JOIN, t, UINT64_MAX);
		t->run = NULL; /* its pthread_t may be given out again */
	}
	return __real_pthread_join(thread, ret);
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
	uint64_t now;

	if (!s.is_on)
		return __real_clock_gettime(clock, ret);
	now = *s.config.clock_ns;
	*ret = (struct timespec){ .tv_sec = (time_t)(now / 1000000000),
				  .tv_nsec = (long)(now % 1000000000) };
	return 0;
}

ssize_t __wrap_getrandom(void *buffer, size_t size, unsigned flags)
{
	uint8_t *bytes = buffer;

	if (!s.is_on)
		return __real_getrandom(buffer, size, flags);
	for (size_t i = 0; i < size; i++)
		bytes[i] = (uint8_t)rng_next(&s.rng);
	return (ssize_t)size;
}
