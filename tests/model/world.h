/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * What outlives a crash of the daemon: the two trees, what is still on its way to the
 * target, the time, and (memrocks.c) the database. One shared mapping: each life of the
 * daemon is a child process, which ends by dying, and the parent looks at what it left.
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "journal/journal.h"
#include "tests/model/tree.h"

enum {
	WORLD_LATE_MAX = 24,
	WORLD_LATE_CELLS = (1 << 20) / CELL_BYTES,
	WORLD_VERDICT_BYTES = 2048,
	MEMROCKS_COLUMNS_MAX = 16,
	MEMROCKS_RECORDS_MAX = 4096,
	MEMROCKS_RECORD_BYTES = 352,
};

/* An operation of the target that nobody waits for any more. */
struct late {
	bool is_used;
	uint64_t lands_ns;
	struct op op;
	uint64_t cells[WORLD_LATE_CELLS];
};

struct memrocks_record {
	uint16_t key_length, value_length;
	uint8_t bytes[MEMROCKS_RECORD_BYTES - 4]; /* key, value */
};

struct memrocks {
	char columns[MEMROCKS_COLUMNS_MAX][16];
	unsigned column_count;
	uint64_t sequence;
	/* Of each column the numbers of its records, in the order of their keys. */
	uint16_t index[MEMROCKS_COLUMNS_MAX][MEMROCKS_RECORDS_MAX];
	unsigned count[MEMROCKS_COLUMNS_MAX];
	uint16_t free[MEMROCKS_RECORDS_MAX];
	unsigned free_count;
	struct memrocks_record records[MEMROCKS_RECORDS_MAX];
};

/* How the run is made; from the seed. */
struct plan {
	uint64_t seed;
	/* stores */
	bool is_local;	  /* the target: no reply is ever lost */
	bool is_volatile; /* ... and it has no stable storage */
	bool can_lose;	  /* the target may restart and lose what was not committed */
	bool has_rename_flags, has_punch_hole;
	unsigned fail_of_1000, unknown_of_1000, lose_of_1000, read_fail_of_1000;
	/* migrator */
	unsigned workers;
	uint32_t hold_down_ms, cool_ms;
	size_t objects_max, names_max, scans_max, groups_max;
	/* workload */
	unsigned clients, client_ops, objects, bulk_of_1000;
	unsigned tmpfile_of_1000, data_of_1000, swap_of_1000; /* of the operations */
	unsigned think_of_1000;				      /* pauses between operations */
	/* lives */
	unsigned lives;	       /* how many, the last of which ends well */
	unsigned stop_of_1000; /* of the others, so many stop cleanly */
	bool has_gaps; /* a start after the first compares all; changes happen while it is down */
	bool has_pauses;
};

struct world {
	uint64_t clock_ns;   /* virtual */
	uint64_t tree_clock; /* logical: times of inodes */
	uint64_t stamp;	     /* of written cells: no two are alike */
	struct plan plan;
	unsigned life;
	_Atomic uint64_t last_loss_ms;
	atomic_bool is_target_steady; /* no faults now */
	bool is_lost;		      /* the target has forgotten something since its last commit */
	bool was_killed;
	bool has_begun;		  /* the journal has the first mark of all */
	uint64_t landed_until_ns; /* by then all that is late has landed */
	struct tree tree[SIDE_MAX];
	struct late late[WORLD_LATE_MAX];
	struct memrocks rocks;
	uint64_t steps, lives, crashes; /* counted over all runs */
	char verdict[WORLD_VERDICT_BYTES];
};

extern struct world *world;

/* Maps it. */
int world_make(void);
/* As if nothing had been. Keeps the counts. */
void world_reset(void);
