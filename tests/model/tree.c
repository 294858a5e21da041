/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/model/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <string.h>

#include "util/attr.h"

static uint64_t tick(struct tree *t)
{
	return *t->clock += 1000;
}

void tree_init(struct tree *t, uint64_t *clock, bool has_undo)
{
	struct tree_inode *root;

	t->clock = clock;
	t->has_undo = has_undo;
	t->blocks_max = TREE_BLOCKS_MAX;
	t->undo_count = 0;
	t->entry_count = 0;
	for (unsigned i = 0; i < TREE_ENTRIES_MAX; i++)
		t->entries[i].dir = 0;
	for (unsigned i = 0; i < TREE_INODES_MAX; i++)
		t->inodes[i].is_used = false;
	t->root = 1;
	root = &t->inodes[t->root];
	*root = (struct tree_inode){ .is_used = true, .mode = S_IFDIR | 0755, .nlink = 2 };
	root->generation = 1;
	root->parent = t->root;
	root->atime = root->mtime = root->ctime = tick(t);
}

struct tree_inode *tree_find(struct tree *t, struct tree_ref ref)
{
	struct tree_inode *inode = &t->inodes[ref.ino];

	assert(ref.ino < TREE_INODES_MAX);
	if (ref.ino == 0 || !inode->is_used || inode->generation != ref.generation ||
	    (inode->nlink == 0 && inode->holds == 0))
		return NULL;
	return inode;
}

struct tree_ref tree_ref_of(const struct tree *t, uint32_t ino)
{
	return (struct tree_ref){ .ino = ino, .generation = t->inodes[ino].generation };
}

static struct tree_inode *find_dir(struct tree *t, struct tree_ref ref, int *ret_error)
{
	struct tree_inode *inode = tree_find(t, ref);

	if (inode && S_ISDIR(inode->mode) && inode->nlink > 0)
		return inode;
	*ret_error = inode && !S_ISDIR(inode->mode) ? -ENOTDIR : -ESTALE;
	return NULL;
}

static struct tree_entry *find_entry(struct tree *t, uint32_t dir, const char *name)
{
	for (unsigned i = 0; i < t->entry_count; i++)
		if (t->entries[i].dir == dir && strcmp(t->entries[i].name, name) == 0)
			return &t->entries[i];
	return NULL;
}

const struct tree_entry *tree_entry_next(const struct tree *t, uint32_t dir, unsigned from)
{
	for (unsigned i = from; i < t->entry_count; i++)
		if (t->entries[i].dir == dir)
			return &t->entries[i];
	return NULL;
}

int tree_lookup(struct tree *t, struct tree_ref dir, const char *name, struct tree_ref *ret_ref)
{
	struct tree_entry *entry;
	int r = 0;

	if (!find_dir(t, dir, &r))
		return r;
	entry = find_entry(t, dir.ino, name);
	if (!entry)
		return -ENOENT;
	*ret_ref = tree_ref_of(t, entry->ino);
	return 0;
}

/* ---- data ---------------------------------------------------------------- */

static unsigned block_index(const struct tree_inode *inode, uint32_t number)
{
	unsigned i = 0;

	while (i < inode->block_count && inode->blocks[i].number < number)
		i++;
	return i;
}

const struct tree_block *tree_block(const struct tree_inode *inode, uint32_t number)
{
	unsigned i = block_index(inode, number);

	return i < inode->block_count && inode->blocks[i].number == number ? &inode->blocks[i]
									   : NULL;
}

uint64_t tree_cell(const struct tree_inode *inode, uint64_t index)
{
	const struct tree_block *block = tree_block(inode, (uint32_t)(index / BLOCK_CELLS));

	return block ? block->cells[index % BLOCK_CELLS] : 0;
}

static int put_cell(const struct tree *t, struct tree_inode *inode, uint64_t index, uint64_t value)
{
	uint32_t number = (uint32_t)(index / BLOCK_CELLS);
	unsigned i = block_index(inode, number);

	if (i == inode->block_count || inode->blocks[i].number != number) {
		if (value == 0)
			return 0;
		if (inode->block_count == t->blocks_max)
			return -ENOSPC;
		memmove(&inode->blocks[i + 1], &inode->blocks[i],
			(inode->block_count - i) * sizeof(inode->blocks[0]));
		inode->block_count++;
		inode->blocks[i] = (struct tree_block){ .number = number };
	}
	inode->blocks[i].cells[index % BLOCK_CELLS] = value;
	return 0;
}

