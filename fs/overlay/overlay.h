/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The mount: FUSE operations over the active store, each change marked before it
 * is made, and the gate that cutover parks them with.
 *
 * A request picks its side only after it has passed the gate. Requests that change
 * something park when the gate is closed: as raw messages, holding no thread; the
 * others (reads, lookups, attributes, statfs, directory listings) go on.
 */

#include <stdbool.h>
#include <stdint.h>

#include "fs/store/store.h"
#include "journal/journal.h"
#include "journal/marks.h"
#include "migrate/orphans.h"
#include "util/attr.h"

struct overlay; /* opaque */

/* What open(2) costs; see mount.c. */
enum overlay_opens { OVERLAY_OPENS_ZERO, OVERLAY_OPENS_FULL };

struct overlay_config {
	const char *mountpoint;	       /* absolute */
	const char *fsname;	       /* shown by mount(8) */
	struct store *store[SIDE_MAX]; /* borrowed until overlay_close() */
	struct journal *journal;       /* borrowed */
	struct marks *marks;	       /* borrowed */
	struct orphans *orphans;       /* borrowed */
	enum side active;
	const char *limbo_name;	   /* in the root of either side: never shown, never created */
	unsigned threads;	   /* that serve requests */
	uint64_t parked_bytes_max; /* of parked requests; beyond it a freeze is given up */
	enum overlay_opens opens;
	bool is_writeback; /* writes may stay in the kernel's cache: lost if the daemon dies */
	bool is_debug;
};

/* Mounts and serves; returns when the kernel's INIT has been answered. The
 * threads run until overlay_close(). Errors are logged with their remedy. */
int overlay_open(const struct overlay_config *config, struct overlay **ret_overlay) MUST_CHECK;

/* Unmounts: -EBUSY while files are open below it (it then goes on serving). */
int overlay_unmount(struct overlay *overlay) MUST_CHECK;
/* True once the mount has ended, by overlay_unmount() or by somebody's umount(8). */
bool overlay_is_ended(const struct overlay *overlay);
/* Readable (poll) when overlay_is_ended() has become true. */
int overlay_ended_fd(const struct overlay *overlay);
/* Ends threads and frees; the mount must have ended or is aborted. NULL is allowed. */
struct overlay *overlay_close(struct overlay *overlay);

/* ---- the gate (one caller at a time: the cutover) ------------------------- */

/* Closes the gate for changes and waits until none is in flight. On -ETIMEDOUT
 * (clock_ms() reached @deadline_ms) or -ENOBUFS (too much parked) it is open again. */
int overlay_freeze(struct overlay *overlay, uint64_t deadline_ms) MUST_CHECK;
/* Whether the parked requests are over their bound: the freeze has to be given up. */
bool overlay_is_overfull(const struct overlay *overlay);
/* Opens the gate: everything parked runs, in the order of its coming, on the side it
 * was parked on. */
void overlay_thaw(struct overlay *overlay);
/* Holds the others too, and waits until the last of them has left: the side can be switched
 * then. On -ETIMEDOUT they stay held until the thaw. */
int overlay_hold_reads(struct overlay *overlay, uint64_t deadline_ms) MUST_CHECK;
/* After the flip, with reads held: serves from @side, opens the gate. Open files, unlinked
 * ones too, go on by the locators of the new side. */
void overlay_switch(struct overlay *overlay, enum side side);

/* Gives back to the system what forgotten objects have left. To be called about every
 * second, by one thread. */
void overlay_tidy(struct overlay *overlay);

struct overlay_stats {
	uint64_t requests, changes, read_bytes, written_bytes; /* ever */
	uint64_t nodes;					       /* objects the kernel knows now */
	uint64_t parked;				       /* requests now */
	uint64_t last_parked_ms; /* the longest that a request was parked by the last freeze */
};

void overlay_get_stats(struct overlay *overlay, struct overlay_stats *ret_stats);
