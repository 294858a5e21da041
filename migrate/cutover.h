/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Cutover: freeze changes, empty the set of marks, make the target durable, write one
 * synced record, go on from the other side (model/flip.pml).
 *
 * Before the record is written any failure, or the bound, thaws: nothing has happened.
 * After it there is no way back and no timeout. One cutover at a time; the status may
 * be read by any thread.
 */

#include <stdbool.h>
#include <stdint.h>

#include "journal/phase.h"
#include "migrate/migrate.h"
#include "util/attr.h"

/* What parks the workload: the overlay's functions of the same names. */
struct cutover_gate {
	void *context;
	int (*freeze)(void *context, uint64_t deadline_ms);
	bool (*is_overfull)(void *context);
	void (*thaw)(void *context);
	int (*hold_reads)(void *context, uint64_t deadline_ms);
	void (*switch_side)(void *context, enum side side);
};

enum cutover_step { CUTOVER_IDLE, CUTOVER_PREPARE, CUTOVER_FREEZE, CUTOVER_DRAIN, CUTOVER_STEP_MAX };

struct cutover_result {
	uint32_t freeze_ms;	/* how long changes were held; also after a thaw */
	char reason[256];	/* why it was refused or given up, in words; "" if done */
};

struct cutover; /* opaque */

/* @record and @file are used by it alone from now on; borrowed until cutover_close(). */
int cutover_open(const struct migrate_config *config, struct migrate *migrate, struct phase_file *file,
		 const struct phase_record *record, const struct cutover_gate *gate,
		 struct cutover **ret_cutover) MUST_CHECK;
struct cutover *cutover_close(struct cutover *cutover);

/* Flips from side A to side B. 0: done. -EAGAIN: refused or thawed, see the reason;
 * -EALREADY: it has been done before. */
int cutover_failover(struct cutover *cutover, uint32_t freeze_ms_max, struct cutover_result *ret_result) MUST_CHECK;

enum cutover_step cutover_step(const struct cutover *cutover);
void cutover_get_record(struct cutover *cutover, struct phase_record *ret_record);
/* Baseline is done: the phase goes to converge. Idempotent, called by the daemon's tick;
 * also records a gap (marks lost). */
int cutover_update(struct cutover *cutover) MUST_CHECK;
/* How long a freeze would last now, by the backlog and the measured rates. */
uint32_t cutover_predict_ms(struct cutover *cutover);
/* A clean stop: the record no longer says "running". To be called when the migrator has ended
 * and the journal is synced. */
int cutover_record_stop(struct cutover *cutover) MUST_CHECK;
