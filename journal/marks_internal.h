/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Inside of the marks. One mutex guards everything here; all functions of this header
 * are called with it held. The journal's lock nests inside it, from the first put or
 * delete of a critical section until marks_submit(). Nothing under the mutex waits for
 * I/O, the journal's flush included: who needs a mark durable takes the sequence number
 * and flushes after unlocking. Reading spilled marks back happens unlocked, too.
 *
 * Entries. One hash table holds three kinds: an object (its attr mark, its data, the
 * count of name entries in it if it is a directory), a name, a scan. An entry exists
 * while it has marks, changes in flight, claims or names; an entry that can be given out
 * stands in one queue: ready, cooling or later (both on a timer wheel), or resting.
 * One that waits for an event (a change in flight, a claim, names, a pair) stands in
 * none, and the event calls marks_settle(). What stands in a queue is looked at again
 * when it is popped, so that changes need not touch the queues.
 *
 * Data of an object: dirty bits in groups, and the tail [tail, infinity), all dirty.
 *  - A group at or past the tail exists only while it is claimed, or as what was
 *    written during a claim of the tail; settling absorbs it into the tail.
 *  - "own": the group has a record in the journal. A group without one was born from
 *    the tail and is covered by the tail's record, which begins at tail_persisted, the
 *    lowest of the tail and the groups that it still has to cover.
 *  - Invariant: a marked name has a record, or is covered by its scan's (marks_cover.c);
 *    each dirty block is in a group with a record, or at or past
 *    tail_persisted. Marked attr has a record, or there is any data record.
 *
 * Batches. What one critical section composes becomes durable together, so a mark
 * remembers the number of the batch since which it has been covered without a break.
 * A record that takes the place of another in one batch does not change that number.
 *
 * OBJECT and changes in flight. model/size.pml claims attr only while no change is in
 * flight. A file written by several threads might then never be copied. So an OBJECT
 * task is also given while changes are in flight, of the idle blocks, with attr's
 * redirtied set from the start: attr stays marked. This is safe: blocks in flight are
 * not in the claim and stay marked, whatever the worker's cut or extension of the target
 * does to them; those that come later redirty. (The model so changed has no error; it
 * has one without the preset.) Of a claimed tail, a finite change in flight has its
 * blocks kept out as dirty groups, one without end ends the claim where it begins.
 *
 * Spilled. An entry over the limits is forgotten; its records stay (a covered name gets
 * one first). An entry that is
 * made while others are spilled may have more records than memory knows (is_complete is
 * false): then a new group is dirty as a whole, and a tail begins at 0, because our put
 * or delete would otherwise take back what the record covered. Marks are read back from
 * a snapshot; their records may be gone by then, so they are put again. Names of a
 * spilled directory are not counted in it: its attr may be worked off too early, but
 * every operation in it marks it again.
 *
 * Nobody works on a mark that is not in the journal yet: marks_next() flushes the batch
 * of what it gives out. Else a crash in the middle of the work, which spoils times and
 * sizes of the passive side, could leave it spoiled and unmarked.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "journal/marks.h"

/* Of a build that is never to be used on data: clients' changes leave no marks, so that
 * tests/bench/overlay can tell what these cost. It takes itself for lost from the start. */
#ifdef FERRYFS_BENCH_MARKS_OFF
#define MARKS_OFF true
#else
#define MARKS_OFF false
#endif

enum {
	TICK_MS = 16,	    /* of the timer wheel and of cooling times */
	WHEEL_SLOTS = 4096, /* 65 s ahead; what is later goes round */
	BATCH_RING = 256,   /* batches whose sequence number is remembered exactly */
	SEGMENT_BUCKETS = 512,
	SPILL_READ = 128, /* records read back at a time */
	SPILL_RETRY_MS = 20,
};

#define TAIL_NONE UINT64_MAX
#define TICK_NEVER UINT32_MAX

/* ---- lists --------------------------------------------------------------- */

struct list {
	struct list *prev, *next;
};

static inline void list_init(struct list *head)
{
	head->prev = head->next = head;
}

static inline bool list_is_empty(const struct list *head)
{
	return head->next == head;
}

