/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The set of marks: here the passive side may differ from the active one.
 *
 *	scan(directory)		its entries have not all been looked at yet
 *	name(directory, name)	this name may stand for something else over there
 *	data(object, range)	these bytes, and the size, may differ; implies attr
 *	attr(object)		owner, mode, times, xattrs, ACL may differ
 *
 * The overlay registers each change with marks_change_begin() before it reaches the
 * active store and ends it after; a migrator's worker takes a task with marks_next(),
 * makes the passive side equal, and clears what it claimed unless a change touched it
 * meanwhile. The protocol is the one that model/data.pml, size.pml and names.pml prove.
 *
 * The guarantees:
 *  - marks_change_begin() returns when each mark it needs is in the journal.
 *  - A claim never covers a range with a change in flight; a change that begins or ends
 *    during a claim sets the claim's `redirtied`, per 4 KiB block for data, and what is
 *    redirtied is not cleared.
 *  - Puts and deletes of one mark reach the journal in the order of its states in
 *    memory: both are composed under the marks' lock.
 *
 * Granularity: data in memory by blocks of 4 KiB, in the journal by groups of 1 MiB
 * and one tail [offset, infinity): the first touch of a group costs a put, the others
 * a bit. A whole object is the tail from 0.
 *
 * Bounds: struct marks_limits. Beyond them marks stand in the journal alone (spilled)
 * and come back when the queue has room; marks_stats.is_spilled says so.
 *
 * Locks: one mutex (docs/locking.md), taken before the journal's. No call is made to a
 * store under it. marks_lock() lets a worker compose its own journal changes together
 * with its clears. All functions are thread-safe.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "journal/journal.h"
#include "util/attr.h"

enum {
	MARKS_BLOCK_BYTES = 4096,
	MARKS_GROUP_BLOCKS = 256,
	MARKS_GROUP_BYTES = MARKS_BLOCK_BYTES * MARKS_GROUP_BLOCKS,
	MARKS_CHANGE_ITEMS_MAX = 8,
};

#define MARKS_INFINITY UINT64_MAX

struct marks; /* opaque */

struct marks_limits {
	size_t objects_max; /* object entries in memory, but for directories with names there */
	size_t names_max;   /* name entries in memory; a scan that would pass it waits */
	size_t scans_max; /* not those that only cover names */
	size_t groups_per_object_max; /* more become one tail */
	uint32_t cool_ms;     /* a mark rests so long after the last change, ... */
	uint32_t cool_ms_max; /* ... but not longer than this after the first */
};

/* Loads what the journal has, up to the limits. On success the caller owns it. */
int marks_open(struct journal *journal, const struct marks_limits *limits, struct marks **ret_marks) MUST_CHECK;
/* No thread may be in any function here. Claims that are still held end, unworked; the
 * ranges of such tasks stay the caller's. Allows NULL, returns NULL. */
struct marks *marks_close(struct marks *marks);

/* ---- changes (the overlay) ----------------------------------------------- */

enum marks_kind { MARKS_SCAN, MARKS_NAME, MARKS_DATA, MARKS_OBJECT, MARKS_KIND_MAX };

struct marks_item {
	enum marks_kind kind; /* NAME, DATA, OBJECT (attr) */
	uint64_t object;      /* NAME: the directory */
	const char *name;     /* borrowed until the change ends */
	uint64_t offset, end; /* DATA: bytes; MARKS_INFINITY for no end */
	void *entry;	      /* private, as is the rest: */
	struct marks_item *next, **link;
};

/* Stays where it is between begin and end: its items are registered in place. */
struct marks_change {
	unsigned count;
	struct marks_item items[MARKS_CHANGE_ITEMS_MAX];
};

#define MARKS_CHANGE_NULL ((struct marks_change){ .count = 0 })

void marks_change_add_name(struct marks_change *change, uint64_t dir, const char *name);
void marks_change_add_data(struct marks_change *change, uint64_t object, uint64_t offset, uint64_t end);
void marks_change_add_attr(struct marks_change *change, uint64_t object);

