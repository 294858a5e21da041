/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order, each step before the next (model/flip.pml and design section 7):
 *
 *	prepare	drain with the workload running, until what is left fits the bound
 *	freeze	the gate closes for changes, those under way end
 *	drain	the set of marks becomes empty: a mark is cleared only after the target's
 *		commit, so empty means committed
 *	hold	reads too, for the instant that is left
 *	record	the phase record says the other side, synced: the point of no return
 *	switch	the overlay serves from the other side, then the gate opens
 *
 * The deadline is kept by the thread that calls cutover_failover(): it waits with time
 * limits only, and makes no call to a store.
 */
#include "migrate/cutover.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/clock.h"
#include "util/log.h"

enum {
	PREPARE_MS_MAX = 30000,	   /* then it is refused */
	PREPARE_GOOD_MS = 20,	   /* a predicted freeze that need not get shorter */
	PREPARE_ROUND_MS = 10,	   /* between two looks */
	PREPARE_PATIENCE_MS = 2000, /* without getting better, what fits is taken */
	DRAIN_ROUND_MS = 10,	   /* between two looks at the parked bytes */
	RECORD_RETRY_MS = 100,
};

struct cutover {
	struct migrate_config config;
	struct migrate *migrate; /* borrowed */
	struct phase_file *file; /* borrowed */
	struct cutover_gate gate;
	pthread_mutex_t busy;	 /* one cutover at a time */
	pthread_mutex_t lock;
	struct phase_record record; /* guarded by lock */
	bool is_flipping;	    /* guarded by lock: the file is record_flip()'s alone */
	_Atomic enum cutover_step step;
};

static enum side other_side(enum side side)
{
	return side == SIDE_A ? SIDE_B : SIDE_A;
}

int cutover_open(const struct migrate_config *config, struct migrate *migrate, struct phase_file *file,
		 const struct phase_record *record, const struct cutover_gate *gate,
		 struct cutover **ret_cutover)
{
	struct cutover *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->config = *config;
	c->migrate = migrate;
	c->file = file;
	c->gate = *gate;
	c->record = *record;
	pthread_mutex_init(&c->busy, NULL);
	pthread_mutex_init(&c->lock, NULL);
	*ret_cutover = c;
	return 0;
}

struct cutover *cutover_close(struct cutover *c)
{
	if (!c)
		return NULL;
	pthread_mutex_destroy(&c->lock);
	pthread_mutex_destroy(&c->busy);
	free(c);
	return NULL;
}

enum cutover_step cutover_step(const struct cutover *c)
{
	return c->step;
}

void cutover_get_record(struct cutover *c, struct phase_record *ret_record)
{
	pthread_mutex_lock(&c->lock);
	*ret_record = c->record;
	pthread_mutex_unlock(&c->lock);
}

/* Writes @record under the lock: no reader sees one that is not on the disk. During a flip
 * nothing is written, the next tick does it. */
static int write_record_locked(struct cutover *c, const struct phase_record *record)
{
	int r;

	if (c->is_flipping || memcmp(record, &c->record, sizeof(*record)) == 0)
		return 0;
	r = phase_file_write(c->file, record);
	if (r == 0)
		c->record = *record;
	return r;
}

int cutover_update(struct cutover *c)
{
	struct migrate_status status;
	struct phase_record record;
	int r;

	migrate_get_status(c->migrate, &status);
	pthread_mutex_lock(&c->lock);
	record = c->record;
	if (record.phase == PHASE_BASELINE && status.is_baseline_done)
		record.phase = PHASE_CONVERGE;
	if (marks_is_lost(c->config.marks))
		record.has_gap = true;
	else if (record.has_gap && record.active == SIDE_A && !status.is_gap_open)
		record.has_gap = false;
	r = write_record_locked(c, &record);
	pthread_mutex_unlock(&c->lock);
	return r;
}

int cutover_record_stop(struct cutover *c)
{
	struct phase_record record;
	int r;

	pthread_mutex_lock(&c->lock);
	record = c->record;
	record.is_running = false;
	r = write_record_locked(c, &record);
	pthread_mutex_unlock(&c->lock);
	return r;
}