static inline void list_append(struct list *head, struct list *item)
{
	item->prev = head->prev;
	item->next = head;
	head->prev->next = item;
	head->prev = item;
}

static inline void list_remove(struct list *item)
{
	item->prev->next = item->next;
	item->next->prev = item->prev;
	item->prev = item->next = NULL;
}

#define CONTAINER_OF(p, type, member) ((type *)((char *)(p)-offsetof(type, member)))

/* ---- bits of a group ----------------------------------------------------- */

struct bits {
	uint64_t word[MARKS_GROUP_BLOCKS / 64];
};

#define BITS_ALL ((struct bits){ { ~0ull, ~0ull, ~0ull, ~0ull } })

/* Bits [from, to). */
struct bits bits_range(unsigned from, unsigned to);
unsigned bits_count(const struct bits *b);

static inline bool bits_is_empty(const struct bits *b)
{
	return !(b->word[0] | b->word[1] | b->word[2] | b->word[3]);
}

static inline struct bits bits_or(struct bits a, struct bits b)
{
	for (unsigned i = 0; i < 4; i++)
		a.word[i] |= b.word[i];
	return a;
}

static inline struct bits bits_and(struct bits a, struct bits b)
{
	for (unsigned i = 0; i < 4; i++)
		a.word[i] &= b.word[i];
	return a;
}

static inline struct bits bits_and_not(struct bits a, struct bits b)
{
	for (unsigned i = 0; i < 4; i++)
		a.word[i] &= ~b.word[i];
	return a;
}

/* ---- entries ------------------------------------------------------------- */

enum queue { QUEUE_NONE, QUEUE_READY, QUEUE_COOLING, QUEUE_LATER, QUEUE_RESTING };

struct entry {
	struct entry *hash_next;
	struct list queued;
	uint64_t id;	/* the object, or the directory */
	uint64_t batch; /* covered since; of an object: its attr */
	uint32_t hash;
	uint32_t writers;     /* changes in flight */
	uint32_t first, last; /* ticks of changes since the last claim; 0: none */
	uint32_t due;	      /* tick, on the wheel */
	uint16_t attempts;
	uint8_t kind;	    /* enum marks_kind: SCAN, NAME, OBJECT */
	uint8_t queue;	    /* enum queue */
	uint8_t queue_kind; /* enum marks_kind of the tasks it stands there for */
	bool is_marked : 1; /* of an object: attr, which data implies */
	bool is_claimed : 1;
	bool is_redirtied : 1; /* SCAN, NAME */
	bool is_compare : 1;   /* SCAN */
	bool is_of_before : 1; /* SCAN: marked by a run before, which may have listed a part */
	bool is_held : 1;      /* SCAN: not marked, but its record covers names */
	bool is_covered : 1;   /* NAME: by its directory's scan, see marks_cover.c */
	bool has_own : 1;      /* OBJECT: attr has its own record */
	bool is_unpaired : 1;  /* OBJECT: parked */
	bool is_paired : 1;    /* OBJECT: a pair was made during the claim */
	bool is_virgin : 1;    /* OBJECT: see marks_task */
	bool is_complete : 1;  /* the journal has no marks of it that are not here */
};

struct name_entry {
	struct entry e;
	struct object_entry *dir;
	uint8_t length;
	char name[];
};

struct group {
	uint64_t number : 48;
	uint64_t is_own : 1;
	uint64_t batch;
	struct bits dirty;
	struct part *part;    /* its claim */
	uint32_t first, last; /* ticks of changes, while the object is bulk */
};

struct object_entry {
	struct entry e;
	struct group **groups; /* by number */
	uint32_t group_count, group_room;
	uint64_t tail;		 /* group number, TAIL_NONE */
	uint64_t tail_persisted; /* the same as the journal has it */
	uint64_t tail_batch;
	struct marks_item *writers; /* DATA changes in flight */
	struct claim *claim;	    /* the OBJECT task's */
	uint32_t data_claims, names, covered; /* covered: of names */
	uint64_t bulk_end; /* bytes; 0: not bulk */
	uint64_t size_hint;
};