/* Registers @change and returns when its marks are in the journal. A journal that
 * fails does not stop the workload: the change is registered all the same, and
 * marks_is_lost() is true from then on (no flip, everything is compared later). The
 * same when there is no memory for an entry: then the change is not even registered. */
void marks_change_begin(struct marks *marks, struct marks_change *change);
void marks_change_end(struct marks *marks, struct marks_change *change);

/* Marks a new object whole, @size bytes as far as known. When it returns the journal has
 * the mark, and with it whatever was composed before: the record of the object too. */
void marks_put_whole(struct marks *marks, uint64_t object, uint64_t size);

bool marks_is_lost(const struct marks *marks);

/* ---- work (the migrator) ------------------------------------------------- */

struct marks_range {
	uint64_t offset, end; /* bytes, multiples of the block but for MARKS_INFINITY */
};

struct marks_task {
	enum marks_kind kind;
	uint64_t object; /* SCAN, NAME: the directory */
	char name[JOURNAL_NAME_MAX + 1];
	bool is_compare; /* SCAN: after a gap */
	bool is_of_before; /* SCAN: names that it listed before may be marked by it alone */
	/* DATA and OBJECT: the claimed ranges in ascending order, the tail last. Of an
	 * object claimed whole there is one, [0, infinity). An OBJECT task may have none
	 * (attr only), and a tail that ends where a truncate in flight begins. */
	struct marks_range *ranges;
	unsigned range_count;
	/* No byte of the last range has been written on the passive side since this
	 * process created the object there: it is still zero, holes need no work. */
	bool is_tail_virgin;
	/* The same of all ranges at or past this offset; MARKS_INFINITY: of none. */
	uint64_t virgin_from;
	uint32_t attempts;    /* tries of this mark before this one */
	uint64_t changes_before; /* marks_target_changes() at the claim, for MARKS_REST */
	void *entry, *claim; /* private */
};

#define MARKS_TASK_NULL ((struct marks_task){ .kind = MARKS_KIND_MAX })

/* Claims the next task of a kind in @kinds (1 << enum marks_kind), waiting until
 * @deadline_ms (clock_ms()): 1, or 0 when there was none, or -ENOMEM. What it gives is
 * in the journal: it flushes if need be, and may read marks back, outside the lock.
 * What may be claimed:
 *  - SCAN, NAME: nothing of it claimed, no change in flight on it.
 *  - OBJECT: all idle data of the object and its attr, alone (no DATA claim of it); of
 *    a directory only when no name in it is marked or claimed. With a change in flight
 *    on the object only if there is idle data; attr is not cleared then.
 *  - DATA: one group of an object that marks_set_bulk() was said of; several at once.
 * Cooling marks are passed over unless draining; resting ones until the count of
 * target changes is another, and nothing else is ready. */
int marks_next(struct marks *marks, unsigned kinds, uint64_t deadline_ms, struct marks_task *ret_task) MUST_CHECK;

/* Between marks_lock() and marks_unlock(): claims OBJECT of @object if it is ready: 1, else 0.
 * For the worker that has just put its mark and knows all about it. Before it touches the
 * passive side again, that batch must be flushed, or hold the clear of a mark whose work
 * would be done anew (the name that the object was made for). */
int marks_take_object_locked(struct marks *marks, uint64_t object, struct marks_task *ret_task) MUST_CHECK;

/* Wakes all that wait in marks_next(), which returns 0 then. */
void marks_wake(struct marks *marks);

/* The marks' lock with the journal's compose inside: between the two calls the
 * caller uses the *_locked functions here and the journal's composed ones, and all
 * becomes durable together. Returns the sequence number to flush. Nothing else of
 * marks.h may be called in between: it would lock again. */
void marks_lock(struct marks *marks);
uint64_t marks_unlock(struct marks *marks);

