/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the kernel's node ids to objects on the active side, and back.
 *
 * Until the first flip every object shows the inode number that it has on side A, so
 * no look into the journal is needed for it. After a flip a node still holds the
 * locator of the other side, and gets the new one at its first use.
 */
#include "fs/overlay/overlay_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static int find_in_journal(struct overlay *overlay, uint64_t id, struct node *node)
{
	enum side side = overlay_active(overlay);
	struct object object;
	int r;

	if (id == JOURNAL_ROOT_ID) {
		/* Present since open; its locator may predate the flip. */
		store_root(overlay->store[side], &node->locator);
		node->side = side;
		return 0;
	}
	r = journal_object_get(overlay->journal, id, &object);
	if (r < 0)
		return r;
	if (r == JOURNAL_E_NONE || locator_is_null(&object.locator[side]))
		return -ESTALE;
	node->id = id;
	node->ino = object.ino;
	node->type = object.type;
	node->side = side;
	node->locator = object.locator[side];
	return 0;
}

int overlay_find(struct overlay *overlay, uint64_t id, struct node *ret_node)
{
	struct node node = { .id = id };
	int r;

	if (!nodes_get(overlay->nodes, id, &node) ||
	    (node.side != overlay_active(overlay) && !(node.flags & NODE_ENDED))) {
		r = find_in_journal(overlay, id, &node);
		if (r < 0)
			return r;
		r = nodes_add(overlay->nodes, &node, 0);
		if (r < 0)
			return r;
	}
	*ret_node = node;
	return 0;
}

static unsigned flags_of(const struct store_attr *attr)
{
	return S_ISREG(attr->mode) && attr->mode & (S_ISUID | S_ISGID) ? NODE_PRIVILEGED : 0;
}

/* The node of object @id as it is now at @locator on @side. */
static struct node node_of(uint64_t id, uint64_t ino, enum side side, const struct locator *locator,
			   const struct store_attr *attr, uint64_t parent)
{
	return (struct node){
		.id = id,
		.ino = ino,
		.parent = S_ISDIR(attr->mode) ? parent : 0,
		.type = attr->mode & S_IFMT,
		.flags = flags_of(attr),
		.side = side,
		.locator = *locator,
	};
}

int overlay_intern(struct overlay *overlay, const struct locator *locator,
		   const struct store_attr *attr, uint64_t parent, struct node *ret_node)
{
	enum side side = overlay_active(overlay);
	bool has_flipped = atomic_load(&overlay->flips) > 0;
	uint64_t id, ino = attr->ino;
	int r;

	r = journal_object_intern(overlay->journal, side, locator, attr->mode & S_IFMT,
				  has_flipped ? 0 : attr->ino, &id);
	if (r < 0)
		return r;
	if (has_flipped) {
		struct object object;

		r = journal_object_get(overlay->journal, id, &object);
		if (r != 0)
			return r < 0 ? r : -ESTALE;
		ino = object.ino;
	}
	*ret_node = node_of(id, ino, side, locator, attr, parent);
	return 0;
}

int overlay_intern_new(struct overlay *overlay, const struct locator *locator,
		       const struct store_attr *attr, uint64_t parent, struct node *ret_node)
{
	enum side side = overlay_active(overlay);
	struct object object;
	uint64_t seq;
	int r;

	r = journal_object_intern_early(overlay->journal, side, locator, attr->mode & S_IFMT,
					atomic_load(&overlay->flips) > 0 ? 0 : attr->ino, &object,
					&seq);
	if (r != 0)
		return fs_outcome(r);
	*ret_node = node_of(object.id, object.ino, side, locator, attr, parent);
	ret_node->flags |= NODE_NO_CAPABILITY;
	return 0;
}

bool overlay_is_hidden(const struct overlay *overlay, uint64_t dir, const char *name)
{
	return dir == JOURNAL_ROOT_ID && strcmp(name, overlay->limbo_name) == 0;
}

int overlay_look_up(struct overlay *overlay, const struct node *dir, const char *name,
		    struct node *ret_node, struct store_attr *ret_attr)
{
	struct locator locator;
	int r;

	if (overlay_is_hidden(overlay, dir->id, name))
		return -ENOENT;
	r = fs_outcome(
		store_lookup(overlay_store(overlay), &dir->locator, name, &locator, ret_attr));
	if (r < 0)
		return r;
	return overlay_intern(overlay, &locator, ret_attr, dir->id, ret_node);
}

int overlay_enter(struct overlay *overlay, struct node *node, const struct store_attr *attr,
		  struct fuse_entry_param *ret_entry)
{
	int r;

	node->flags |= flags_of(attr);
	r = nodes_add(overlay->nodes, node, 1);
	if (r < 0)
		return r;
	*ret_entry = (struct fuse_entry_param){
		.ino = node->id,
		.attr_timeout = OVERLAY_CACHE_SECONDS,
		.entry_timeout = OVERLAY_CACHE_SECONDS,
	};
	overlay_stat(overlay, node, attr, &ret_entry->attr);
	return 0;
}

void overlay_forget(struct overlay *overlay, uint64_t id, uint64_t lookups)
{
	unsigned flags;

	if (!nodes_forget(overlay->nodes, id, lookups, &flags))
		return;
	if (flags & NODE_ORPHAN)
		leftover_forget(overlay, id);
	else
		fdcache_drop(overlay->files, id);
}
