/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "tests/lib/testlib.h"
#include "tests/lib/writer_model.h"

const char *const model_xattr_names[MODEL_XATTRS] = { "user.one", "user.two", "trusted.three" };

const char *const op_names[OP_MAX] = {
	[OP_CREATE] = "create",	    [OP_TMPFILE] = "tmpfile",	[OP_WRITE] = "write",
	[OP_TRUNCATE] = "truncate", [OP_ZERO] = "zero",		[OP_EXTEND] = "extend",
	[OP_COLLAPSE] = "collapse", [OP_INSERT] = "insert",	[OP_COPY] = "copy",
	[OP_RENAME] = "rename",	    [OP_EXCHANGE] = "exchange", [OP_LINK] = "link",
	[OP_UNLINK] = "unlink",	    [OP_CHMOD] = "chmod",	[OP_CHOWN] = "chown",
	[OP_UTIMES] = "utimes",	    [OP_SETXATTR] = "setxattr", [OP_REMOVEXATTR] = "removexattr",
	[OP_ADOPT] = "adopt",	    [OP_SETBYTES] = "setbytes", [OP_MTIME] = "mtime",
};

/* ---- nodes ------------------------------------------------------------------ */

static struct model_node *node_new(struct model *model, const struct op *op)
{
	struct model_node *node = xcalloc(1, sizeof(*node));

	if ((model->node_count & (model->node_count + 1)) == 0)
		model->nodes =
			xrealloc(model->nodes, (2 * (size_t)model->node_count + 2) * sizeof(node));
	node->id = model->node_count;
	node->mode = op->mode;
	node->uid = op->uid;
	node->gid = op->gid;
	model->nodes[model->node_count++] = node;
	return node;
}

void model_init(struct model *model)
{
	struct op dir = { .mode = S_IFDIR | 0777 };

	*model = (struct model){ 0 };
	node_new(model, &dir);
	node_new(model, &dir)->is_partial = true;
}

void model_done(struct model *model)
{
	struct model_node *node;
	uint32_t i;
	size_t k;

	for (i = 0; i < model->node_count; i++) {
		node = model->nodes[i];
		for (k = 0; k < node->entry_count; k++)
			free(node->entries[k].name);
		free(node->entries);
		free(node->bytes);
		free(node->xattr);
		free(node);
	}
	free(model->nodes);
	*model = (struct model){ 0 };
}

static struct model_node *node_of(const struct model *model, uint32_t id)
{
	if (id >= model->node_count)
		die(TEST_TROUBLE, "the record speaks of object %u, which it never made", id);
	return model->nodes[id];
}

/* ---- entries ---------------------------------------------------------------- */

static struct model_entry *find_entry(const struct model_node *dir, const char *name)
{
	size_t i;

	for (i = 0; i < dir->entry_count; i++)
		if (strcmp(dir->entries[i].name, name) == 0)
			return &dir->entries[i];
	return NULL;
}

struct model_node *model_find(const struct model_node *dir, const char *name)
{
	struct model_entry *entry = find_entry(dir, name);

	return entry ? entry->node : NULL;
}

static void entry_add(struct model_node *dir, const char *name, struct model_node *node)
{
	if ((dir->entry_count & (dir->entry_count + 1)) == 0)
		dir->entries =
			xrealloc(dir->entries, (2 * dir->entry_count + 2) * sizeof(*dir->entries));
	dir->entries[dir->entry_count++] = (struct model_entry){ xstrdup(name), node };
	node->nlink++;
	node->is_linkable = false;
	if (S_ISDIR(node->mode))
		node->parent = dir;
	dir->has_mtime = false;
}

static struct model_node *entry_remove(struct model_node *dir, const char *name)
{
	struct model_entry *entry = find_entry(dir, name);
	struct model_node *node;

	if (!entry)
		die(TEST_TROUBLE, "the record removes '%s', which is not there", escaped(name));
	node = entry->node;
	free(entry->name);
	*entry = dir->entries[--dir->entry_count];
	node->nlink--;
	dir->has_mtime = false;
	return node;
}

bool model_is_below(const struct model_node *node, const struct model_node *dir)
{
	for (; node; node = node->parent)
		if (node == dir)
			return true;
	return false;
}

static const char *name_in_parent(const struct model_node *dir)
{
	size_t i;

	for (i = 0; i < dir->parent->entry_count; i++)
		if (dir->parent->entries[i].node == dir)
			return dir->parent->entries[i].name;
	return NULL;
}

bool model_path(const struct model *model, const struct model_node *dir, const char *name,
		const char *own, const char *shared, char *path, size_t size)
{
	char longer[PATH_MAX], so_far[PATH_MAX] = "";
	const struct model_node *d;

	if (name)
		strcpy(so_far, name);
	for (d = dir; d->parent; d = d->parent) {
		if (snprintf(longer, sizeof(longer), "%s%s%s", name_in_parent(d),
			     *so_far ? "/" : "", so_far) >= (int)sizeof(longer))
			return false;
		strcpy(so_far, longer);
	}
	return snprintf(path, size, "%s%s%s", d == model->nodes[MODEL_SHARED] ? shared : own,
			*so_far ? "/" : "", so_far) < (int)size;
}

/* ---- bytes ------------------------------------------------------------------ */

static void resize(struct model_node *node, size_t size)
{
	if (size > node->size) {
		node->bytes = xrealloc(node->bytes, size);
		memset(node->bytes + node->size, 0, size - node->size);
	}
	node->size = size;
	node->has_mtime = false;
}

static void set_bytes(struct model_node *node, const void *bytes, size_t size)
{
	resize(node, 0);
	resize(node, size);
	if (size > 0)
		memcpy(node->bytes, bytes, size);
}