static_assert(sizeof(struct group) <= 72, "a group costs little");
static_assert(sizeof(struct name_entry) <= 96, "a name costs little");
static_assert(sizeof(struct object_entry) <= 168, "an object costs little");

static inline struct object_entry *object_of(struct entry *e)
{
	return CONTAINER_OF(e, struct object_entry, e);
}

static inline struct name_entry *name_of(struct entry *e)
{
	return CONTAINER_OF(e, struct name_entry, e);
}

/* A claimed group: which blocks, and which of them a change touched since. */
struct part {
	struct group *group; /* NULL: dropped */
	struct claim *claim;
	struct bits claimed, redirty;
};

struct claim {
	struct object_entry *object;
	bool is_object; /* OBJECT task, else DATA */
	bool attr_redirtied;
	bool is_redirtied; /* by a change since the claim */
	bool has_tail;	   /* [tail, tail_end), by group */
	uint64_t tail, tail_end;
	uint32_t count;
	struct part parts[];
};

/* ---- the whole ----------------------------------------------------------- */

struct waiter {
	struct list link;
	unsigned kinds;
	pthread_cond_t cond;
	bool is_woken;
};

struct spill {
	bool is_active, is_reading;
	uint64_t generation;	  /* counts what was spilled */
	uint64_t pass_generation; /* ... when the pass began */
	uint64_t count;		  /* an estimate */
	uint64_t retry_ms;
	struct journal_cursor *cursor, *cursor_next; /* of the pass; objects have two */
};

struct marks {
	struct journal *journal;
	struct marks_limits limits;
	uint32_t cool_ticks, cool_ticks_max;
	uint64_t start_ms;
	pthread_mutex_t lock;
	pthread_condattr_t cond_attr;
	pthread_cond_t idle; /* nothing is marked or claimed */
	pthread_cond_t room; /* for room_wanted names */
	unsigned idle_waiters, room_waiters;
	size_t room_wanted; /* the least that one of them wants */

	bool is_lost; /* atomic */
	bool is_draining;
	uint64_t target_changes; /* atomic for readers */

	/* Batches. */
	bool is_composing;
	uint64_t batch;		/* the number of the one being composed, or the next */
	uint64_t batch_flushed; /* known to be in the journal */
	uint64_t batch_seq[BATCH_RING];
	uint64_t last_seq;

	/* Table: linear hashing. */
	struct entry ***segments;
	size_t segment_room, bucket_count;
	size_t entry_count;

	/* Queues. */
	struct list ready[MARKS_KIND_MAX];
	struct list resting[MARKS_KIND_MAX]; /* until the target changes */
	struct list rested[MARKS_KIND_MAX];  /* it did */
	size_t ready_count[MARKS_KIND_MAX];
	unsigned turn;
	struct list *wheel;
	uint64_t wheel_used[WHEEL_SLOTS / 64];
	uint32_t wheel_tick; /* all before and at it were handled */
	uint32_t armed_tick; /* some waiter wakes then */
	struct list waiters;
	uint64_t wakes;

	struct spill spill[MARKS_KIND_MAX];

	/* Counts. */
	size_t count[MARKS_KIND_MAX], marked[MARKS_KIND_MAX];
	size_t dirs; /* object entries with names: these hold them in memory */
	size_t compare_count; /* scans in compare mode */
	size_t covered;	      /* names */
	size_t held;	      /* scans that only cover names */
	size_t claimed, resting_count;
	uint64_t dirty_blocks, tail_bytes;
	uint64_t dirtied_bytes, cleared_bytes, cleared_objects, cleared_names;
};

/* ---- marks.c ------------------------------------------------------------- */

/* Begins the journal's composition if it has not begun; the number of the batch. */
uint64_t marks_compose(struct marks *m);
/* Ends it; nothing if it has not begun. */
void marks_submit(struct marks *m);
/* Whether @batch is in the journal; else *@ret_seq has what to flush. */
bool marks_batch_is_flushed(struct marks *m, uint64_t batch, uint64_t *ret_seq);
void marks_put(struct marks *m, enum journal_mark_kind kind, uint64_t object, uint64_t number,
	       const struct name_entry *name, uint64_t value);
