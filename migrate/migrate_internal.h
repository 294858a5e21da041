/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Inside the migrator. One worker takes one task from the marks and has it alone:
 *
 *	name	reconcile.c	look at X and Y under their place locks, then steps (step.c)
 *	object	object.c	all of a small object: data, size, owner, mode, xattrs, times
 *	data	object.c	one group of a large one
 *	scan	scan.c		by the scanner thread: yields names, never creates
 *
 * A finished task goes to the committer (commit.c), which keeps the claim until the
 * target's commit covers it, then clears.
 *
 * Life: everything lives from migrate_open() to migrate_close(); threads from
 * migrate_start(). Locks: docs/locking.md.
 */

#include <pthread.h>
#include <stdatomic.h>

#include "migrate/migrate.h"

enum {
	MIGRATE_WORKERS_MAX = 64,
	MIGRATE_BATCH_MAX = JOURNAL_INTENTS_OF_RECORD_MAX, /* names that one worker creates together */
	MIGRATE_OBJECT_BYTES_MAX = 4 << 20, /* more is given out as data tasks first */
	MIGRATE_COPY_BYTES = 1 << 20,	    /* one read and write */
	MIGRATE_XATTR_BYTES_MAX = 64 << 10, /* of one value, and of a list: the kernel's own limit */
	MIGRATE_RETRY_MS = 200,		    /* after an error, doubled up to ... */
	MIGRATE_RETRY_MS_MAX = 10000,
	MIGRATE_DEPTH_MAX = 4096, /* levels of directories that paths and chains are followed through */
};

/* Outcomes that the worker handles (positive). */
enum {
	MIGRATE_E_AGAIN = 100, /* something else had to be done first, and was */
	MIGRATE_E_REST,	       /* not before the target has changed */
	MIGRATE_E_STOPPING,    /* the migrator ends: leave everything as it is */
	MIGRATE_E_FOREIGN,     /* the target has something there that nobody here made */
	MIGRATE_E_ENDED,       /* the task is ended already */
};

/* Object ids locked for placing. */
struct placelock {
	pthread_mutex_t lock;
	pthread_cond_t freed;
	uint64_t ids[MIGRATE_BATCH_MAX * MIGRATE_WORKERS_MAX]; /* guarded by lock */
	unsigned count;					       /* guarded by lock */
};

void placelock_init(struct placelock *placelock);
void placelock_done(struct placelock *placelock);
/* Locks both (0: none; equal ones once), lower id first. */
void placelock_lock(struct placelock *placelock, uint64_t a, uint64_t b);
void placelock_unlock(struct placelock *placelock, uint64_t a, uint64_t b);

/* Objects compared since the gap. */
struct compared {
	pthread_mutex_t lock;
	uint8_t *bits; /* guarded by lock, as is the size */
	size_t bytes;
};

void compared_init(struct compared *compared);
void compared_done(struct compared *compared);
bool compared_has(struct compared *compared, uint64_t id);
/* To be called when the marks of what was found are put: from then on others rely on it. */
void compared_add(struct compared *compared, uint64_t id);

/* A task whose target operations are done and wait for the commit. */
struct commit_item {
	struct commit_item *next;
	struct marks_task task;
	uint64_t losses; /* when its work began */
	uint64_t source_end;
	bool has_synced;
	struct synced synced;
};

struct commit {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct commit_item *first, **last; /* guarded by lock */
	unsigned count;			   /* guarded by lock */
	bool is_stopping;		   /* guarded by lock */
	_Atomic uint32_t last_ms;	   /* how long the last commit took */
	_Atomic uint64_t losses;	   /* commits that failed: what was written before is in doubt */
};

struct worker {
	struct migrate *migrate;
	unsigned index;
	pthread_t thread;
	uint8_t *buffer;   /* MIGRATE_COPY_BYTES; NULL for the scanner */
	struct scan *scan; /* the scanner's */
	struct batch *batch; /* NULL for the scanner */
	struct object dir; /* the last directory looked at; id 0: none */
	uint64_t losses;   /* of the commit, when the task began */
};

struct migrate {
	struct migrate_config config;
	struct store *source, *target;
	enum side from, to;
	struct locator root[SIDE_MAX];

	struct placelock placelock;
	struct compared compared;
	struct commit commit;
	struct worker *workers; /* worker_count, then the scanner */
	unsigned worker_count;
	pthread_t committer;
	unsigned started;     /* of worker_count + 1 */
	bool is_started;
	atomic_uint active; /* threads that have, or are about to take, a task */
	bool has_gap; /* this run began with a comparison; see object.c */
	bool was_killed;
	uint64_t killed_until_ms; /* hold-down of a run before that did not stop; 0: none */
	atomic_bool is_settled;	  /* the intents of the run before */
	atomic_bool is_stopping, is_paused, is_flipped, is_draining;

	pthread_mutex_t limbo_lock;
	struct locator limbo; /* guarded by limbo_lock; null: not made yet */

	/* Sleeps that a stop ends. */
	pthread_mutex_t sleep_lock;
	pthread_cond_t sleep_ended;

	atomic_uint_fast64_t objects_seen, objects_done, bytes_seen, bytes_done;
	atomic_uint_fast64_t copied_bytes, copied_objects, busy_ns, tasks, copy_ns;
	atomic_uint_fast64_t skipped_xattrs, skipped_acls, extra_names;
	atomic_uint_fast64_t error_count, last_error_ms, last_success_ms;
	atomic_bool is_baseline_done, is_gap_open;

	pthread_mutex_t status_lock;
	char error_last[512];			    /* guarded by status_lock */
	/* Time with at least one worker copying; guarded by status_lock. */
	unsigned copiers;
	uint64_t copying_since_ns, copying_ns;
	/* Of the baseline, see update_baseline_locked(); guarded by status_lock. */
	bool is_listed;
	uint64_t listed_objects; /* marks_stats.cleared_objects when all that is listed is done */
};

