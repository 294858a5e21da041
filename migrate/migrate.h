/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The migrator: works off marks (journal/marks.h), so that the passive side becomes
 * equal to the active one. Threads of its own:
 *
 *	scanner		lists directories, yields names (scan.c)
 *	workers		names, objects, data: look, make equal (reconcile.c, copy.c, attr.c)
 *	committer	commits the target, then clears (commit.c)
 *
 * Nothing here is ever called by a request of the workload, and no error of the
 * passive side is anybody's but ours: it is counted, the mark stays, and is tried again.
 */

#include <stdbool.h>
#include <stdint.h>

#include "fs/store/store.h"
#include "journal/journal.h"
#include "journal/marks.h"
#include "migrate/orphans.h"
#include "util/attr.h"

struct migrate; /* opaque */

struct migrate_config {
	struct store *store[SIDE_MAX]; /* borrowed until migrate_close() */
	struct journal *journal;       /* borrowed */
	struct marks *marks;	       /* borrowed */
	struct orphans *orphans;       /* borrowed */
	enum side active;	       /* copied from */
	const char *limbo_name;	       /* migrate_limbo_name(); borrowed */
	unsigned workers;	       /* 0: as many as suits the passive store */
	uint32_t hold_down_ms;	       /* after a lost connection, before what it had in flight is redone */
	bool was_killed;	       /* the run before did not stop: its requests may still be under way */
};

enum { MIGRATE_LIMBO_NAME_BYTES = 40 };

/* The name of limbo in the root of both sides: made with the journal. */
void migrate_limbo_name(const struct journal *journal, char ret_name[static MIGRATE_LIMBO_NAME_BYTES]);

/* Prepares: interns both roots, settles the intents of a run before, sets scan(root) when the
 * journal is new or @has_gap (in compare mode). Starts nothing. Errors are logged. */
int migrate_open(const struct migrate_config *config, bool is_new, bool has_gap,
		 struct migrate **ret_migrate) MUST_CHECK;
/* Starts the threads. */
int migrate_start(struct migrate *migrate) MUST_CHECK;
/* Finishes what is claimed, commits, ends the threads, frees. NULL is allowed. */
struct migrate *migrate_close(struct migrate *migrate);

/* A paused migrator takes no new task. The journal goes on. */
void migrate_set_paused(struct migrate *migrate, bool is_paused);
bool migrate_is_paused(const struct migrate *migrate);

/* While draining nothing waits for company: marks do not cool, commits follow at once. */
void migrate_set_draining(struct migrate *migrate, bool is_draining);

/* After the flip there is nothing to copy in this direction any more: threads take no
 * task from now on, and none is under way when this returns. */
void migrate_end_direction(struct migrate *migrate);

/* Waits until @deadline_ms (clock_ms()) or the end of the migrator: whether it ends. */
bool migrate_sleep(struct migrate *migrate, uint64_t deadline_ms);

struct migrate_rates {
	double task_ms;	     /* one name or object, without its data */
	double bytes_per_ms; /* copied, by all workers together */
	uint32_t commit_ms;  /* the last commit of the target */
	unsigned workers;    /* that really run beside each other */
};

void migrate_get_rates(struct migrate *migrate, struct migrate_rates *ret_rates);

struct migrate_status {
	bool is_baseline_done;	/* the first scan and copy are through */
	bool is_gap_open;	/* a comparison after a gap is under way */
	bool is_paused;
	bool is_degraded;	/* the target fails now */
	uint64_t objects_seen, objects_done, bytes_seen, bytes_done; /* baseline */
	uint64_t copied_bytes, copied_objects;			     /* ever, this run */
	uint64_t error_count;
	char error_last[512];	/* with path, errno's text, and the remedy where one is known */
	uint64_t skipped_xattrs, skipped_acls; /* objects that the target cannot carry them for */
	uint64_t suspects_until_ms; /* clock_ms() until which a late write is possible; 0: none */
	uint64_t extra_names;	/* on the target, made by nobody here */
};

void migrate_get_status(struct migrate *migrate, struct migrate_status *ret_status);

/* The path of @id below the root as the shadow has it, NUL-ended; -ENAMETOOLONG. */
int migrate_path(struct migrate *migrate, uint64_t id, char *ret_path, size_t size) MUST_CHECK;