uint32_t cutover_predict_ms(struct cutover *c)
{
	struct migrate_rates rates;
	struct marks_stats stats;
	double ms;

	marks_get_stats(c->config.marks, &stats);
	migrate_get_rates(c->migrate, &rates);
	/* Commits: of what is left, and of what the last round redirtied. */
	ms = 5 + 2.0 * rates.commit_ms;
	ms += (double)(stats.names + stats.objects + stats.scans) * rates.task_ms / rates.workers;
	ms += (double)stats.bytes / rates.bytes_per_ms;
	return ms < 1e9 ? (uint32_t)ms : 1000000000;
}

/* ---- failover ------------------------------------------------------------------- */

static int refuse(struct cutover_result *result, const char *format, ...) PRINTF_LIKE(2, 3);

static int refuse(struct cutover_result *result, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	(void)vsnprintf(result->reason, sizeof(result->reason), format, args); /* cut if it is long */
	va_end(args);
	return -EAGAIN;
}

static int check_state(struct cutover *c, struct cutover_result *result)
{
	struct migrate_status status;
	struct phase_record record;
	struct marks_stats stats;

	cutover_get_record(c, &record);
	migrate_get_status(c->migrate, &status);
	marks_get_stats(c->config.marks, &stats);
	if (marks_is_lost(c->config.marks) || journal_is_failed(c->config.journal))
		return refuse(result, "the journal has failed: changes may be unknown; mend the state "
				      "directory's disk, then stop and start again");
	if (record.has_gap || status.is_gap_open)
		return refuse(result, "source and target are still being compared after a time in which "
				      "the source was not watched; see 'ferry status'");
	if (status.is_degraded)
		return refuse(result, "the target fails: %.180s", status.error_last);
	if (!status.is_baseline_done)
		return refuse(result, "the baseline copy is not done; see 'ferry status'");
	if (status.is_paused)
		return refuse(result, "the migration is paused; 'ferry resume' first");
	if (stats.is_spilled)
		return refuse(result, "the backlog is larger than what fits in memory; wait for it to shrink");
	if (status.suspects_until_ms)
		return refuse(result, "a connection to the target was lost: a late write is possible for "
				      "another %llu s",
			      (unsigned long long)((status.suspects_until_ms - clock_ms()) / 1000 + 1));
	return 0;
}

/* Drains with the workload running until the rest is small, or no longer gets smaller. */
static int prepare(struct cutover *c, uint32_t freeze_ms_max, struct cutover_result *result)
{
	uint64_t begun = clock_ms(), better_at = begun, waited;
	uint32_t best = UINT32_MAX, now;

	for (;;) {
		now = cutover_predict_ms(c);
		if (now < best) {
			best = now;
			better_at = clock_ms();
		}
		waited = clock_ms() - better_at;
		if (now <= PREPARE_GOOD_MS && now <= freeze_ms_max)
			break;
		/* Churn goes up and down: not at its height, if there is a choice. */
		if (waited > PREPARE_PATIENCE_MS && now <= freeze_ms_max / 2 &&
		    (now <= 2 * best || waited > 2 * PREPARE_PATIENCE_MS))
			break;
		if (waited > 3 * PREPARE_PATIENCE_MS || clock_ms() - begun > PREPARE_MS_MAX)
			return refuse(result,
				      "a freeze would take about %u ms, more than half of the %u ms allowed: "
				      "give --max-freeze more, or wait until less is being written",
				      now, freeze_ms_max);
		if (migrate_sleep(c->migrate, clock_ms() + PREPARE_ROUND_MS))
			return refuse(result, "the daemon is stopping");
	}
	return check_state(c, result);
}

static int drain(struct cutover *c, uint64_t deadline_ms, struct cutover_result *result)
{
	struct marks_stats stats;
	uint64_t now;
	int r;

	for (;;) {
		now = clock_ms();
		r = marks_wait_empty(c->config.marks,
				     now + DRAIN_ROUND_MS < deadline_ms ? now + DRAIN_ROUND_MS : deadline_ms);
		if (r == 0)
			break;
		if (c->gate.is_overfull(c->gate.context))
			return refuse(result, "too many requests had to be held; nothing has happened");
		if (clock_ms() >= deadline_ms) {
			marks_get_stats(c->config.marks, &stats);
			return refuse(result,
				      "the bound was reached with %llu objects, %llu names, %llu bytes left; "
				      "nothing has happened",
				      (unsigned long long)stats.objects, (unsigned long long)stats.names,
				      (unsigned long long)stats.bytes);
		}
	}
	return check_state(c, result);
}

