/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/model/life.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "migrate/migrate.h"
#include "tests/model/check.h"
#include "tests/model/client.h"
#include "tests/model/memrocks.h"
#include "tests/model/memstore.h"
#include "tests/model/rng.h"
#include "tests/model/sched.h"
#include "tests/model/world.h"
#include "util/clock.h"
#include "util/log.h"

enum {
	CLIENTS_MAX = 4,
	STEPS_MAX = 600000,
	CHECK_STEPS = 150, /* between checks, at most twice as many */
	DRAIN_MS = 900000, /* virtual; more is a livelock */
	DRAIN_FREE_MS = 60000,
	WATCHDOG_SECONDS = 120,
	LEAKS_OF = 32, /* of so many good ends one is looked at for leaks */
};

struct life {
	const struct life_config *config;
	const struct plan *plan;
	struct store *store[SIDE_MAX];
	struct journal *journal;
	struct marks *marks;
	struct orphans *orphans;
	struct migrate *migrate;
	char limbo_name[MIGRATE_LIMBO_NAME_BYTES];
	struct mount mount;
	struct client clients[CLIENTS_MAX];
	atomic_bool is_stopping;
	bool is_last;
};

/* Of the scheduler's hook. */
static uint64_t crash_step, check_step, last_step;
static bool is_covered; /* no change has happened without a mark */

/* ---- at each step -------------------------------------------------------- */

static void count_steps(void)
{
	world->steps += sched_step() - last_step;
	last_step = sched_step();
}

static _Noreturn void crash(void)
{
	sched_trace("CRASH");
	memstore_crash();
	count_steps();
	_exit(LIFE_KILLED);
}

static void on_step(uint64_t step)
{
	const char *why;

	memstore_land();
	if (step >= crash_step)
		crash();
	if (!is_covered || !world->has_begun || (step < check_step && !check_was_asked()))
		return;
	check_step = step + 1 + sched_random(2 * CHECK_STEPS);
	if (check_is_covered(&why))
		return;
	if (sched_is_traced())
		check_dump();
	sched_fail("%s", why);
}

/* ---- opening and closing ------------------------------------------------- */

static void must(int r, const char *what)
{
	if (r != 0)
		sched_fail("%s: %d", what, r);
}

static void open_all(struct life *life)
{
	const struct plan *plan = life->plan;
	const struct marks_limits limits = {
		.objects_max = plan->objects_max,
		.names_max = plan->names_max,
		.scans_max = plan->scans_max,
		.groups_per_object_max = plan->groups_max,
		.cool_ms = plan->cool_ms,
		.cool_ms_max = 4 * plan->cool_ms,
	};
	const struct journal_pair pair = { "source", "target", "model:source", "model:target" };
	struct migrate_config config = {
		.workers = plan->workers,
		.hold_down_ms = plan->hold_down_ms,
		.was_killed = world->was_killed,
		.active = SIDE_A,
	};
	bool is_new;

	for (enum side side = SIDE_A; side < SIDE_MAX; side++)
		must(memstore_open(side, &life->store[side]), "memstore_open");
	must(journal_open(life->config->state_dir, &pair, &is_new, &life->journal), "journal_open");
	must(marks_open(life->journal, &limits, &life->marks), "marks_open");
	life->orphans = orphans_new();
	assert(life->orphans);
	migrate_limbo_name(life->journal, life->limbo_name);
	life->mount.source = life->store[SIDE_A];
	life->mount.journal = life->journal;
	life->mount.marks = life->marks;
	life->mount.orphans = life->orphans;
	life->mount.broken = life->config->broken;
	mount_init(&life->mount);

	config.store[SIDE_A] = life->store[SIDE_A];
	config.store[SIDE_B] = life->store[SIDE_B];
	config.journal = life->journal;
	config.marks = life->marks;
	config.orphans = life->orphans;
	config.limbo_name = life->limbo_name;
	/* A start that meets a failing target gives up, and is tried again. */
	world->is_target_steady = true;
	must(migrate_open(&config, is_new, !is_new && (plan->has_gaps || !world->has_begun),
			  &life->migrate),
	     "migrate_open");
	world->is_target_steady = false;
	world->has_begun = true;
	must(migrate_start(life->migrate), "migrate_start");
}

