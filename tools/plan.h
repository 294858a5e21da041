/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * What a start is going to do: its options made canonical, and everything about them
 * found good. Changes nothing, but for one thing: the dead mount of a daemon that was
 * killed is taken away, so that its successor finds the source again.
 */

#include <limits.h>
#include <stdbool.h>

#include "tools/mountinfo.h"
#include "tools/options.h"
#include "tools/state.h"
#include "tools/text.h"
#include "util/attr.h"

struct plan {
	char name[TEXT_NAME_MAX + 1];
	char source[PATH_MAX]; /* canonical, as are the others */
	char target[PATH_MAX]; /* or a URL */
	char mount[PATH_MAX];
	char log[PATH_MAX]; /* "": stderr */
	bool is_url;
	struct state_plan state;
};

/* Every failure is logged with what to do. */
int plan_make(const struct options *options, struct plan *ret_plan) MUST_CHECK;

/* The parts of it that are in checks.c; each logs what is wrong. */

/* No daemon that lives has this name or a share in these directories. */
int checks_others(const struct plan *plan) MUST_CHECK;
/* Nothing is mounted over or below the source, neither side is one of our mounts. */
int checks_mounts(const struct plan *plan, const struct mountinfo *mounts) MUST_CHECK;
/* Source, target, mount point, state and log lie apart. */
int checks_overlap(const struct plan *plan, const struct mountinfo *mounts) MUST_CHECK;