void marks_delete(struct marks *m, enum journal_mark_kind kind, uint64_t object, uint64_t number,
		  const struct name_entry *name);
/* Without memory or journal: compare everything later. Says so once. */
void marks_lose(struct marks *m, int error, const char *why);
void marks_set_compare(struct marks *m, struct entry *e, bool is_compare);
void marks_set_marked(struct marks *m, struct entry *e, bool is_marked);
bool marks_is_empty_locked(const struct marks *m);
/* Wakes those that wait for emptiness or room, if it may be there. */
void marks_check_idle(struct marks *m);
uint32_t marks_tick(const struct marks *m);	  /* now, to 4 ms, cheap */
uint32_t marks_tick_exact(const struct marks *m); /* now */

/* ---- marks_table.c ------------------------------------------------------- */

/* @name: NULL unless @kind is NAME. */
struct entry *marks_find(const struct marks *m, enum marks_kind kind, uint64_t id,
			 const char *name);
/* The same, made if it is not there; NULL: no memory. A name counts in its directory. */
struct entry *marks_get(struct marks *m, enum marks_kind kind, uint64_t id, const char *name);
/* Frees @e, which stands in no queue; a name's directory is settled. */
void marks_entry_free(struct marks *m, struct entry *e);
void marks_table_each(struct marks *m, void (*call)(struct marks *m, struct entry *e));
void marks_table_done(struct marks *m);

/* ---- marks_queue.c ------------------------------------------------------- */

int marks_queues_init(struct marks *m);
void marks_queues_done(struct marks *m);
void marks_queue_remove(struct marks *m, struct entry *e);
void marks_make_ready(struct marks *m, struct entry *e, enum marks_kind kind);
void marks_make_timed(struct marks *m, struct entry *e, enum queue queue, uint32_t due);
/* @is_due: the target has changed since the attempt began. */
void marks_make_resting(struct marks *m, struct entry *e, enum marks_kind kind, bool is_due);
void marks_stop_resting(struct marks *m, struct entry *e);
/* After any event: frees @e if nothing holds it, else queues it where it belongs now,
 * or spills it. @e may be gone. */
void marks_settle(struct marks *m, struct entry *e);
/* The tick until which @e cools, or 0. */
uint32_t marks_cool_due(const struct marks *m, uint32_t first, uint32_t last);
void marks_wheel_advance(struct marks *m, uint32_t now);
void marks_wheel_end_cooling(struct marks *m);
/* Sleeps until woken, until something on the wheel is due, or @deadline_ms. */
void marks_wait(struct marks *m, unsigned kinds, uint64_t deadline_ms);
void marks_wake_kind(struct marks *m, enum marks_kind kind);
void marks_wake_any(struct marks *m);
/* Leaving marks_next() with a task: others may have to take over. */
void marks_wake_others(struct marks *m);

/* ---- marks_data.c -------------------------------------------------------- */

/* Marks [@offset, @end) dirty, redirties claims; the batch that covers it. */
uint64_t marks_data_mark(struct marks *m, struct object_entry *o, uint64_t offset, uint64_t end);
/* Redirties the claims of [@offset, @end). */
void marks_data_redirty(struct object_entry *o, uint64_t offset, uint64_t end);
uint64_t marks_attr_mark(struct marks *m, struct object_entry *o);
bool marks_has_data(const struct object_entry *o);
/* Blocks of group @number that changes in flight touch. */
struct bits marks_in_flight(const struct object_entry *o, uint64_t number);
/* Where a change in flight without end (or a very long one) begins, at or above
 * @from: a group number; TAIL_NONE: there is none. */
uint64_t marks_in_flight_from(const struct marks *m, const struct object_entry *o, uint64_t from);
/* The blocks of group @number that [@offset, @end) touches; @offset < @end. */
struct bits marks_touched(uint64_t number, uint64_t offset, uint64_t end);
size_t marks_group_index(const struct object_entry *o, uint64_t number); /* lower bound */
/* Makes it, clean, covered since @batch; NULL: no memory. */
struct group *marks_group_insert(struct object_entry *o, size_t index, uint64_t number,
				 uint64_t batch);