static void close_all(struct life *life)
{
	mount_forget_all(&life->mount);
	life->migrate = migrate_close(life->migrate);
	mount_done(&life->mount);
	life->marks = marks_close(life->marks);
	life->orphans = orphans_free(life->orphans);
	life->journal = journal_close(life->journal);
	for (enum side side = SIDE_A; side < SIDE_MAX; side++)
		life->store[side] = store_close(life->store[side]);
}

/* ---- the course of it ----------------------------------------------------- */

static void start_clients(struct life *life)
{
	/* The lives share the operations. */
	unsigned operations = life->plan->client_ops / life->plan->lives + 1;

	for (unsigned i = 0; i < life->plan->clients; i++) {
		life->clients[i] = (struct client){
			.mount = &life->mount,
			.index = i,
			.operations = operations,
			.is_stopping = &life->is_stopping,
		};
		must(pthread_create(&life->clients[i].thread, NULL, client_thread,
				    &life->clients[i]),
		     "pthread_create");
	}
}

static void join_clients(struct life *life)
{
	for (unsigned i = 0; i < life->plan->clients; i++)
		must(pthread_join(life->clients[i].thread, NULL), "pthread_join");
}

/* What an admin and the daemon's tick do meanwhile. */
static void disturb(struct life *life)
{
	struct migrate_status status;

	for (uint64_t n = sched_random(6); n > 0; n--) {
		sched_sleep_ms(sched_random(100));
		switch (sched_random(5)) {
		case 0:
			migrate_set_paused(life->migrate, true);
			sched_sleep_ms(sched_random(50));
			migrate_set_paused(life->migrate, false);
			break;
		case 1:
			/* A freeze that is given up. */
			migrate_set_draining(life->migrate, true);
			sched_sleep_ms(sched_random(50));
			migrate_set_draining(life->migrate, false);
			break;
		case 2:
			must(journal_sync(life->journal), "journal_sync");
			break;
		default:
			migrate_get_status(life->migrate, &status);
		}
	}
}

/* What is marked still, to stderr. */
static void explain(struct life *life)
{
	static const enum journal_mark_kind kinds[] = {
		JOURNAL_MARK_SCAN,
		JOURNAL_MARK_NAME,
		JOURNAL_MARK_DATA,
		JOURNAL_MARK_ATTR,
	};
	struct marks_explanation why;
	struct journal_cursor *cursor;
	struct journal_mark mark;

	for (unsigned i = 0; i < ARRAY_SIZE(kinds); i++) {
		must(journal_marks_open(life->journal, kinds[i], &cursor), "journal_marks_open");
		while (journal_marks_next(cursor, &mark) == 0) {
			marks_explain_object(life->marks, mark.object, &why);
			fprintf(stderr, "  %c object %llu '%s' number %lld:%s%s%s%s%s%s\n",
				mark.kind, (unsigned long long)mark.object, mark.name,
				(long long)mark.number, why.has_attr ? " attr" : "",
				why.has_tail ? " tail" : "", why.is_claimed ? " claimed" : "",
				why.is_changing ? " changing" : "",
				why.is_resting ? " resting" : "",
				marks_has_name(life->marks, mark.object, mark.name) ? " name" : "");
		}
		cursor = journal_cursor_close(cursor);
	}
	if (memrocks_is_there())
		check_dump();
}

