/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * What the overlay does with a client's requests, without FUSE: marks, then changes the
 * source, then ends the marks. It follows fs/overlay line by line (which items a change
 * has, and in what order things happen), and takes the locks that the kernel's VFS takes
 * before it asks the overlay. All functions are thread-safe.
 */

#include <pthread.h>
#include <stdbool.h>

#include "fs/store/store.h"
#include "journal/journal.h"
#include "journal/marks.h"
#include "migrate/orphans.h"
#include "tests/model/tree.h"

/* Rules of the overlay, broken on purpose. */
enum mount_break {
	MOUNT_BREAK_NONE,
	MOUNT_BREAK_TRUNCATE, /* marks the attributes only */
	MOUNT_BREAK_RENAME,   /* marks the old name only */
	MOUNT_BREAK_LATE,     /* a write is marked when it is done */
	MOUNT_BREAK_EARLY,    /* a write is unregistered before it is done */
	MOUNT_BREAK_ORPHAN,   /* the end of an unlinked file is not marked */
	MOUNT_BREAK_DIR,      /* the attributes of a directory are not marked with its names */
	MOUNT_BREAK_MAX,
};

enum { MOUNT_LEFTOVERS_MAX = 16 };

/* An object without a name that is still open. */
struct leftover {
	uint64_t id;
	struct tree_ref ref;
	struct store_file *file;
	bool was_unpaired; /* when its name went */
};

struct mount {
	struct store *source; /* all borrowed */
	struct journal *journal;
	struct marks *marks;
	struct orphans *orphans;
	enum mount_break broken;

	pthread_mutex_t inode_locks[TREE_INODES_MAX]; /* as the VFS has them */
	pthread_mutex_t rename_lock;
	pthread_mutex_t lock;
	struct leftover leftovers[MOUNT_LEFTOVERS_MAX]; /* guarded by lock, as is the count */
	unsigned leftover_count;
};

void mount_init(struct mount *mount);
void mount_done(struct mount *mount);

int mount_create(struct mount *mount, struct tree_ref dir, const char *name, mode_t mode);
int mount_tmpfile(struct mount *mount, struct tree_ref dir);
int mount_link(struct mount *mount, struct tree_ref object, struct tree_ref dir, const char *name);
int mount_remove(struct mount *mount, struct tree_ref dir, const char *name, bool is_dir);
int mount_rename(struct mount *mount, struct tree_ref old_dir, const char *old_name,
		 struct tree_ref new_dir, const char *new_name, unsigned flags);
int mount_write(struct mount *mount, struct tree_ref object, uint64_t offset, uint64_t end);
int mount_truncate(struct mount *mount, struct tree_ref object, uint64_t size);
int mount_fallocate(struct mount *mount, struct tree_ref object, int mode, uint64_t offset,
		    uint64_t end);
int mount_chmod(struct mount *mount, struct tree_ref object, mode_t mode);
int mount_chown(struct mount *mount, struct tree_ref object, uint32_t uid);
int mount_utimens(struct mount *mount, struct tree_ref object, uint64_t mtime_ns);
int mount_setxattr(struct mount *mount, struct tree_ref object, uint64_t value);

/* Picks a leftover by @number; false: there is none. */
bool mount_leftover(struct mount *mount, uint64_t number, struct tree_ref *ret_ref);
/* The kernel forgets it: it ends. */
void mount_forget(struct mount *mount, struct tree_ref ref);
void mount_forget_all(struct mount *mount);
