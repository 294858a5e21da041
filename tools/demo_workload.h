/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The workload of the demo, in three parts that know what they did: a SQLite
 * database, a log that is appended to, and files that come, move and go. Each
 * remembers in a file outside of the tree what was acknowledged, and can tell
 * afterwards whether it is there. Written without any of ferryfs's code but util's
 * headers: it plays a program that knows nothing of it.
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "util/attr.h"

struct part; /* one of the three at work */

struct part_kind {
	const char *name;
	/* Works until part->is_over; returns 0, or -1 after part_failed(). */
	int (*run)(struct part *part);
	/* Prints what it found in one line: 0, or -1 if something is not as it should be. */
	int (*verify)(struct part *part);
};

enum { STALLS_MAX = 65536 }; /* waits remembered; later ones are counted in the last */

struct stall {
	uint64_t begin_ns, length_ns; /* CLOCK_REALTIME */
};

struct part {
	const struct part_kind *kind;
	const char *dir, *record; /* where it works; where it remembers */
	atomic_bool *is_over;
	uint64_t begin_ns; /* of the operation under way */
	struct stall *stalls;
	unsigned stall_count;
	int result;
};

extern const struct part_kind part_database, part_log, part_files;

/* Around each operation, so that the time it took is known. */
void part_begin(struct part *part);
void part_end(struct part *part);

/* Says which operation failed, with errno's text. Returns -1. */
int part_failed(struct part *part, const char *operation);

/* The number (or text) that the part remembers; absent: 0 (or an empty file). */
uint64_t part_recall(const struct part *part);
int part_remember(struct part *part, uint64_t number) MUST_CHECK;
void part_path(const struct part *part, const char *suffix, char *ret_path, unsigned size);

/* Lets others run for a moment. */
void part_pause(unsigned ms);