/* From the first write on there is no way back: only forward, as often as it takes; without
 * the lock, so that the status can be asked meanwhile. */
static void record_flip(struct cutover *c, uint64_t frozen_ms)
{
	struct phase_record record;
	int r;

	pthread_mutex_lock(&c->lock);
	c->is_flipping = true;
	record = c->record;
	pthread_mutex_unlock(&c->lock);
	record.active = other_side(record.active);
	record.phase = PHASE_GUARD;
	record.last_freeze_ms = (uint32_t)(clock_ms() - frozen_ms);
	for (;;) {
		r = phase_file_write(c->file, &record);
		if (r == 0)
			break;
		(void)log_error_errno(r, "cannot write the phase record: the mount stays frozen, retrying");
		(void)migrate_sleep(c->migrate, clock_ms() + RECORD_RETRY_MS); /* also while stopping */
	}
	pthread_mutex_lock(&c->lock);
	c->record = record;
	c->is_flipping = false;
	pthread_mutex_unlock(&c->lock);
}

/* For the status after a restart: as long as it really was, with the record's own sync. */
static void record_freeze(struct cutover *c, uint32_t freeze_ms)
{
	struct phase_record record;
	int r;

	pthread_mutex_lock(&c->lock);
	record = c->record;
	record.last_freeze_ms = freeze_ms;
	r = write_record_locked(c, &record);
	pthread_mutex_unlock(&c->lock);
	if (r < 0)
		(void)log_warning_errno(r, "cannot write down how long the freeze was");
}

static int freeze_and_flip(struct cutover *c, uint32_t freeze_ms_max, struct cutover_result *result)
{
	uint64_t frozen_ms = clock_ms();
	uint64_t deadline_ms = frozen_ms + freeze_ms_max;
	enum side to = other_side(c->config.active);
	int r;

	c->step = CUTOVER_FREEZE;
	r = c->gate.freeze(c->gate.context, deadline_ms);
	if (r < 0) {
		result->freeze_ms = (uint32_t)(clock_ms() - frozen_ms);
		return refuse(result, r == -ETIMEDOUT ?
					      "changes under way did not end within the bound; nothing has happened" :
					      "too many requests had to be held; nothing has happened");
	}
	c->step = CUTOVER_DRAIN;
	r = drain(c, deadline_ms, result);
	/* The last reader has to leave before the point of no return: a source that hangs must
	 * not hold the workload for longer than the bound. */
	if (r == 0 && c->gate.hold_reads(c->gate.context, deadline_ms) < 0)
		r = refuse(result, "reads under way did not end within the bound; nothing has happened");
	if (r < 0) {
		c->gate.thaw(c->gate.context);
		result->freeze_ms = (uint32_t)(clock_ms() - frozen_ms);
		return r;
	}
	/* From now on a call to the target is the workload's: it waits for the outcome. */
	store_set_reports_unknown(c->config.store[to], false);
	record_flip(c, frozen_ms);
	migrate_end_direction(c->migrate);
	c->gate.switch_side(c->gate.context, to);
	result->freeze_ms = (uint32_t)(clock_ms() - frozen_ms);
	record_freeze(c, result->freeze_ms);
	return 0;
}

int cutover_failover(struct cutover *c, uint32_t freeze_ms_max, struct cutover_result *ret_result)
{
	struct phase_record record;
	int r;

	*ret_result = (struct cutover_result){ .freeze_ms = 0 };
	if (pthread_mutex_trylock(&c->busy))
		return refuse(ret_result, "a failover is under way already");
	cutover_get_record(c, &record);
	if (record.active != SIDE_A) {
		pthread_mutex_unlock(&c->busy);
		return -EALREADY;
	}
	c->step = CUTOVER_PREPARE;
	r = check_state(c, ret_result);
	if (r == 0) {
		migrate_set_draining(c->migrate, true);
		r = prepare(c, freeze_ms_max, ret_result);
		if (r == 0)
			r = freeze_and_flip(c, freeze_ms_max, ret_result);
		migrate_set_draining(c->migrate, false);
	}
	c->step = CUTOVER_IDLE;
	if (r == 0)
		log_info("failed over to the target: changes were held for %u ms", ret_result->freeze_ms);
	else
		log_warning("failover was given up: %s", ret_result->reason);
	pthread_mutex_unlock(&c->busy);
	return r;
}