static void drain(struct life *life)
{
	uint64_t ms = life->config->is_free ? DRAIN_FREE_MS : DRAIN_MS;
	struct migrate_status status;
	struct marks_stats stats;
	int r;

	migrate_set_draining(life->migrate, true);
	r = marks_wait_empty(life->marks, clock_ms() + ms / 10);
	if (r < 0) {
		/* It has failed for long enough. */
		world->is_target_steady = true;
		r = marks_wait_empty(life->marks, clock_ms() + ms);
	}
	if (r < 0) {
		explain(life);
		marks_get_stats(life->marks, &stats);
		migrate_get_status(life->migrate, &status);
		sched_fail(
			"it does not converge: %llu objects, %llu names, %llu scans are marked, %llu claimed, %llu resting; last error: %s",
			(unsigned long long)stats.objects, (unsigned long long)stats.names,
			(unsigned long long)stats.scans, (unsigned long long)stats.claimed,
			(unsigned long long)stats.resting, status.error_last);
	}
	if (marks_is_lost(life->marks))
		sched_fail("marks are lost");
	/* The last clears need not have reached the journal. */
	marks_lock(life->marks);
	must(journal_flush(life->journal, marks_unlock(life->marks)), "journal_flush");
}

static void check(struct life *life)
{
	struct tree_ref refs[MOUNT_LEFTOVERS_MAX];

	for (unsigned i = 0; i < life->mount.leftover_count; i++)
		refs[i] = life->mount.leftovers[i].ref;
	check_equal(life->journal, life->limbo_name, refs, life->mount.leftover_count);
}

static void end_well(struct life *life)
{
	const char *why;

	sched_trace("THE END: draining");
	if (sched_random(2))
		world->is_target_steady = true;
	drain(life);
	memstore_land_all();
	check(life);
	mount_forget_all(&life->mount);
	drain(life);
	check(life);
	if (is_covered && memrocks_is_there() && !check_is_covered(&why))
		sched_fail("in the end: %s", why);
	close_all(life);
}

static void begin(const struct life_config *config)
{
	struct rng rng;
	struct sched_config sched = {
		.is_free = config->is_free,
		.is_traced = config->is_traced,
		.steps_max = STEPS_MAX,
		.clock_ns = &world->clock_ns,
		.hook = on_step,
	};

	rng_init(&rng, world->plan.seed * 31 + world->life);
	sched.seed = rng_next(&rng);
	sched.policy = (enum sched_policy)rng_below(&rng, SCHED_POLICY_MAX);
	sched.stickiness = 500 + (unsigned)rng_below(&rng, 490);
	sched.changes = 20 + (unsigned)rng_below(&rng, 300);
	sched.jump = (unsigned)rng_below(&rng, 4) * (unsigned)rng_below(&rng, 50);
	crash_step = UINT64_MAX;
	is_covered = memrocks_is_there() && !config->is_free &&
		     (!world->plan.has_gaps || world->life == 0);
	if (!config->is_free && world->life + 1 < world->plan.lives &&
	    !rng_chance(&rng, world->plan.stop_of_1000))
		crash_step = 1 + rng_below(&rng, rng_below(&rng, 4) ? 12000 : 1500);
	sched_begin(&sched);
}

_Noreturn void life_run(const struct life_config *config)
{
	static struct life life;

	(void)alarm(WATCHDOG_SECONDS); /* of real time: it hangs where no step is counted */
	begin(config);
	life.config = config;
	life.plan = &world->plan;
	life.is_last = world->life + 1 == world->plan.lives;
	open_all(&life);
	start_clients(&life);
	if (life.plan->has_pauses)
		disturb(&life);
	if (!life.is_last && crash_step == UINT64_MAX) {
		sched_sleep_ms(sched_random(300));
		if (config->is_free && sched_random(3)) {
			sched_guard();
			_exit(LIFE_KILLED);
		}
		life.is_stopping = true;
	}
	join_clients(&life);
	if (life.is_last) {
		end_well(&life);
	} else if (crash_step != UINT64_MAX) {
		/* All is done, and the crash has not come yet. */
		drain(&life);
		crash();
	} else {
		close_all(&life);
	}
	count_steps();
	if (world->plan.seed % LEAKS_OF == 0)
		exit(life.is_last ? LIFE_DONE : LIFE_STOPPED);
	_exit(life.is_last ? LIFE_DONE : LIFE_STOPPED);
}
