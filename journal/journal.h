/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The journal: what ferryfs knows about a migration, in RocksDB below the state
 * directory. Objects with their locators on both sides, the shadow (what is on the
 * passive side now), intents, and the persisted form of the marks (marks.h).
 * Format: docs/journal-format.md.
 *
 * Writing. Changes are *composed* into one pending batch and *flushed*. Between
 * journal_compose() and journal_submit() the caller holds the journal's lock
 * (docs/locking.md): all that it puts there becomes durable together or not at all,
 * and in the order of submission. journal_flush() returns when everything up to a
 * submission is in RocksDB; whoever comes first writes for all that wait (group
 * commit). It is not synced: the page cache survives the death of the process.
 *
 * Reading sees what has been flushed. A reader that needs what it wrote flushes
 * first, and keeps others from writing the same key by a lock of its own.
 *
 * All functions are thread-safe. Failures are negative errno, -EIO for RocksDB's
 * own (-ENOSPC and -EBADMSG where it says so), logged with RocksDB's text. After the
 * first failed write or sync every later journal_flush() of something not yet written
 * fails: journal_is_failed(). Only closing and opening ends that.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "util/attr.h"
#include "util/locator.h"

enum {
	JOURNAL_FORMAT = 1,	     /* raised when an older program could not read it */
	JOURNAL_NAME_MAX = 255,	     /* bytes of a name, without the NUL */
	JOURNAL_ROOT_ID = 1,	     /* the object id of the tree's root */
	JOURNAL_LIMBO_ID = 2,	     /* of the private directory for objects without a name */
	JOURNAL_FIRST_ID = 16,	     /* of the first object seen */
};

enum side { SIDE_A, SIDE_B, SIDE_MAX }; /* A: the first source; B: the first target */

/* Outcomes the direct caller must handle. */
enum {
	JOURNAL_E_NONE = 1, /* there is no such record */
	JOURNAL_E_END,	    /* nothing after this position */
};

struct journal; /* opaque */

/* ---- life ---------------------------------------------------------------- */

struct journal_pair {
	const char *source, *target;			/* as the admin named them */
	const char *source_identity, *target_identity;	/* store_identity() */
};

/* Opens the journal in @state_dir, which is created (0700) if it is not there;
 * *@ret_is_new tells. Errors, each logged with what to do: -EBUSY (in use by another
 * process), -EXDEV (belongs to another pair), -EPROTO (a newer format), -ENOTEMPTY (the
 * directory holds something else), -EBADMSG (damaged, or it lost what it had
 * acknowledged), -ENOTDIR, -EACCES, -ENOSPC, -EIO. Nothing is left behind by a failure in
 * a new directory. A journal that lost its unsynced end with the machine's power opens,
 * with a warning: after another boot everything has to be compared. */
int journal_open(const char *state_dir, const struct journal_pair *pair, bool *ret_is_new,
		 struct journal **ret_journal) MUST_CHECK;

/* Flushes, syncs, closes; NULL is allowed; returns NULL. */
struct journal *journal_close(struct journal *journal);

/* A random number made with the journal: names limbo. */
uint64_t journal_uuid(const struct journal *journal);
bool journal_is_failed(const struct journal *journal);

/* ---- writing ------------------------------------------------------------- */

/* May write what is pending first, when that has become much. Between the two calls no
 * other function of the journal may be called than those marked "composed". */
void journal_compose(struct journal *journal);
/* The submission's sequence number; with nothing composed, that of the one before. */
uint64_t journal_submit(struct journal *journal);
int journal_flush(struct journal *journal, uint64_t seq) MUST_CHECK;
uint64_t journal_flushed(const struct journal *journal); /* lock-free */

/* Syncs all that was flushed to the disk. */
int journal_sync(struct journal *journal) MUST_CHECK;
uint64_t journal_synced(const struct journal *journal);

/* ---- objects ------------------------------------------------------------- */

struct object {
	uint64_t id;
	mode_t type;			 /* S_IFMT bits */
	uint64_t ino;			 /* the inode number that the mount shows, for life */
	struct locator locator[SIDE_MAX]; /* null: not on that side */
};

int journal_object_get(struct journal *journal, uint64_t id, struct object *ret_object) MUST_CHECK;
/* Counts what is submitted too, and flushes it before it returns. */
int journal_object_find(struct journal *journal, enum side side, const struct locator *locator,
			uint64_t *ret_id) MUST_CHECK;

/* The id of the object with @locator on @side; at first sight a new one, which is in
 * RocksDB when this returns. @ino: the inode number that the mount shall show for a
 * new object, 0: one of our own range (beyond any that a file system uses). Threads that
 * intern one locator at the same time get one id.
 * On a failed journal the workload goes on: the id of a new object is known to this
 * process only, journal_object_get() does not find it; after very many, the failure. */
int journal_object_intern(struct journal *journal, enum side side, const struct locator *locator,
			  mode_t type, uint64_t ino, uint64_t *ret_id) MUST_CHECK;

/* The same without waiting for a new object to be in RocksDB: *@ret_object is its record,
 * *@ret_seq its submission (0: it was known), and the caller flushes before anybody can ask
 * for it by its id.
 * Whoever finds it by its locator meanwhile waits for the flush. */
int journal_object_intern_early(struct journal *journal, enum side side, const struct locator *locator,
				mode_t type, uint64_t ino, struct object *ret_object,
				uint64_t *ret_seq) MUST_CHECK;
/* Makes @locator that of the root on @side, or checks that it is: -EXDEV (logged) if the
 * journal has another. @ino as above, for the first side set. */
