/* SPDX-License-Identifier: Apache-2.0 */
/* Extended attributes, POSIX ACLs among them: passed on as they are. */
#include "fs/overlay/overlay_internal.h"

#include <errno.h>
#include <limits.h>
#include <linux/limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "util/cleanup.h"

#define ACL_PREFIX "system.posix_acl_"
#define CAPABILITY "security.capability"

/* @n: what a get or list gave. With @size 0 the length was asked for. */
static void reply_value(fuse_req_t req, ssize_t n, const void *value, size_t size)
{
	if (n < 0)
		fs_reply_err(req, (int)n);
	else if (size == 0)
		(void)fuse_reply_xattr(req, (size_t)n); /* fails when nobody waits for it */
	else
		(void)fuse_reply_buf(req, value, (size_t)n); /* as above */
}

/* Before a write the kernel asks each file for its capability, which hardly any has: that
 * there is none is kept with the node.
 *
 * Others may set one meanwhile, and that must not be forgotten. They count before and after
 * they set it, and clear the flag with each count; who has seen none sets the flag only
 * if nobody has counted since before the look. */
static ssize_t get_capability(struct overlay *overlay, const struct node *node, void *value,
			      size_t size)
{
	uint64_t changes;
	ssize_t n;

	if (node->flags & NODE_NO_CAPABILITY)
		return -ENODATA;
	pthread_mutex_lock(&overlay->capability_lock);
	changes = overlay->capability_changes;
	pthread_mutex_unlock(&overlay->capability_lock);
	n = store_getxattr(overlay_store(overlay), &node->locator, CAPABILITY, value, size);
	if (n != -ENODATA)
		return n;
	pthread_mutex_lock(&overlay->capability_lock);
	if (overlay->capability_changes == changes)
		nodes_set_flags(overlay->nodes, node->id, NODE_NO_CAPABILITY, 0);
	pthread_mutex_unlock(&overlay->capability_lock);
	return n;
}

static void count_capability(struct overlay *overlay, uint64_t id)
{
	pthread_mutex_lock(&overlay->capability_lock);
	overlay->capability_changes++;
	nodes_set_flags(overlay->nodes, id, 0, NODE_NO_CAPABILITY);
	pthread_mutex_unlock(&overlay->capability_lock);
}

void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	struct overlay *overlay = overlay_of(req);
	char value[XATTR_SIZE_MAX];
	struct node node;
	ssize_t n;

	if (size > sizeof(value))
		size = sizeof(value);
	n = overlay_find(overlay, ino, &node);
	if (n == 0 && node.flags & NODE_ENDED)
		n = -ENODATA;
	else if (n == 0 && strcmp(name, CAPABILITY) == 0)
		n = get_capability(overlay, &node, value, size);
	else if (n == 0)
		n = store_getxattr(overlay_store(overlay), &node.locator, name, value, size);
	/* The kernel asks for the ACL to check a permission, and fails the check else. */
	if (n == -EOPNOTSUPP && strncmp(name, ACL_PREFIX, strlen(ACL_PREFIX)) == 0)
		n = -ENODATA;
	reply_value(req, n, value, size);
}

void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	struct overlay *overlay = overlay_of(req);
	char list[XATTR_LIST_MAX];
	struct node node;
	ssize_t n;

	if (size > sizeof(list))
		size = sizeof(list);
	n = overlay_find(overlay, ino, &node);
	if (n == 0 && !(node.flags & NODE_ENDED))
		n = store_listxattr(overlay_store(overlay), &node.locator, list, size);
	if (n == -EOPNOTSUPP)
		n = 0; /* as any file system that has none */
	reply_value(req, n, list, size);
}

/* An ACL set by someone outside the file's group takes the sgid bit away. */
static int drop_sgid(struct overlay *overlay, const struct node *node)
{
	struct store_setattr set = { .valid = STORE_SET_MODE };
	struct store_attr attr;
	int r;

	r = overlay_getattr(overlay, node, &attr);
	if (r < 0 || !(attr.mode & S_ISGID))
		return r;
	set.mode = attr.mode & 07777 & ~(mode_t)S_ISGID;
	return fs_outcome(
		store_setattr(overlay_store(overlay), &node->locator, &set, /* ret_attr= */ NULL));
}

static int set_xattr(struct overlay *overlay, const struct node *node, const char *name,
		     const char *value, size_t size, int flags)
{
	bool is_capability = strcmp(name, CAPABILITY) == 0;
	int r;

	if (is_capability)
		count_capability(overlay, node->id);
	r = fs_outcome(
		store_setxattr(overlay_store(overlay), &node->locator, name, value, size, flags));
	if (is_capability)
		count_capability(overlay, node->id);
	return r;
}

void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size,
		 int flags)
{
	struct overlay *overlay = overlay_of(req);
	struct marks_change change = MARKS_CHANGE_NULL;
	struct node node;
	int r;

	r = overlay_find(overlay, ino, &node);
	if (r == 0 && node.flags & NODE_ENDED)
		r = -EOPNOTSUPP;
	if (r == 0) {
		marks_change_add_attr(&change, ino);
		marks_change_begin(overlay->marks, &change);
		r = set_xattr(overlay, &node, name, value, size, flags);
		if (r == 0 && overlay_request()->acl_kills_sgid)
			r = drop_sgid(overlay, &node);
		marks_change_end(overlay->marks, &change);
	}
	fs_reply_done(req, r);
}

void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	struct overlay *overlay = overlay_of(req);
	struct marks_change change = MARKS_CHANGE_NULL;
	struct node node;
	int r;

	r = overlay_find(overlay, ino, &node);
	if (r == 0 && node.flags & NODE_ENDED)
		r = -ENODATA;
	if (r == 0) {
		marks_change_add_attr(&change, ino);
		marks_change_begin(overlay->marks, &change);
		r = fs_outcome(store_removexattr(overlay_store(overlay), &node.locator, name));
		marks_change_end(overlay->marks, &change);
	}
	fs_reply_done(req, r);
}