/* ---- migrate.c ------------------------------------------------------------ */

/* Counts and logs a failure of one side on an object or name; @error: negative errno. */
void migrate_report(struct migrate *migrate, int error, const char *what, uint64_t dir, const char *name);
void migrate_succeeded(struct migrate *migrate);
/* A worker begins, or ends, copying data. */
void migrate_set_copying(struct migrate *migrate, bool is_copying);
/* Ends the claim after an error @r (negative, STORE_E_UNKNOWN, MIGRATE_E_*). */
void migrate_keep(struct migrate *migrate, struct marks_task *task, int r);
/* Until when a late write of a lost connection is possible; 0: not. */
uint64_t migrate_suspects_until(struct migrate *migrate);

/* ---- look.c ---------------------------------------------------------------- */

struct look {
	uint64_t id; /* 0: nothing stands there */
	struct object object;
	struct store_attr attr;
};

/* What the active side has at @dir, @name now. */
int look_source(struct worker *worker, uint64_t dir, const char *name, struct look *ret_look) MUST_CHECK;
/* The object record of directory @dir (limbo: with the target's locator only). JOURNAL_E_NONE. */
int look_dir(struct worker *worker, uint64_t dir, struct object *ret_object) MUST_CHECK;
/* Whether the active side still has @object: 1, 0, or an error. */
int look_is_alive(struct migrate *migrate, const struct object *object) MUST_CHECK;
/* The target's locator of limbo, which is made when it is not there. */
int look_limbo(struct migrate *migrate, struct locator *ret_locator) MUST_CHECK;

/* ---- step.c ---------------------------------------------------------------- */

/* Announces, does, records @intent. @attr: of a CREATE, the source's attributes. Returns 0,
 * a failure of the target with the intent taken back, or MIGRATE_E_STOPPING. */
int step_run(struct worker *worker, struct intent *intent, const struct look *look) MUST_CHECK;
/* Of an operation whose outcome is unknown: waits until it can no longer land, then sees
 * whether it did. 0: it is done and recorded; MIGRATE_E_AGAIN: it is not. */
int step_resolve(struct migrate *migrate, const struct intent *intent, const struct object *object) MUST_CHECK;
/* Whether file systems make that name by themselves: a directory there is taken as it is. */
bool step_is_shared_name(uint64_t dir, const char *name);
/* The parts of a CREATE, for batch.c. */
int step_perform_create(struct migrate *migrate, const struct intent *intent, const struct look *look,
			const struct locator *dir, struct locator *ret_created,
			struct store_file **ret_file) MUST_CHECK;
void step_record_create_locked(struct migrate *migrate, const struct intent *intent,
			       const struct object *object, const struct locator *created,
			       const struct store_attr *attr);
/* What it was created as, for whoever makes it equal: mode 0 says that nobody did yet. */
void step_record_owner_locked(struct migrate *migrate, uint64_t object, const struct store_attr *attr);
void step_touched_dir_locked(struct migrate *migrate, uint64_t dir);
/* A start: finds out whether @intent was done, and records it if so. */
int step_settle(struct migrate *migrate, const struct intent *intent) MUST_CHECK;

/* ---- reconcile.c, object.c, scan.c ------------------------------------------ */

void reconcile_name(struct worker *worker, struct marks_task *task);
/* Ends the claim of a name by the outcome @r. */
void reconcile_end(struct worker *worker, struct marks_task *task, int r);
/* Works off @first, and other names that are ready with it. */
void batch_work(struct worker *worker, struct marks_task *first);
struct batch *batch_new(void); /* ended by free() */
/* The work on an object that this worker has just created on the target: @object with
 * both locators, @attr as it was created after, @file (taken) the target's if it is open. */
void object_work_new(struct worker *worker, struct marks_task *task, const struct object *object,
		     const struct store_attr *attr, struct store_file *file);
void object_work(struct worker *worker, struct marks_task *task);
void object_work_data(struct worker *worker, struct marks_task *task);
void scan_work(struct worker *worker, struct marks_task *task);
struct scan *scan_new(void); /* ended by free() */

/* ---- copy.c, xattr.c --------------------------------------------------------- */

struct copy {
	struct store_file *source, *target;
	uint64_t size;	      /* of the source; made smaller when it turns out shorter */
	uint64_t target_size; /* what lies past it is zero already */
	bool is_sparse, is_stable, is_virgin;
	bool can_punch;
	uint8_t *buffer;
	uint64_t copied_bytes;
};

/* Makes [@offset, @end) of the target equal, as far as the source goes. */
int copy_range(struct copy *copy, uint64_t offset, uint64_t end) MUST_CHECK;

struct xattr_result {
	bool has_lost_xattr, has_lost_acl;
	bool has_mask; /* an access ACL that the target cannot carry: group bits of the mode are these */
	mode_t group_bits;
};

/* Makes the extended attributes equal. @is_new: the target's object has none yet; @file: the
 * source's if it is open, or NULL. */
int xattr_sync(struct worker *worker, const struct object *object, struct store_file *file, bool is_new,
	       struct xattr_result *ret_result) MUST_CHECK;

/* ---- commit.c ----------------------------------------------------------------- */

int commit_init(struct commit *commit) MUST_CHECK;
void commit_done(struct commit *commit);
/* Takes over @task's claim: it is cleared when the target's commit covers it. */
void commit_add(struct worker *worker, struct marks_task *task, uint64_t source_end,
		const struct synced *synced);
void *commit_thread(void *migrate);
/* Lets the committer see that a drain has begun. */
void commit_wake(struct commit *commit);
void commit_stop(struct commit *commit);