int journal_set_root(struct journal *journal, enum side side, const struct locator *locator,
		     mode_t type, uint64_t ino) MUST_CHECK;

/* Composed. Puts the record and its locator indexes. @old is the record as it was
 * read (index entries that no longer hold are removed), or NULL for none. */
void journal_put_object(struct journal *journal, const struct object *object,
			const struct object *old);
/* Composed. Removes the record, its indexes and its synced attributes. @object is as
 * it was read: its locators must not be another object's by now. */
void journal_delete_object(struct journal *journal, const struct object *object);

/* What was last made equal, and the ctimes both sides had then. */
struct synced {
	mode_t mode;
	uint32_t uid, gid;
	uint64_t size;	/* bytes; of a directory: as the active side showed it */
	struct timespec mtime;
	struct timespec ctime[SIDE_MAX];
};

int journal_synced_get(struct journal *journal, uint64_t id, struct synced *ret_synced) MUST_CHECK;
void journal_put_synced(struct journal *journal, uint64_t id, const struct synced *synced); /* composed */
void journal_delete_synced(struct journal *journal, uint64_t id); /* composed */

/* ---- shadow: the names on the passive side ------------------------------- */

struct place {
	uint64_t dir;
	char name[JOURNAL_NAME_MAX + 1];
};

int journal_shadow_get(struct journal *journal, uint64_t dir, const char *name,
		       uint64_t *ret_id) MUST_CHECK;
/* @name is free, or holds @id already: what stood there before must be deleted first. */
void journal_put_shadow(struct journal *journal, uint64_t dir, const char *name, uint64_t id); /* composed */
void journal_delete_shadow(struct journal *journal, uint64_t dir, const char *name,
			   uint64_t id); /* composed; @id: what stood there */

/* The next name in @dir, in byte order, or JOURNAL_E_END. A cursor over a directory that
 * changes misses nothing that stays. */
struct journal_cursor; /* opaque; one thread */
int journal_shadow_open(struct journal *journal, uint64_t dir, struct journal_cursor **ret_cursor) MUST_CHECK;
int journal_shadow_next(struct journal_cursor *cursor, char ret_name[static JOURNAL_NAME_MAX + 1],
			uint64_t *ret_id) MUST_CHECK;
struct journal_cursor *journal_cursor_close(struct journal_cursor *cursor);

/* A place of object @id in the shadow other than @except (NULL: any): the @nth,
 * from 0; JOURNAL_E_NONE when there are not so many. */
int journal_place_get(struct journal *journal, uint64_t id, unsigned nth, const struct place *except,
		      struct place *ret_place) MUST_CHECK;

/* ---- intents: one operation on the passive side, announced --------------- */

enum intent_op {
	INTENT_CREATE, /* object appears at place, which is free */
	INTENT_LINK,   /* object, which stands at from, appears at place too */
	INTENT_RENAME, /* object moves from `from` to place */
	INTENT_REMOVE, /* object leaves place */
	INTENT_OP_MAX,
};

enum {
	JOURNAL_INTENTS_MAX = 2048, /* records */
	JOURNAL_INTENTS_OF_RECORD_MAX = 32,
};

struct intent {
	uint64_t number; /* of its record; given by the caller, below JOURNAL_INTENTS_MAX */
	enum intent_op op;
	uint64_t object;
	struct place place, from;
};

/* Composed. One record of all @intents, which have its number and replace what it held;
 * at most JOURNAL_INTENTS_OF_RECORD_MAX. */
void journal_put_intents(struct journal *journal, const struct intent *intents, unsigned count);
void journal_delete_intents(struct journal *journal, uint64_t number); /* composed */
/* Calls @settle for each intent found, and deletes each record of which all are settled;
 * stops at the first failure and returns it. After a crash some may come again. */
int journal_settle_intents(struct journal *journal,
			 int (*settle)(void *context, const struct intent *intent),
			 void *context) MUST_CHECK;

/* ---- persisted marks, for marks.c ---------------------------------------- */

enum journal_mark_kind {
	JOURNAL_MARK_SCAN = 's', /* object: the directory */
	JOURNAL_MARK_NAME = 'n', /* object: the directory; name */
	JOURNAL_MARK_DATA = 'd', /* object; number: the group, or JOURNAL_TAIL */
	JOURNAL_MARK_ATTR = 'a', /* object */
};

#define JOURNAL_TAIL UINT64_MAX

struct journal_mark {
	enum journal_mark_kind kind;
	uint64_t object;
	uint64_t number;
	char name[JOURNAL_NAME_MAX + 1];
	uint64_t value; /* of the tail: the offset it begins at; of a scan: 1 in compare mode */
};

void journal_put_mark(struct journal *journal, const struct journal_mark *mark);    /* composed */
void journal_delete_mark(struct journal *journal, const struct journal_mark *mark); /* composed */

/* A cursor over the persisted marks of one kind, as they were at the call. */
int journal_marks_open(struct journal *journal, enum journal_mark_kind kind,
		       struct journal_cursor **ret_cursor) MUST_CHECK;
int journal_marks_next(struct journal_cursor *cursor, struct journal_mark *ret_mark) MUST_CHECK;

/* ---- counters and small facts -------------------------------------------- */

/* Named 64-bit numbers kept over restarts (baseline progress and the like). */
int journal_number_get(struct journal *journal, const char *name, uint64_t *ret_value) MUST_CHECK;
void journal_put_number(struct journal *journal, const char *name, uint64_t value); /* composed */

uint64_t journal_object_count(struct journal *journal); /* an estimate, cheap */