static void apply_bytes(struct model *model, struct model_node *node, const struct op *op,
			int64_t result)
{
	const struct model_node *from;
	uint64_t end = op->offset + op->length;

	node->has_mtime = false;
	switch (op->kind) {
	case OP_WRITE:
		end = op->offset + (uint64_t)result;
		if (result > 0 && end > node->size)
			resize(node, end);
		if (result > 0)
			fill_bytes(node->bytes + op->offset, (size_t)result, op->seed, 0);
		break;
	case OP_TRUNCATE:
		resize(node, op->length);
		break;
	case OP_ZERO:
		if (end > node->size)
			end = node->size;
		if (op->offset < end)
			memset(node->bytes + op->offset, 0, end - op->offset);
		break;
	case OP_EXTEND:
		if (op->length > node->size)
			resize(node, op->length);
		break;
	case OP_COLLAPSE:
		memmove(node->bytes + op->offset, node->bytes + end, node->size - end);
		resize(node, node->size - op->length);
		break;
	case OP_INSERT:
		resize(node, node->size + op->length);
		memmove(node->bytes + end, node->bytes + op->offset, node->size - end);
		memset(node->bytes + op->offset, 0, op->length);
		break;
	case OP_COPY:
		from = node_of(model, op->node2);
		end = op->offset + (uint64_t)result;
		if (result > 0 && end > node->size)
			resize(node, end);
		if (result > 0)
			memmove(node->bytes + op->offset, from->bytes + op->offset2,
				(size_t)result);
		break;
	}
}

/* ---- the rest --------------------------------------------------------------- */

static void apply_rename(struct model *model, const struct op *op)
{
	struct model_node *from = node_of(model, op->dir), *to = node_of(model, op->dir2);
	struct model_node *node = model_find(from, op->name), *over = model_find(to, op->name2);

	if (node == over) /* two names of one object: nothing happens */
		return;
	if (over)
		entry_remove(to, op->name2);
	node = entry_remove(from, op->name);
	entry_add(to, op->name2, node);
}

static void apply_exchange(struct model *model, const struct op *op)
{
	struct model_node *a_dir = node_of(model, op->dir), *b_dir = node_of(model, op->dir2);
	struct model_node *a = entry_remove(a_dir, op->name), *b = entry_remove(b_dir, op->name2);

	entry_add(a_dir, op->name, b);
	entry_add(b_dir, op->name2, a);
}

/* As chown(2) does, for root too. */
static void apply_chown(struct model_node *node, const struct op *op)
{
	node->uid = op->uid;
	node->gid = op->gid;
	if (S_ISDIR(node->mode) || S_ISLNK(node->mode))
		return;
	node->mode &= ~(mode_t)S_ISUID;
	if (node->mode & S_IXGRP)
		node->mode &= ~(mode_t)S_ISGID;
}

static void apply_xattr(struct model_node *node, const struct op *op)
{
	struct model_xattr *xattr;

	if (!node->xattr)
		node->xattr = xcalloc(MODEL_XATTRS, sizeof(*node->xattr));
	xattr = &node->xattr[op->mode % MODEL_XATTRS];
	xattr->is_set = op->kind == OP_SETXATTR;
	xattr->size = (uint32_t)op->length;
	if (xattr->is_set)
		fill_bytes(xattr->value, xattr->size, op->seed, 0);
}

void model_link_target(uint64_t seed, size_t length, char target[static MODEL_LINK_BYTES_MAX + 1])
{
	size_t i;

	fill_bytes(target, length, seed, 0);
	for (i = 0; i < length; i++)
		if (target[i] == '\0')
			target[i] = '/';
	target[length] = '\0';
}

static void apply_create(struct model *model, const struct op *op, const void *bytes)
{
	struct model_node *node = node_new(model, op);
	char target[MODEL_LINK_BYTES_MAX + 1];

	if (S_ISLNK(op->mode)) {
		model_link_target(op->seed, op->length, target);
		set_bytes(node, target, op->length);
	}
	if (op->kind == OP_ADOPT)
		set_bytes(node, bytes, op->length);
	node->is_linkable = op->kind == OP_TMPFILE;
	if (op->kind != OP_TMPFILE)
		entry_add(node_of(model, op->dir), op->name, node);
}

void model_apply(struct model *model, const struct op *op, int64_t result, const void *bytes)
{
	struct model_node *node = NULL;

	if (op->kind != OP_CREATE && op->kind != OP_TMPFILE && op->kind != OP_ADOPT)
		node = node_of(model, op->node);
	switch ((enum op_kind)op->kind) {
	case OP_CREATE:
	case OP_TMPFILE:
	case OP_ADOPT:
		apply_create(model, op, bytes);
		break;
	case OP_RENAME:
		apply_rename(model, op);
		break;
	case OP_EXCHANGE:
		apply_exchange(model, op);
		break;
	case OP_LINK:
		entry_add(node_of(model, op->dir), op->name, node);
		break;
	case OP_UNLINK:
		entry_remove(node_of(model, op->dir), op->name);
		break;
	case OP_CHMOD:
		node->mode = (node->mode & S_IFMT) | op->mode;
		break;
	case OP_CHOWN:
		apply_chown(node, op);
		break;
	case OP_UTIMES:
	case OP_MTIME:
		node->mtime = (struct timespec){ op->mtime_s, op->mtime_ns };
		node->has_mtime = true;
		break;
	case OP_SETXATTR:
	case OP_REMOVEXATTR:
		apply_xattr(node, op);
		break;
	case OP_SETBYTES:
		set_bytes(node, bytes, op->length);
		break;
	default:
		apply_bytes(model, node, op, result);
	}
}