/* Gives it a record of its own. */
void marks_group_put(struct marks *m, const struct object_entry *o, struct group *g);
void marks_group_set_dirty(struct marks *m, struct group *g, struct bits bits);
/* Moves the tail (never below a claim's own rules) and its count of bytes. */
void marks_tail_set(struct marks *m, struct object_entry *o, uint64_t tail);
/* Lowers the tail to @tail, absorbing groups, and puts it. */
void marks_tail_lower(struct marks *m, struct object_entry *o, uint64_t tail);
/* Merges groups of @o into its tail if they are too many. */
void marks_groups_limit(struct marks *m, struct object_entry *o);
void marks_size_hint(struct marks *m, struct object_entry *o, uint64_t size);
/* After a claim's end: records of groups [@from, @to) by index, and of the tail. */
void marks_data_settle(struct marks *m, struct object_entry *o, size_t from, size_t to);
/* Puts attr where no data record implies it any more. */
void marks_attr_settle(struct marks *m, struct object_entry *o);
/* Forgets all data; @is_recorded: the records stay. */
void marks_data_drop(struct marks *m, struct object_entry *o, bool is_recorded);
/* Whether an OBJECT task could be given. */
bool marks_object_is_claimable(const struct marks *m, const struct object_entry *o);

/* ---- marks_claim.c ------------------------------------------------------- */

/* The batch since which all that @claim took is covered. */
uint64_t marks_claim_batch(const struct claim *claim);
/* 1 with @task filled, 0: nothing to claim now, -ENOMEM. */
int marks_claim_object(struct marks *m, struct object_entry *o, struct marks_task *task);
/* *@ret_due: the tick at which a cooling group could be claimed. */
int marks_claim_data(struct marks *m, struct object_entry *o, struct marks_task *task, uint32_t now,
		     uint32_t *ret_due);
enum claim_end {
	CLAIM_CLEAR,
	CLAIM_KEEP,
	CLAIM_UNTOUCHED, /* kept, and nothing was written on the passive side */
};

/* Ends and frees @claim; whether all was cleared. The object stays to be settled. */
bool marks_claim_end(struct marks *m, struct claim *claim, enum claim_end how, uint64_t source_end);

/* ---- marks_change.c ------------------------------------------------------ */

/* Puts the record of a name or scan. */
void marks_simple_put(struct marks *m, struct entry *e);

/* ---- marks_spill.c ------------------------------------------------------- */

bool marks_is_over(const struct marks *m, enum marks_kind kind);
/* Forgets @e, whose records stay, if it may be: whether it is gone. */
bool marks_spill_out(struct marks *m, struct entry *e);
/* What there was no memory for, but stands in the journal. */
void marks_spill_note(struct marks *m, enum marks_kind kind);
/* Reads all kinds up to the limits. */
int marks_spill_load(struct marks *m);
/* Reads back, if a queue of @kinds runs low. Drops the lock meanwhile: true if it did
 * anything. */
bool marks_spill_refill(struct marks *m, unsigned kinds);
/* When to try again, if there is something spilled of @kinds; UINT64_MAX. */
uint64_t marks_spill_due(const struct marks *m, unsigned kinds);
void marks_spill_done(struct marks *m);

/* ---- marks_cover.c ------------------------------------------------------- */

/* The covered name @e is so no more: its mark is cleared, or has a record. */
void marks_uncover(struct marks *m, struct entry *e);
/* Whether there is a name in @dir that its scan's record covers. */
bool marks_covers_names(struct marks *m, uint64_t dir);
/* The scan @s has its mark cleared: its record goes, or covers names still. */
void marks_end_scan(struct marks *m, struct entry *s);
/* The scan @s is no longer held, and its record is somebody else's. */
void marks_release_scan(struct marks *m, struct entry *s);

/* ---- marks_check.c ------------------------------------------------------- */

/* Asserts every invariant that memory alone can show. Slow; for tests. */
void marks_check(struct marks *m);
