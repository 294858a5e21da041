/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations that take names away: unlink, rmdir, rename. The kernel holds the locks
 * of the directories and of what stands at the names, so what is looked at before the
 * operation is still so under it.
 */
#include "fs/overlay/overlay_internal.h"

#include <errno.h>
#include <linux/fs.h>
#include <sys/stat.h>

/* ---- unlink, rmdir ------------------------------------------------------- */

static int remove_name(struct overlay *overlay, fuse_ino_t parent, const char *name, bool is_dir)
{
	struct marks_change change = MARKS_CHANGE_NULL;
	struct victim victim;
	struct node dir;
	int r;

	if (overlay_is_hidden(overlay, parent, name))
		return -ENOENT;
	r = overlay_find(overlay, parent, &dir);
	if (r < 0)
		return r;
	r = victim_look(overlay, &dir, name, &victim);
	if (r < 0)
		return r;
	if (!victim.is_there)
		return -ENOENT;

	marks_change_add_name(&change, parent, name);
	marks_change_add_attr(&change, parent);
	victim_mark(&victim, &change);
	marks_change_begin(overlay->marks, &change);
	r = victim_begin(overlay, &victim);
	if (r == 0) {
		if (is_dir)
			r = store_rmdir(overlay_store(overlay), &dir.locator, name);
		else
			r = store_unlink(overlay_store(overlay), &dir.locator, name);
		r = fs_outcome(r);
		victim_end(overlay, &victim, r == 0);
	}
	marks_change_end(overlay->marks, &change);
	return r;
}

void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	fs_reply_done(req, remove_name(overlay_of(req), parent, name, /* is_dir= */ false));
}

void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	fs_reply_done(req, remove_name(overlay_of(req), parent, name, /* is_dir= */ true));
}

/* ---- rename -------------------------------------------------------------- */

struct renaming {
	struct node old_dir, new_dir;
	const char *old_name, *new_name;
	struct victim moved;  /* what moves: it is no victim, but looked at the same way */
	struct victim victim; /* what stands at the new name */
	bool is_exchange;
};

static int look(struct overlay *overlay, struct renaming *renaming)
{
	int r;

	r = victim_look(overlay, &renaming->old_dir, renaming->old_name, &renaming->moved);
	if (r < 0)
		return r;
	if (!renaming->moved.is_there)
		return -ENOENT;
	return victim_look(overlay, &renaming->new_dir, renaming->new_name, &renaming->victim);
}

static void mark(struct renaming *renaming, struct marks_change *change)
{
	marks_change_add_name(change, renaming->old_dir.id, renaming->old_name);
	marks_change_add_name(change, renaming->new_dir.id, renaming->new_name);
	marks_change_add_attr(change, renaming->old_dir.id);
	if (renaming->new_dir.id != renaming->old_dir.id)
		marks_change_add_attr(change, renaming->new_dir.id);
	if (renaming->moved.is_known)
		marks_change_add_attr(change, renaming->moved.node.id);
	if (renaming->is_exchange && renaming->victim.is_known)
		marks_change_add_attr(change, renaming->victim.node.id);
	else
		victim_mark(&renaming->victim, change);
}

/* Whether both names stand for one object: then a rename changes nothing. */
static bool is_same(const struct renaming *renaming)
{
	return renaming->victim.is_there &&
	       locator_equal(&renaming->moved.node.locator, &renaming->victim.node.locator);
}

static int rename_name(struct overlay *overlay, struct renaming *renaming, unsigned flags)
{
	struct marks_change change = MARKS_CHANGE_NULL;
	bool is_replacing = !(flags & (RENAME_NOREPLACE | RENAME_EXCHANGE)) && !is_same(renaming);
	int r = 0;

	mark(renaming, &change);
	marks_change_begin(overlay->marks, &change);
	if (is_replacing)
		r = victim_begin(overlay, &renaming->victim);
	if (r == 0) {
		r = fs_outcome(store_rename(overlay_store(overlay), &renaming->old_dir.locator,
					    renaming->old_name, &renaming->new_dir.locator,
					    renaming->new_name, flags));
		victim_end(overlay, &renaming->victim, r == 0);
	}
	marks_change_end(overlay->marks, &change);
	return r;
}

static void note_parent(struct overlay *overlay, const struct victim *moved, uint64_t parent)
{
	if (!moved->is_known || !S_ISDIR(moved->attr.mode))
		return;
	nodes_set_parent(overlay->nodes, moved->node.id, parent);
	/* In a listing that the kernel holds ".." is another. */
	nodes_set_flags(overlay->nodes, moved->node.id, 0, NODE_LISTED);
}

static void note_parents(struct overlay *overlay, const struct renaming *renaming)
{
	note_parent(overlay, &renaming->moved, renaming->new_dir.id);
	if (renaming->is_exchange)
		note_parent(overlay, &renaming->victim, renaming->old_dir.id);
}

void op_rename(fuse_req_t req, fuse_ino_t old_parent, const char *old_name, fuse_ino_t new_parent,
	       const char *new_name, unsigned flags)
{
	struct overlay *overlay = overlay_of(req);
	struct renaming renaming = {
		.old_name = old_name,
		.new_name = new_name,
		.is_exchange = flags & RENAME_EXCHANGE,
	};
	int r = 0;

	if (overlay_is_hidden(overlay, old_parent, old_name))
		r = -ENOENT;
	else if (overlay_is_hidden(overlay, new_parent, new_name))
		r = -EPERM;
	if (r == 0)
		r = overlay_find(overlay, old_parent, &renaming.old_dir);
	if (r == 0)
		r = overlay_find(overlay, new_parent, &renaming.new_dir);
	if (r == 0)
		r = look(overlay, &renaming);
	/* The kernel holds both directories and all changes come this way: what was free
	 * a moment ago is free. */
	if (r == 0 && flags == RENAME_NOREPLACE &&
	    !store_caps(overlay_store(overlay))->has_rename_flags) {
		r = renaming.victim.is_there ? -EEXIST : 0;
		flags = 0;
	}
	if (r == 0)
		r = rename_name(overlay, &renaming, flags);
	if (r == 0)
		note_parents(overlay, &renaming);
	fs_reply_done(req, r);
}