static void drop_zero_blocks(struct tree_inode *inode)
{
	static const uint64_t zero[BLOCK_CELLS];
	unsigned to = 0;

	for (unsigned i = 0; i < inode->block_count; i++)
		if (memcmp(inode->blocks[i].cells, zero, sizeof(zero)) != 0)
			inode->blocks[to++] = inode->blocks[i];
	inode->block_count = to;
}

static void zero_cells(struct tree_inode *inode, uint64_t from, uint64_t to)
{
	for (unsigned i = 0; i < inode->block_count; i++)
		for (unsigned c = 0; c < BLOCK_CELLS; c++) {
			uint64_t index = (uint64_t)inode->blocks[i].number * BLOCK_CELLS + c;

			if (index >= from && index < to)
				inode->blocks[i].cells[c] = 0;
		}
	drop_zero_blocks(inode);
}

static void set_size(struct tree_inode *inode, uint64_t size)
{
	assert(size % CELL_BYTES == 0);
	if (size < inode->size)
		zero_cells(inode, size / CELL_BYTES, UINT64_MAX);
	inode->size = size;
}

/* Remembers the block as it is before an unstable write; a stable one needs no memory. */
static void note_undo(struct tree *t, struct tree_ref object, const struct tree_inode *inode,
		      uint32_t number, bool is_stable)
{
	const struct tree_block *block = tree_block(inode, number);
	unsigned to = 0;
	bool is_noted = false;

	if (!t->has_undo || t->undo_count > TREE_UNDO_MAX)
		return;
	for (unsigned i = 0; i < t->undo_count; i++) {
		struct tree_undo *undo = &t->undo[i];
		bool is_it = undo->object.ino == object.ino &&
			     undo->object.generation == object.generation &&
			     undo->before.number == number;

		if (is_it && is_stable)
			continue;
		is_noted |= is_it;
		t->undo[to++] = *undo;
	}
	t->undo_count = to;
	if (is_stable || is_noted)
		return;
	if (t->undo_count == TREE_UNDO_MAX) {
		t->undo_count++;
		return;
	}
	t->undo[t->undo_count] = (struct tree_undo){ .object = object };
	if (block)
		t->undo[t->undo_count].before = *block;
	t->undo[t->undo_count].before.number = number;
	t->undo_count++;
}

/* What has been cut or punched stays so: no write before it comes back. */
static void drop_undo(struct tree *t, struct tree_ref object)
{
	unsigned to = 0;

	if (t->undo_count > TREE_UNDO_MAX)
		return;
	for (unsigned i = 0; i < t->undo_count; i++)
		if (t->undo[i].object.ino != object.ino)
			t->undo[to++] = t->undo[i];
	t->undo_count = to;
}

void tree_commit(struct tree *t)
{
	t->undo_count = 0;
}

void tree_lose(struct tree *t, uint64_t (*random)(uint64_t n))
{
	if (t->undo_count > TREE_UNDO_MAX)
		t->undo_count = 0;
	for (unsigned i = 0; i < t->undo_count; i++) {
		struct tree_inode *inode = tree_find(t, t->undo[i].object);
		const struct tree_block *before = &t->undo[i].before;

		if (!inode || random(2) == 0)
			continue;
		for (unsigned c = 0; c < BLOCK_CELLS; c++) {
			uint64_t index = (uint64_t)before->number * BLOCK_CELLS + c;

			if (index < inode->size / CELL_BYTES)
				(void)put_cell(t, inode, index,
					       before->cells[c]); /* full: a loss as well */
		}
		drop_zero_blocks(inode);
	}
	t->undo_count = 0;
}