/* Ends @task's claim. Clears what was claimed and not redirtied (for OBJECT and DATA
 * block by block: of data only what lies below @source_end, the size the source had
 * *under the claim*; an OBJECT task clears what lies past it too, having cut the target
 * there; a DATA task leaves that and sets attr). The rest stays marked. Returns whether
 * everything was cleared: of an OBJECT task, whether the object has no data or attr mark
 * any more. Frees the task's ranges. */
bool marks_clear_locked(struct marks *marks, struct marks_task *task, uint64_t source_end);

enum marks_why {
	MARKS_AGAIN, /* try again soon */
	MARKS_REST,  /* cannot be done before the target has changed */
	MARKS_LATER, /* not before @delay_ms from now: an error, a hold-down */
	MARKS_BULK,  /* OBJECT: too much for one task, give it out as DATA below @delay_ms
		      * bytes (the source's size) first */
	MARKS_UNPAIRED, /* OBJECT, DATA: until marks_set_paired_locked() */
};

/* Ends @task's claim and keeps the marks. */
void marks_keep_locked(struct marks *marks, struct marks_task *task, enum marks_why why, uint64_t value);

/* The object has none of its marks any more (it is gone from both sides). */
void marks_drop_object_locked(struct marks *marks, uint64_t object);

void marks_put_name_locked(struct marks *marks, uint64_t dir, const char *name);
/* The same of a name that the claimed scan @task has listed: nothing to flush. */
void marks_put_scanned_name_locked(struct marks *marks, const struct marks_task *task, const char *name);
void marks_put_scan_locked(struct marks *marks, uint64_t dir, bool is_compare);
void marks_put_attr_locked(struct marks *marks, uint64_t object);
/* Puts the whole-object mark; @is_virgin: the passive side was created empty just now. */
void marks_put_whole_locked(struct marks *marks, uint64_t object, uint64_t size, bool is_virgin);
void marks_set_paired_locked(struct marks *marks, uint64_t object);

/* Whether a change redirtied @task since its claim. */
bool marks_is_redirtied(struct marks *marks, const struct marks_task *task);

/* Waits until there is room for @count more names, or @deadline_ms: whether there is. */
bool marks_wait_names_room(struct marks *marks, size_t count, uint64_t deadline_ms) MUST_CHECK;

/* Operations done on the passive side so far. */
void marks_count_target_change_locked(struct marks *marks);
uint64_t marks_target_changes(const struct marks *marks);

/* ---- the whole ----------------------------------------------------------- */

/* While draining nothing cools. MARKS_LATER keeps its time (it may be a hold-down),
 * and what rests waits for a change of the target as ever. */
void marks_set_draining(struct marks *marks, bool is_draining);

/* Whether no mark is set or claimed, and none is spilled. */
bool marks_is_empty(struct marks *marks);
/* Waits for that; 0, or -ETIMEDOUT at @deadline_ms. Takes no lock across a wait. */
int marks_wait_empty(struct marks *marks, uint64_t deadline_ms) MUST_CHECK;

struct marks_stats {
	uint64_t objects, names, scans; /* marked, in memory and spilled (those an estimate) */
	uint64_t listed_names;		/* of the names, those that only a scan has marked */
	uint64_t compares;		/* of the scans, those in compare mode (spilled: all) */
	uint64_t bytes;			/* of dirty data, as far as sizes are known */
	uint64_t dirtied_bytes;		/* ever: newly dirtied, unique while marked */
	uint64_t cleared_bytes, cleared_objects, cleared_names; /* ever */
	uint64_t claimed, resting;
	bool is_spilled;
};

void marks_get_stats(struct marks *marks, struct marks_stats *ret_stats);

/* What stands against one object or name, for `ferry explain`. */
struct marks_explanation {
	bool has_attr, has_tail, is_claimed, is_changing, is_resting;
	uint64_t tail_offset, dirty_bytes;
	unsigned groups;
};

void marks_explain_object(struct marks *marks, uint64_t object, struct marks_explanation *ret);
bool marks_has_name(struct marks *marks, uint64_t dir, const char *name);
bool marks_has_scan(struct marks *marks, uint64_t dir);
