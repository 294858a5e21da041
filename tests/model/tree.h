/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * A file system in a flat piece of memory that processes share: inodes with generations,
 * names, files made of cells. Not thread-safe, and each call is atomic.
 *
 * A cell is 512 bytes that are all the same 64-bit number; eight make a block of 4 KiB.
 * A file has the blocks that are not all zero; offsets and sizes are multiples of a cell.
 */

#include <stdbool.h>
#include <stdint.h>

#include "fs/store/store.h"

enum {
	TREE_INODES_MAX = 160,
	TREE_ENTRIES_MAX = 320,
	TREE_BLOCKS_MAX = 160, /* of one file that are not zero */
	TREE_NAME_BYTES = 40,
	TREE_LINK_BYTES = 16,
	TREE_UNDO_MAX = 256,
	CELL_BYTES = 512,
	BLOCK_BYTES = 4096,
	BLOCK_CELLS = BLOCK_BYTES / CELL_BYTES,
};

struct tree_ref {
	uint32_t ino, generation; /* ino 0: none */
};

struct tree_block {
	uint32_t number;
	uint64_t cells[BLOCK_CELLS];
};

struct tree_inode {
	bool is_used;
	bool is_linkable; /* without a name because it never had one */
	uint32_t generation;
	mode_t mode;
	uint32_t nlink, uid, gid, holds;
	dev_t rdev;
	uint64_t size;
	uint64_t atime, mtime, ctime; /* ns */
	uint64_t xattr;		      /* the value of "user.x"; 0: none */
	uint32_t parent;	      /* of a directory */
	char link_target[TREE_LINK_BYTES];
	uint32_t block_count;
	struct tree_block blocks[TREE_BLOCKS_MAX]; /* in order */
};

struct tree_entry {
	uint32_t dir, ino; /* dir 0: free */
	char name[TREE_NAME_BYTES];
};

/* A block as it was before a write that is not durable yet. */
struct tree_undo {
	struct tree_ref object;
	struct tree_block before;
};

struct tree {
	uint64_t *clock; /* logical: grows with each change */
	uint32_t root;
	struct tree_inode inodes[TREE_INODES_MAX]; /* [0] is none */
	struct tree_entry entries[TREE_ENTRIES_MAX];
	unsigned entry_count; /* all beyond are free */
	unsigned blocks_max;  /* of one file; more is -ENOSPC */
	bool has_undo;
	unsigned undo_count; /* more than fit: nothing can be lost */
	struct tree_undo undo[TREE_UNDO_MAX];
};

enum op_kind {
	OP_CREATE,    /* dir, name, mode, uid, gid, rdev, link_target */
	OP_TMPFILE,   /* mode, uid, gid; comes held */
	OP_LINK,      /* object, dir, name */
	OP_RENAME,    /* dir, name, dir2, name2, flags */
	OP_UNLINK,    /* dir, name */
	OP_RMDIR,     /* dir, name */
	OP_SETATTR,   /* object, set */
	OP_WRITE,     /* object, offset, end, cells, is_stable */
	OP_FALLOCATE, /* object, offset, end, flags */
	OP_XATTR,     /* object, value */
	OP_KIND_MAX,
};

struct op {
	enum op_kind kind;
	struct tree_ref dir, dir2, object;
	char name[TREE_NAME_BYTES], name2[TREE_NAME_BYTES];
	unsigned flags;
	mode_t mode;
	uint32_t uid, gid;
	dev_t rdev;
	char link_target[TREE_LINK_BYTES];
	struct store_setattr set;
	uint64_t offset, end; /* bytes */
	uint64_t value;
	const uint64_t *cells; /* borrowed */
	bool is_stable;
};

void tree_init(struct tree *tree, uint64_t *clock, bool has_undo);

/* NULL: stale. */
struct tree_inode *tree_find(struct tree *tree, struct tree_ref ref);
struct tree_ref tree_ref_of(const struct tree *tree, uint32_t ino);
/* 0, or -ENOENT, -ESTALE, -ENOTDIR. */
int tree_lookup(struct tree *tree, struct tree_ref dir, const char *name, struct tree_ref *ret_ref);
/* 0 or negative errno. @ret_ref: of CREATE and TMPFILE, may be NULL otherwise. */
int tree_apply(struct tree *tree, const struct op *op, struct tree_ref *ret_ref);

void tree_hold(struct tree *tree, struct tree_ref ref);
void tree_release(struct tree *tree, struct tree_ref ref);
/* Everybody who held something has died. */
void tree_release_all(struct tree *tree);

uint64_t tree_cell(const struct tree_inode *inode, uint64_t index);
const struct tree_block *tree_block(const struct tree_inode *inode, uint32_t number);
/* The first entry of @dir at or after index @from; NULL: no more. */
const struct tree_entry *tree_entry_next(const struct tree *tree, uint32_t dir, unsigned from);

/* A commit: what was written is durable. */
void tree_commit(struct tree *tree);
/* A restart: each write that was not durable is lost by even chance. */
void tree_lose(struct tree *tree, uint64_t (*random)(uint64_t n));

struct timespec tree_time(uint64_t ns);
const char *tree_op_text(const struct op *op, char text[static 160]);
