/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes, link targets, and the file system's figures. */
#include "fs/overlay/overlay_internal.h"

#include <errno.h>
#include <limits.h>
#include <sys/stat.h>

void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct overlay *overlay = overlay_of(req);
	struct store_attr attr;
	struct node node;
	struct stat st;
	int r;

	(void)fi; /* files are reached by object */
	r = overlay_find(overlay, ino, &node);
	if (r == 0)
		r = overlay_getattr(overlay, &node, &attr);
	if (r < 0) {
		fs_reply_err(req, r);
		return;
	}
	overlay_hide_limbo(overlay, &node, &attr);
	overlay_stat(overlay, &node, &attr, &st);
	(void)fuse_reply_attr(req, &st, OVERLAY_CACHE_SECONDS); /* fails when nobody waits for it */
}

/* ---- setattr ------------------------------------------------------------- */

static void convert(const struct stat *st, int valid, struct store_setattr *set)
{
	*set = (struct store_setattr){
		.mode = st->st_mode & 07777,
		.uid = st->st_uid,
		.gid = st->st_gid,
		.size = (uint64_t)st->st_size,
		.atime = st->st_atim,
		.mtime = st->st_mtim,
	};
	if (valid & FUSE_SET_ATTR_MODE)
		set->valid |= STORE_SET_MODE;
	if (valid & FUSE_SET_ATTR_UID)
		set->valid |= STORE_SET_UID;
	if (valid & FUSE_SET_ATTR_GID)
		set->valid |= STORE_SET_GID;
	if (valid & FUSE_SET_ATTR_SIZE)
		set->valid |= STORE_SET_SIZE;
	if (valid & FUSE_SET_ATTR_ATIME_NOW)
		set->valid |= STORE_SET_ATIME_NOW;
	else if (valid & FUSE_SET_ATTR_ATIME)
		set->valid |= STORE_SET_ATIME;
	if (valid & FUSE_SET_ATTR_MTIME_NOW)
		set->valid |= STORE_SET_MTIME_NOW;
	else if (valid & FUSE_SET_ATTR_MTIME)
		set->valid |= STORE_SET_MTIME;
}

/* Nothing to set comes from chown(-1, -1), which clears the bits for the owner alone, and
 * from the kernel before a change by whoever may write; the change then clears them itself. */
static bool is_owner(fuse_req_t req, const struct store_attr *attr)
{
	uid_t uid = fuse_req_ctx(req)->uid;

	return uid == 0 || uid == attr->uid;
}

enum { PREPARE_E_NOTHING = 1 }; /* there is nothing to be done */

/* What is to be looked at before: the old size, and bits that must go. */
static int prepare(fuse_req_t req, const struct node *node, struct store_setattr *set,
		   uint64_t *ret_old_size)
{
	bool kills = overlay_request()->kills_privileges && node->flags & NODE_PRIVILEGED;
	bool sets_nothing = overlay_request()->sets_nothing;
	struct store_attr attr;
	mode_t mode, left;
	int r;

	if (!(set->valid & STORE_SET_SIZE) && !kills && !sets_nothing)
		return 0;
	r = overlay_getattr(overlay_of(req), node, &attr);
	if (r < 0)
		return r;
	*ret_old_size = attr.size;
	if (sets_nothing && !is_owner(req, &attr))
		return PREPARE_E_NOTHING;
	if (kills) {
		mode = set->valid & STORE_SET_MODE ? (attr.mode & S_IFMT) | set->mode : attr.mode;
		left = mode_without_privileges(req, mode, attr.gid);
		if (left != mode) {
			set->mode = left & 07777;
			set->valid |= STORE_SET_MODE;
		}
	}
	return 0;
}

static int change_attr(fuse_req_t req, const struct node *node, struct store_setattr *set,
		       struct store_attr *ret_attr)
{
	struct overlay *overlay = overlay_of(req);
	struct marks_change change = MARKS_CHANGE_NULL;
	uint64_t old_size = 0;
	int r;

	if (node->flags & NODE_ENDED)
		return leftover_setattr(overlay, node->id, set, ret_attr);
	r = prepare(req, node, set, &old_size);
	if (r == PREPARE_E_NOTHING)
		return overlay_getattr(overlay, node, ret_attr);
	if (r < 0)
		return r;

	marks_change_add_attr(&change, node->id);
	/* All beyond the smaller of the sizes: it goes, or comes as zeros. */
	if (set->valid & STORE_SET_SIZE && set->size != old_size)
		marks_change_add_data(&change, node->id,
				      set->size < old_size ? set->size : old_size, MARKS_INFINITY);
	marks_change_begin(overlay->marks, &change);
	r = fs_outcome(store_setattr(overlay_store(overlay), &node->locator, set, ret_attr));
	marks_change_end(overlay->marks, &change);
	return r;
}

void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int valid,
		struct fuse_file_info *fi)
{
	struct overlay *overlay = overlay_of(req);
	struct store_setattr set;
	struct store_attr attr;
	struct node node;
	struct stat shown;
	int r;

	(void)fi; /* files are reached by object */
	convert(st, valid, &set);
	r = overlay_find(overlay, ino, &node);
	if (r == 0)
		r = change_attr(req, &node, &set, &attr);
	if (r < 0) {
		fs_reply_err(req, r);
		return;
	}
	if (S_ISREG(attr.mode) && attr.mode & (S_ISUID | S_ISGID))
		nodes_set_flags(overlay->nodes, ino, NODE_PRIVILEGED, 0);
	overlay_hide_limbo(overlay, &node, &attr);
	overlay_stat(overlay, &node, &attr, &shown);
	(void)fuse_reply_attr(req, &shown,
			      OVERLAY_CACHE_SECONDS); /* fails when nobody waits for it */
}

/* ---- others -------------------------------------------------------------- */

void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	struct overlay *overlay = overlay_of(req);
	char target[PATH_MAX + 1];
	struct node node;
	int r;

	r = overlay_find(overlay, ino, &node);
	if (r == 0)
		r = fs_outcome(store_readlink(overlay_store(overlay), &node.locator, target,
					      sizeof(target)));
	if (r < 0)
		fs_reply_err(req, r == -ERANGE ? -ENAMETOOLONG : r);
	else
		(void)fuse_reply_readlink(req, target); /* fails when nobody waits for it */
}

void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct overlay *overlay = overlay_of(req);
	struct statvfs statvfs;
	int r;

	(void)ino; /* one file system */
	r = fs_outcome(store_statfs(overlay_store(overlay), &statvfs));
	if (r < 0)
		fs_reply_err(req, r);
	else
		(void)fuse_reply_statfs(req, &statvfs); /* fails when nobody waits for it */
}

void op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned cmd, void *arg, struct fuse_file_info *fi,
	      unsigned flags, const void *in, size_t in_size, size_t out_size)
{
	(void)ino;
	(void)cmd;
	(void)arg;
	(void)fi;
	(void)flags;
	(void)in;
	(void)in_size;
	(void)out_size;
	fs_reply_err(req, -ENOTTY);
}
