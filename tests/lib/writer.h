/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The parts of the self-checking workload (writer.c says what it does).
 */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tests/lib/testlib.h"
#include "tests/lib/writer_model.h"

enum {
	WRITER_FAILED = 1,     /* exit codes; TEST_TROUBLE is 2 */
	WRITER_LOST_MOUNT = 3, /* the mount went away, and that was allowed */
};

struct writer_options {
	const char *dir;      /* where the writers' directories are: mount, or target */
	const char *record;   /* file, outside of it */
	const char *shared;   /* directory below @dir with the data set; NULL: none */
	unsigned id, writers; /* this one, of so many that share */
	uint64_t seed;
	double rate;		/* operations a second at most, 0: no limit */
	uint64_t size;		/* of the file of random8k */
	const char *until_file; /* ends when this exists */
	double seconds;		/* or after so long */
	bool may_lose_mount, no_xattr, no_symlink_times, is_direct;
};

/* ---- pacing (writer.c) ------------------------------------------------------- */

struct pace {
	const struct writer_options *options;
	uint64_t start_ns, next_ns, looked_ns;
};

void pace_start(struct pace *pace, const struct writer_options *options);
/* Waits until the next operation is due; false when the writer is to end. */
bool pace_next(struct pace *pace);

/* Says which operation failed how, and exits; WRITER_LOST_MOUNT where that is allowed. */
void writer_fail_errno(const struct writer_options *options, int error, const char *format, ...)
	PRINTF_LIKE(3, 4) __attribute__((noreturn));

/* ---- modes ------------------------------------------------------------------- */

/* writer_ops.c: mix and churn. */
void ops_run(const struct writer_options *options, bool is_churn);
/* writer_stream.c */
void random8k_run(const struct writer_options *options);
void append_run(const struct writer_options *options);

/* Each compares with what was acknowledged, prints differences, and returns how
 * many there were. */
uint64_t ops_check(const struct writer_options *options);
uint64_t random8k_check(const struct writer_options *options);
uint64_t append_check(const struct writer_options *options);

/* writer_check.c: compares @model with what is there, printing up to a few differences
 * to @out (NULL: none). Returns how many there were. */
uint64_t model_compare(struct model *model, const struct writer_options *options, FILE *out);

/* Like record_replay(), and then decides by what is there whether an operation that
 * was under way was done, and lets record and @model say so. Returns the number of
 * differences that no such decision explains, printed. */
uint64_t ops_resume(const struct writer_options *options, struct model *model, bool is_check);
