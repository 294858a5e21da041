/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * One life of the daemon, in a process of its own: opens what the life before left,
 * migrates under a workload, and ends well, stops, or is killed.
 */

#include <stdbool.h>

#include "tests/model/mount.h"

struct life_config {
	const char *state_dir;
	enum mount_break broken;
	bool is_free, is_traced;
	bool is_real; /* RocksDB itself: no look at its records while they are written */
};

enum { LIFE_DONE = 0, LIFE_STOPPED = 11, LIFE_KILLED = 12 };

/* Does not return: the exit status is LIFE_*, SCHED_EXIT_FAILED, or a signal. */
_Noreturn void life_run(const struct life_config *config);