static int write_cells(struct tree *t, struct tree_inode *inode, const struct op *op)
{
	uint64_t from = op->offset / CELL_BYTES, to = op->end / CELL_BYTES;
	int r = 0;

	for (uint64_t b = from / BLOCK_CELLS; b * BLOCK_CELLS < to; b++)
		note_undo(t, op->object, inode, (uint32_t)b, op->is_stable);
	for (uint64_t i = from; i < to && r == 0; i++) {
		r = put_cell(t, inode, i, op->cells[i - from]);
		if (r == 0 && (i + 1) * CELL_BYTES > inode->size)
			inode->size = (i + 1) * CELL_BYTES;
	}
	drop_zero_blocks(inode);
	return r;
}

static int collapse(struct tree_inode *inode, uint64_t offset, uint64_t length)
{
	uint64_t from = offset / BLOCK_BYTES, count = length / BLOCK_BYTES;

	if (offset % BLOCK_BYTES || length % BLOCK_BYTES || offset + length >= inode->size)
		return -EINVAL;
	zero_cells(inode, from * BLOCK_CELLS, (from + count) * BLOCK_CELLS);
	for (unsigned i = 0; i < inode->block_count; i++)
		if (inode->blocks[i].number >= from)
			inode->blocks[i].number -= (uint32_t)count;
	inode->size -= length;
	return 0;
}

static int insert(struct tree_inode *inode, uint64_t offset, uint64_t length)
{
	if (offset % BLOCK_BYTES || length % BLOCK_BYTES || offset >= inode->size)
		return -EINVAL;
	for (unsigned i = 0; i < inode->block_count; i++)
		if (inode->blocks[i].number >= offset / BLOCK_BYTES)
			inode->blocks[i].number += (uint32_t)(length / BLOCK_BYTES);
	inode->size += length;
	return 0;
}

static int allocate(struct tree_inode *inode, const struct op *op)
{
	switch (op->flags & ~(unsigned)FALLOC_FL_KEEP_SIZE) {
	case 0:
		if (!(op->flags & FALLOC_FL_KEEP_SIZE) && op->end > inode->size)
			inode->size = op->end;
		return 0;
	case FALLOC_FL_PUNCH_HOLE:
	case FALLOC_FL_ZERO_RANGE:
		zero_cells(inode, op->offset / CELL_BYTES, op->end / CELL_BYTES);
		if (!(op->flags & FALLOC_FL_KEEP_SIZE) && op->end > inode->size)
			inode->size = op->end;
		return 0;
	case FALLOC_FL_COLLAPSE_RANGE:
		return collapse(inode, op->offset, op->end - op->offset);
	case FALLOC_FL_INSERT_RANGE:
		return insert(inode, op->offset, op->end - op->offset);
	default:
		return -EOPNOTSUPP;
	}
}

static int change_file(struct tree *t, const struct op *op)
{
	struct tree_inode *inode = tree_find(t, op->object);
	int r;

	if (!inode)
		return -ESTALE;
	if (!S_ISREG(inode->mode))
		return -EINVAL;
	if (op->kind == OP_FALLOCATE)
		drop_undo(t, op->object);
	r = op->kind == OP_WRITE ? write_cells(t, inode, op) : allocate(inode, op);
	inode->mtime = inode->ctime = tick(t);
	return r;
}

/* ---- attributes ---------------------------------------------------------- */

