/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that find and make names. */
#include "fs/overlay/overlay_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct overlay *overlay = overlay_of(req);
	struct fuse_entry_param entry = { .entry_timeout = OVERLAY_CACHE_SECONDS };
	struct node dir, node;
	struct store_attr attr;
	int r;

	r = overlay_find(overlay, parent, &dir);
	if (r == 0)
		r = overlay_look_up(overlay, &dir, name, &node, &attr);
	if (r == 0)
		r = overlay_enter(overlay, &node, &attr, &entry);
	if (r < 0 && r != -ENOENT) {
		fs_reply_err(req, r);
		return;
	}
	/* Without an inode it says, for long, that nothing is there. */
	if (fuse_reply_entry(req, &entry) < 0 && entry.ino)
		overlay_forget(overlay, entry.ino, 1);
}

void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t lookups)
{
	overlay_forget(overlay_of(req), ino, lookups);
	fuse_reply_none(req);
}

void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < count; i++)
		overlay_forget(overlay_of(req), forgets[i].ino, forgets[i].nlookup);
	fuse_reply_none(req);
}

/* ---- making -------------------------------------------------------------- */

/* Gives the object that was just made its node and marks it whole: one write to the journal
 * for both. */
static int know_new(struct overlay *overlay, const struct locator *locator,
		    const struct store_attr *attr, fuse_ino_t parent, struct node *ret_node)
{
	int r;

	r = overlay_intern_new(overlay, locator, attr, parent, ret_node);
	if (r == 0)
		marks_put_whole(overlay->marks, ret_node->id, attr->size);
	return r;
}

/* Most files are written as soon as they are made. But a kernel's NFS client gives a file that
 * is open by a name another one, .nfs*, when that name goes. @file may be NULL, and is taken. */
static void keep_open(struct overlay *overlay, struct store_file *file, uint64_t id)
{
	struct cached_file *cached;

	if (!file)
		return;
	if (id && store_caps(overlay_store(overlay))->is_local &&
	    fdcache_insert(overlay->files, id, file, &cached) == 0)
		fdcache_put(overlay->files, cached);
	else
		store_file_close(file);
}

/* Makes @name in @parent as @new says and fills the entry for it. */
static int make(fuse_req_t req, fuse_ino_t parent, const char *name, struct store_new *new,
		struct fuse_entry_param *ret_entry)
{
	struct overlay *overlay = overlay_of(req);
	struct marks_change change = MARKS_CHANGE_NULL;
	struct store_file *file = NULL;
	struct locator locator;
	struct store_attr attr;
	struct caller caller;
	struct node dir, node;
	int r;

	if (overlay_is_hidden(overlay, parent, name))
		return -EPERM;
	r = overlay_find(overlay, parent, &dir);
	if (r < 0)
		return r;
	caller_get(req, &caller);
	new->cred = &caller.cred;

	marks_change_add_name(&change, parent, name);
	marks_change_add_attr(&change, parent);
	marks_change_begin(overlay->marks, &change);
	r = fs_outcome(store_create_open(overlay_store(overlay), &dir.locator, name, new, &locator,
					 &attr, &file));
	if (r == 0)
		r = know_new(overlay, &locator, &attr, parent, &node);
	marks_change_end(overlay->marks, &change);
	if (r == 0)
		r = overlay_enter(overlay, &node, &attr, ret_entry);
	keep_open(overlay, file, r == 0 ? node.id : 0);
	return r;
}

static void make_and_reply(fuse_req_t req, fuse_ino_t parent, const char *name,
			   struct store_new *new)
{
	struct fuse_entry_param entry;
	int r;

	r = make(req, parent, name, new, &entry);
	if (r < 0)
		fs_reply_err(req, r);
	else if (fuse_reply_entry(req, &entry) < 0)
		overlay_forget(overlay_of(req), entry.ino, 1);
}

void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	make_and_reply(req, parent, name, &(struct store_new){ .mode = mode, .rdev = rdev });
}

void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	make_and_reply(req, parent, name, &(struct store_new){ .mode = S_IFDIR | (mode & 07777) });
}

void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	make_and_reply(req, parent, name,
		       &(struct store_new){ .mode = S_IFLNK | 0777, .link_target = target });
}

static void reply_create(fuse_req_t req, const struct fuse_entry_param *entry,
			 struct fuse_file_info *fi)
{
	overlay_opened(fi);
	if (fuse_reply_create(req, entry, fi) < 0)
		overlay_forget(overlay_of(req), entry->ino, 1);
}

