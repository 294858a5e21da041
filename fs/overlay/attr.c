/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attributes: as the store has them, and as the workload sees them.
 *
 * The inode number is the object's, for life. What was equal on both sides at the flip
 * goes on showing the ctime (and as a directory the size) that the workload has seen,
 * until the new side's own ctime moves. The copy is younger than what it was made of,
 * so after more than one flip the older of the two ctimes is the one that was seen.
 */
#include "fs/overlay/overlay_internal.h"

#include <errno.h>
#include <sys/stat.h>

#include "util/clock.h"

int overlay_getattr(struct overlay *overlay, const struct node *node, struct store_attr *ret_attr)
{
	struct cached_file *file;
	int r;

	if (node->flags & NODE_ENDED)
		return leftover_getattr(overlay, node->id, ret_attr);
	if (node->flags & NODE_ORPHAN) {
		file = fdcache_find(overlay->files, node->id, 0);
		if (file) {
			r = store_file_getattr(cached_file_get(file), ret_attr);
			fdcache_put(overlay->files, file);
			return fs_outcome(r);
		}
	}
	return fs_outcome(store_getattr(overlay_store(overlay), &node->locator, ret_attr));
}

void overlay_hide_limbo(struct overlay *overlay, const struct node *node, struct store_attr *attr)
{
	/* Some file systems do not count at all: then it is 1. */
	if (node->id == JOURNAL_ROOT_ID && attr->nlink > 2 && limbo_exists(overlay))
		attr->nlink--;
}

static void show_as_before(struct overlay *overlay, const struct node *node, struct stat *st)
{
	enum side side = overlay_active(overlay), other = side == SIDE_A ? SIDE_B : SIDE_A;
	struct synced synced;

	if (journal_synced_get(overlay->journal, node->id, &synced) != 0)
		return;
	if (timespec_cmp(synced.ctime[side], st->st_ctim) != 0)
		return;
	if (atomic_load(&overlay->flips) == 1 ||
	    timespec_cmp(synced.ctime[other], synced.ctime[side]) < 0)
		st->st_ctim = synced.ctime[other];
	if (S_ISDIR(st->st_mode))
		st->st_size = (off_t)synced.size;
}

void overlay_stat(struct overlay *overlay, const struct node *node, const struct store_attr *attr,
		  struct stat *ret_stat)
{
	*ret_stat = (struct stat){
		.st_ino = node->ino,
		.st_mode = attr->mode,
		/* One kept by a name in limbo has none that counts. */
		.st_nlink = node->flags & NODE_ORPHAN ? 0 : attr->nlink,
		.st_uid = attr->uid,
		.st_gid = attr->gid,
		.st_rdev = attr->rdev,
		.st_size = (off_t)attr->size,
		.st_blocks = (blkcnt_t)attr->blocks,
		.st_blksize = (blksize_t)attr->block_size,
		.st_atim = attr->atime,
		.st_mtim = attr->mtime,
		.st_ctim = attr->ctime,
	};
	if (atomic_load(&overlay->flips) > 0)
		show_as_before(overlay, node, ret_stat);
}

mode_t mode_without_privileges(fuse_req_t req, mode_t mode, uint32_t group)
{
	if (!S_ISREG(mode))
		return mode;
	mode &= ~(mode_t)S_ISUID;
	/* Without group execute, sgid is an old mark for mandatory locking: the group's
	 * own members leave it. */
	if (mode & S_ISGID && (mode & S_IXGRP || !caller_is_in_group(req, group)))
		mode &= ~(mode_t)S_ISGID;
	return mode;
}

int overlay_drop_privileges(fuse_req_t req, uint64_t id)
{
	struct overlay *overlay = overlay_of(req);
	struct store_attr attr;
	struct node node;
	mode_t mode;
	int r;

	if (!overlay_request()->kills_privileges ||
	    !(nodes_flags(overlay->nodes, id) & NODE_PRIVILEGED))
		return 0;
	r = overlay_find(overlay, id, &node);
	if (r < 0)
		return r;
	r = overlay_getattr(overlay, &node, &attr);
	if (r < 0)
		return r;
	mode = mode_without_privileges(req, attr.mode, attr.gid);
	if (mode == attr.mode)
		return 0;
	r = fs_outcome(store_setattr(overlay_store(overlay), &node.locator,
				     &(struct store_setattr){ .valid = STORE_SET_MODE,
							      .mode = mode & 07777 },
				     /* ret_attr= */ NULL));
	/* The answer holds no attributes, and exec goes by the mode that the kernel knows.
	 * Without pages it waits for nothing; -ENOENT: already forgotten. */
	if (r == 0)
		(void)fuse_lowlevel_notify_inval_inode(overlay->session, id, -1, 0);
	return r;
}