static uint64_t ns_of(struct timespec time)
{
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

struct timespec tree_time(uint64_t ns)
{
	return (struct timespec){ .tv_sec = (time_t)(ns / 1000000000),
				  .tv_nsec = (long)(ns % 1000000000) };
}

static int set_attr(struct tree *t, const struct op *op)
{
	struct tree_inode *inode = tree_find(t, op->object);
	const struct store_setattr *set = &op->set;

	if (!inode)
		return -ESTALE;
	inode->ctime = tick(t);
	if (set->valid & STORE_SET_SIZE) {
		if (!S_ISREG(inode->mode))
			return -EINVAL;
		drop_undo(t, op->object);
		set_size(inode, set->size);
		inode->mtime = inode->ctime;
	}
	if (set->valid & STORE_SET_UID)
		inode->uid = set->uid;
	if (set->valid & STORE_SET_GID)
		inode->gid = set->gid;
	if (set->valid & STORE_SET_MODE && S_ISLNK(inode->mode))
		return -EOPNOTSUPP;
	if (set->valid & STORE_SET_MODE)
		inode->mode = (inode->mode & S_IFMT) | (set->mode & 07777);
	if (set->valid & STORE_SET_ATIME)
		inode->atime = ns_of(set->atime);
	if (set->valid & STORE_SET_MTIME)
		inode->mtime = ns_of(set->mtime);
	return 0;
}

static int set_xattr(struct tree *t, const struct op *op)
{
	struct tree_inode *inode = tree_find(t, op->object);

	if (!inode)
		return -ESTALE;
	if (op->value == 0 && inode->xattr == 0)
		return -ENODATA;
	inode->xattr = op->value;
	inode->ctime = tick(t);
	return 0;
}

/* ---- inodes and names ---------------------------------------------------- */

static void free_if_dead(struct tree_inode *inode)
{
	if (inode->nlink == 0 && inode->holds == 0)
		inode->is_used = false;
}

void tree_hold(struct tree *t, struct tree_ref ref)
{
	struct tree_inode *inode = tree_find(t, ref);

	assert(inode);
	inode->holds++;
}

void tree_release(struct tree *t, struct tree_ref ref)
{
	struct tree_inode *inode = tree_find(t, ref);

	assert(inode && inode->holds > 0);
	inode->holds--;
	free_if_dead(inode);
}

void tree_release_all(struct tree *t)
{
	for (unsigned i = 1; i < TREE_INODES_MAX; i++) {
		if (!t->inodes[i].is_used)
			continue;
		t->inodes[i].holds = 0;
		free_if_dead(&t->inodes[i]);
	}
}

static struct tree_inode *make_inode(struct tree *t, const struct op *op)
{
	for (unsigned i = 2; i < TREE_INODES_MAX; i++) {
		struct tree_inode *inode = &t->inodes[i];
		uint32_t generation = inode->generation + 1;

		if (inode->is_used)
			continue;
		/* The blocks need no zeros: block_count says how many there are. */
		memset(inode, 0, offsetof(struct tree_inode, blocks));
		inode->is_used = true;
		inode->generation = generation;
		inode->mode = S_ISLNK(op->mode) ? S_IFLNK | 0777 : op->mode;
		inode->uid = op->uid;
		inode->gid = op->gid;
		inode->rdev = op->rdev;
		memcpy(inode->link_target, op->link_target, TREE_LINK_BYTES);
		if (S_ISLNK(op->mode))
			inode->size = strlen(op->link_target);
		inode->atime = inode->mtime = inode->ctime = tick(t);
		return inode;
	}
	return NULL;
}

static int add_entry(struct tree *t, uint32_t dir, const char *name, uint32_t ino)
{
	assert(strlen(name) < TREE_NAME_BYTES);
	for (unsigned i = 0; i < TREE_ENTRIES_MAX; i++) {
		struct tree_entry *entry = &t->entries[i];

		if (entry->dir)
			continue;
		entry->dir = dir;
		entry->ino = ino;
		memcpy(entry->name, name, strlen(name) + 1);
		if (i >= t->entry_count)
			t->entry_count = i + 1;
		return 0;
	}
	return -ENOSPC;
}

static uint32_t ino_of(const struct tree *t, const struct tree_inode *inode)
{
	return (uint32_t)(inode - t->inodes);
}

static void touch_dir(struct tree *t, struct tree_inode *dir)
{
	dir->mtime = dir->ctime = tick(t);
}

static int create(struct tree *t, const struct op *op, struct tree_ref *ret_ref)
{
	struct tree_inode *inode, *dir;
	int r = 0;

	dir = find_dir(t, op->dir, &r);
	if (!dir)
		return r;
	if (find_entry(t, op->dir.ino, op->name))
		return -EEXIST;
	inode = make_inode(t, op);
	if (!inode)
		return -ENOSPC;
	r = add_entry(t, op->dir.ino, op->name, ino_of(t, inode));
	if (r < 0) {
		inode->is_used = false;
		return r;
	}
	inode->nlink = 1;
	if (S_ISDIR(op->mode)) {
		inode->nlink = 2;
		inode->parent = op->dir.ino;
		dir->nlink++;
	}
	touch_dir(t, dir);
	*ret_ref = tree_ref_of(t, ino_of(t, inode));
	return 0;
}

static int make_tmpfile(struct tree *t, const struct op *op, struct tree_ref *ret_ref)
{
	struct tree_inode *inode = make_inode(t, op);

	if (!inode)
		return -ENOSPC;
	inode->holds = 1;
	inode->is_linkable = true;
	*ret_ref = tree_ref_of(t, ino_of(t, inode));
	return 0;
}

static int make_link(struct tree *t, const struct op *op)
{
	struct tree_inode *inode = tree_find(t, op->object), *dir;
	int r = 0;

	if (!inode)
		return -ESTALE;
	if (S_ISDIR(inode->mode))
		return -EPERM;
	if (inode->nlink == 0 && !inode->is_linkable)
		return -ENOENT;
	dir = find_dir(t, op->dir, &r);
	if (!dir)
		return r;
	if (find_entry(t, op->dir.ino, op->name))
		return -EEXIST;
	r = add_entry(t, op->dir.ino, op->name, op->object.ino);
	if (r < 0)
		return r;
	inode->nlink++;
	inode->is_linkable = false;
	inode->ctime = tick(t);
	touch_dir(t, dir);
	return 0;
}

static bool is_empty(const struct tree *t, uint32_t dir)
{
	return !tree_entry_next(t, dir, 0);
}

/* Takes one name away from @inode, whose entry is gone or goes. */
static void drop_link(struct tree *t, struct tree_inode *inode)
{
	inode->nlink = S_ISDIR(inode->mode) ? 0 : inode->nlink - 1;
	inode->ctime = tick(t);
	free_if_dead(inode);
}

static int remove_name(struct tree *t, const struct op *op)
{
	struct tree_inode *inode, *dir;
	struct tree_entry *entry;
	int r = 0;

	dir = find_dir(t, op->dir, &r);
	if (!dir)
		return r;
	entry = find_entry(t, op->dir.ino, op->name);
	if (!entry)
		return -ENOENT;
	inode = &t->inodes[entry->ino];
	if (op->kind == OP_UNLINK && S_ISDIR(inode->mode))
		return -EISDIR;
	if (op->kind == OP_RMDIR && !S_ISDIR(inode->mode))
		return -ENOTDIR;
	if (op->kind == OP_RMDIR && !is_empty(t, entry->ino))
		return -ENOTEMPTY;
	entry->dir = 0;
	if (S_ISDIR(inode->mode))
		dir->nlink--;
	drop_link(t, inode);
	touch_dir(t, dir);
	return 0;
}

static bool is_below(const struct tree *t, uint32_t ino, uint32_t above)
{
	for (;; ino = t->inodes[ino].parent) {
		if (ino == above)
			return true;
		if (ino == t->root)
			return false;
	}
}

static void reparent(struct tree *t, struct tree_inode *inode, struct tree_inode *from,
		     struct tree_inode *to)
{
	if (!S_ISDIR(inode->mode))
		return;
	inode->parent = ino_of(t, to);
	from->nlink--;
	to->nlink++;
}

static int check_replaced(const struct tree *t, const struct tree_inode *moved, uint32_t ino)
{
	const struct tree_inode *replaced = &t->inodes[ino];

	if (S_ISDIR(moved->mode) && !S_ISDIR(replaced->mode))
		return -ENOTDIR;
	if (!S_ISDIR(moved->mode) && S_ISDIR(replaced->mode))
		return -EISDIR;
	if (S_ISDIR(replaced->mode) && !is_empty(t, ino))
		return -ENOTEMPTY;
	return 0;
}

static int rename_name(struct tree *t, const struct op *op)
{
	struct tree_inode *from, *to, *moved, *other = NULL;
	struct tree_entry *entry, *there;
	int r = 0;

	from = find_dir(t, op->dir, &r);
	to = from ? find_dir(t, op->dir2, &r) : NULL;
	if (!to)
		return r;
	entry = find_entry(t, op->dir.ino, op->name);
	there = find_entry(t, op->dir2.ino, op->name2);
	if (!entry || (op->flags == RENAME_EXCHANGE && !there))
		return -ENOENT;
	if (there && op->flags == RENAME_NOREPLACE)
		return -EEXIST;
	moved = &t->inodes[entry->ino];
	if (there)
		other = &t->inodes[there->ino];
	if (S_ISDIR(moved->mode) && is_below(t, op->dir2.ino, entry->ino))
		return -EINVAL;
	if (op->flags == RENAME_EXCHANGE && S_ISDIR(other->mode) &&
	    is_below(t, op->dir.ino, there->ino))
		return -EINVAL;
	if (there && there->ino == entry->ino)
		return 0; /* two names of one object: nothing happens, as POSIX will have it */

	if (op->flags == RENAME_EXCHANGE) {
		uint32_t ino = entry->ino;

		entry->ino = there->ino;
		there->ino = ino;
		reparent(t, moved, from, to);
		reparent(t, other, to, from);
		other->ctime = tick(t);
	} else {
		if (there) {
			r = check_replaced(t, moved, there->ino);
			if (r < 0)
				return r;
			if (S_ISDIR(other->mode))
				to->nlink--;
			there->dir = 0;
			drop_link(t, other);
		}
		entry->dir = op->dir2.ino;
		memcpy(entry->name, op->name2, TREE_NAME_BYTES);
		reparent(t, moved, from, to);
	}
	moved->ctime = tick(t);
	touch_dir(t, from);
	touch_dir(t, to);
	return 0;
}

int tree_apply(struct tree *t, const struct op *op, struct tree_ref *ret_ref)
{
	switch (op->kind) {
	case OP_CREATE:
		return create(t, op, ret_ref);
	case OP_TMPFILE:
		return make_tmpfile(t, op, ret_ref);
	case OP_LINK:
		return make_link(t, op);
	case OP_RENAME:
		return rename_name(t, op);
	case OP_UNLINK:
	case OP_RMDIR:
		return remove_name(t, op);
	case OP_SETATTR:
		return set_attr(t, op);
	case OP_WRITE:
	case OP_FALLOCATE:
		return change_file(t, op);
	case OP_XATTR:
		return set_xattr(t, op);
	case OP_KIND_MAX:
		break;
	}
	assert(false);
	return -EINVAL;
}

/* ---- for traces ---------------------------------------------------------- */

const char *tree_op_text(const struct op *op, char text[static 160])
{
	switch (op->kind) {
	case OP_CREATE:
		(void)snprintf(text, 160, "create %u/%s mode %o", op->dir.ino, op->name, op->mode);
		break;
	case OP_TMPFILE:
		(void)snprintf(text, 160, "tmpfile");
		break;
	case OP_LINK:
		(void)snprintf(text, 160, "link %u to %u/%s", op->object.ino, op->dir.ino,
			       op->name);
		break;
	case OP_RENAME:
		(void)snprintf(text, 160, "rename %u/%s to %u/%s flags %u", op->dir.ino, op->name,
			       op->dir2.ino, op->name2, op->flags);
		break;
	case OP_UNLINK:
	case OP_RMDIR:
		(void)snprintf(text, 160, "%s %u/%s", op->kind == OP_UNLINK ? "unlink" : "rmdir",
			       op->dir.ino, op->name);
		break;
	case OP_SETATTR:
		(void)snprintf(text, 160,
			       "setattr %u valid %x size %llu mode %o uid %u mtime %llu.%ld",
			       op->object.ino, op->set.valid, (unsigned long long)op->set.size,
			       op->set.mode, op->set.uid, (unsigned long long)op->set.mtime.tv_sec,
			       op->set.mtime.tv_nsec);
		break;
	case OP_WRITE:
		(void)snprintf(text, 160, "write %u [%llu, %llu) first %llu%s", op->object.ino,
			       (unsigned long long)op->offset, (unsigned long long)op->end,
			       (unsigned long long)op->cells[0], op->is_stable ? " stable" : "");
		break;
	case OP_FALLOCATE:
		(void)snprintf(text, 160, "fallocate %u mode %u [%llu, %llu)", op->object.ino,
			       op->flags, (unsigned long long)op->offset,
			       (unsigned long long)op->end);
		break;
	case OP_XATTR:
		(void)snprintf(text, 160, "xattr %u %llu", op->object.ino,
			       (unsigned long long)op->value);
		break;
	case OP_KIND_MAX:
		text[0] = '\0';
		break;
	}
	return text;
}
