/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The mounts that this process sees, read from /proc/self/mountinfo, and questions
 * about paths that need no look at the file systems themselves: a dead or stuck mount
 * answers none.
 */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "util/attr.h"

#define MOUNTINFO_OURS "fuse.ferryfs" /* the type of our mounts */

struct mount_entry {
	uint64_t id, parent;
	char *device;	  /* "8:1" */
	char *root;	  /* which directory of the file system is mounted ... */
	char *mountpoint; /* ... and where */
	char *type;
	char *source; /* as mount(8) shows it; of ours: the migration's name */
};

struct mountinfo {
	struct mount_entry *entries; /* in the order of mounting */
	unsigned count;
};

#define MOUNTINFO_NULL ((struct mountinfo){ 0 })

/* Reads @file (borrowed); NULL: the real one. -EIO for what cannot be understood. */
int mountinfo_load(FILE *file, struct mountinfo *ret_mounts) MUST_CHECK;
void mountinfo_done(struct mountinfo *mounts);

/* The mount that stands at @path (canonical) itself, on top; NULL: none. */
const struct mount_entry *mountinfo_at(const struct mountinfo *mounts, const char *path);
/* The mount that @path (canonical) is on. */
const struct mount_entry *mountinfo_covering(const struct mountinfo *mounts, const char *path);
/* A mount on @mount below @path; NULL: none. */
const struct mount_entry *mountinfo_below(const struct mountinfo *mounts,
					  const struct mount_entry *mount, const char *path);

/* Whether @inner is @outer or lies below it; both canonical. */
bool mountinfo_path_is_inside(const char *inner, const char *outer);

/* The same, also where a bind mount or another mount of the file system leads there:
 * compares devices and paths within them. */
bool mountinfo_is_inside(const struct mountinfo *mounts, const char *inner, const char *outer);

static inline void cleanup_mountinfo_(struct mountinfo *mounts)
{
	mountinfo_done(mounts);
}
