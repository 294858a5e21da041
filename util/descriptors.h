/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * How the descriptors that the process may have (RLIMIT_NOFILE) are shared out among
 * those who keep some open for long. What is open only while it is worked on, by some
 * threads and for the directories that clients are reading, lives on the rest.
 */

#include <limits.h>
#include <stdint.h>
#include <sys/resource.h>

#include "util/attr.h"

/* Sixteenths of all. */
enum {
	DESCRIPTORS_ALL = 16,
	DESCRIPTORS_JOURNAL = 2,  /* its tables */
	DESCRIPTORS_DIRS = 1,	  /* open directories of one store; there are two */
	DESCRIPTORS_FILES = 2,	  /* idle files of the overlay */
	DESCRIPTORS_UNLINKED = 6, /* files that have no name but a user */
};

static_assert(DESCRIPTORS_JOURNAL + 2 * DESCRIPTORS_DIRS + DESCRIPTORS_FILES +
			      DESCRIPTORS_UNLINKED <=
		      DESCRIPTORS_ALL * 3 / 4,
	      "some are left");

/* So many @sixteenths, at least one descriptor and no more than @most. */
static inline unsigned descriptors_share(unsigned sixteenths, unsigned most)
{
	struct rlimit limit;
	uint64_t share;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur > INT_MAX)
		return most;
	share = (uint64_t)limit.rlim_cur * sixteenths / DESCRIPTORS_ALL;
	if (share < 1)
		return 1;
	return share < most ? (unsigned)share : most;
}