void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
	       struct fuse_file_info *fi)
{
	struct store_new new = { .mode = S_IFREG | (mode & 07777) };
	struct fuse_entry_param entry;
	int r;

	r = make(req, parent, name, &new, &entry);
	if (r < 0)
		fs_reply_err(req, r);
	else
		reply_create(req, &entry, fi);
}

/* Makes a file without a name and fills the entry for it. */
static int make_tmpfile(fuse_req_t req, fuse_ino_t parent, struct store_new *new, bool is_linkable,
			struct fuse_entry_param *ret_entry)
{
	struct overlay *overlay = overlay_of(req);
	struct marks_change change = MARKS_CHANGE_NULL;
	char limbo[ORPHAN_NAME_BYTES];
	struct store_file *file;
	struct locator locator;
	struct store_attr attr;
	struct caller caller;
	struct node dir, node;
	int r;

	r = overlay_find(overlay, parent, &dir);
	if (r < 0)
		return r;
	caller_get(req, &caller);
	new->cred = &caller.cred;
	r = fs_outcome(store_tmpfile(overlay_store(overlay), &dir.locator, new, is_linkable,
				     &locator, &attr, &file));
	if (r < 0)
		return r;
	/* Nobody can see it yet: it is soon enough to mark it now. */
	r = overlay_intern(overlay, &locator, &attr, /* parent= */ 0, &node);
	if (r < 0) {
		store_file_close(file);
		return r;
	}
	node.flags |= NODE_ORPHAN;
	orphan_name(node.id, limbo);
	marks_change_add_name(&change, JOURNAL_LIMBO_ID, limbo);
	marks_change_begin(overlay->marks, &change);
	r = leftover_add_tmpfile(overlay, node.id, file);
	if (r == 0)
		marks_put_whole(overlay->marks, node.id, attr.size);
	marks_change_end(overlay->marks, &change);
	if (r < 0)
		return r;

	r = overlay_enter(overlay, &node, &attr, ret_entry);
	if (r < 0)
		leftover_end(overlay, node.id);
	return r;
}

void op_tmpfile(fuse_req_t req, fuse_ino_t parent, mode_t mode, struct fuse_file_info *fi)
{
	struct store_new new = { .mode = S_IFREG | (mode & 07777) };
	struct fuse_entry_param entry;
	int r;

	r = make_tmpfile(req, parent, &new, !(fi->flags & O_EXCL), &entry);
	if (r < 0)
		fs_reply_err(req, r);
	else
		reply_create(req, &entry, fi);
}

/* ---- linking ------------------------------------------------------------- */

static int link_name(struct overlay *overlay, struct node *node, const struct node *dir,
		     const char *name)
{
	bool is_leftover = node->flags & NODE_ORPHAN;
	struct marks_change change = MARKS_CHANGE_NULL;
	char limbo[ORPHAN_NAME_BYTES];
	int r;

	orphan_name(node->id, limbo);
	marks_change_add_name(&change, dir->id, name);
	marks_change_add_attr(&change, dir->id);
	marks_change_add_attr(&change, node->id);
	if (is_leftover)
		marks_change_add_name(&change, JOURNAL_LIMBO_ID, limbo);
	marks_change_begin(overlay->marks, &change);
	r = fs_outcome(store_link(overlay_store(overlay), &node->locator, &dir->locator, name));
	if (r == 0 && is_leftover) {
		leftover_rescue(overlay, node->id);
		node->flags &= ~(unsigned)NODE_ORPHAN;
	}
	marks_change_end(overlay->marks, &change);
	return r;
}

void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
	struct overlay *overlay = overlay_of(req);
	struct fuse_entry_param entry;
	struct store_attr attr;
	struct node node, dir;
	int r;

	r = overlay_is_hidden(overlay, parent, name) ? -EPERM : 0;
	if (r == 0)
		r = overlay_find(overlay, ino, &node);
	if (r == 0)
		r = overlay_find(overlay, parent, &dir);
	if (r == 0)
		r = link_name(overlay, &node, &dir, name);
	if (r == 0)
		r = overlay_getattr(overlay, &node, &attr);
	if (r == 0)
		r = overlay_enter(overlay, &node, &attr, &entry);
	if (r < 0)
		fs_reply_err(req, r);
	else if (fuse_reply_entry(req, &entry) < 0)
		overlay_forget(overlay, entry.ino, 1);
}
