/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * What a writer believes is in its directories: every object, with its bytes, built by
 * the operations that were acknowledged, one after the other. Built alike by the
 * writer as it goes and, from its record, by whoever checks.
 *
 * An operation (struct op) is one change that the file system makes or does not make.
 * Objects are numbered in the order of their creation; 0 is the writer's own
 * directory, 1 the shared one, of which only the names that are ours are known.
 */

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

#include "util/attr.h"

enum {
	MODEL_FILE_BYTES_MAX = 768 * 1024, /* memory, and time to compare */
	MODEL_LINK_BYTES_MAX = 1000,
	MODEL_XATTRS = 3,
	MODEL_XATTR_BYTES_MAX = 200,
	MODEL_OWN = 0,
	MODEL_SHARED = 1,
	MODEL_NONE = -1,
};

enum op_kind {
	OP_CREATE,	/* dir, name, mode (with type), uid, gid; seed, length: symlink's target */
	OP_TMPFILE,	/* mode, uid, gid: an object without a name */
	OP_WRITE,	/* node, offset, length, seed */
	OP_TRUNCATE,	/* node, length */
	OP_ZERO,	/* node, offset, length: zeros; the size stays */
	OP_EXTEND,	/* node, length: the size is at least that */
	OP_COLLAPSE,	/* node, offset, length */
	OP_INSERT,	/* node, offset, length */
	OP_COPY,	/* node <- node2, offset <- offset2, length */
	OP_RENAME,	/* dir, name -> dir2, name2 */
	OP_EXCHANGE,	/* dir, name <-> dir2, name2 */
	OP_LINK,	/* node -> dir, name */
	OP_UNLINK,	/* dir, name; rmdir too */
	OP_CHMOD,	/* node, mode */
	OP_CHOWN,	/* node, uid, gid */
	OP_UTIMES,	/* node, mtime */
	OP_SETXATTR,	/* node, mode: which; seed, length */
	OP_REMOVEXATTR, /* node, mode: which */
	OP_ADOPT,	/* dir, name, mode, uid, gid: found there, with bytes */
	OP_SETBYTES,	/* node: it has these bytes, whatever was thought */
	OP_MTIME,	/* node, mtime: seen, not set */
	OP_MAX,
};

struct op {
	uint8_t kind;
	uint32_t node, node2, dir, dir2;
	uint32_t mode, uid, gid;
	uint64_t offset, offset2, length, seed;
	int64_t mtime_s, mtime_ns;
	char name[NAME_MAX + 1], name2[NAME_MAX + 1];
};

struct model_xattr {
	uint8_t value[MODEL_XATTR_BYTES_MAX];
	uint32_t size;
	bool is_set;
};

struct model_entry {
	char *name; /* owned */
	struct model_node *node;
};

struct model_node {
	uint32_t id;
	mode_t mode; /* with type */
	uint32_t uid, gid, nlink;
	struct timespec mtime;
	bool has_mtime, is_partial;
	bool is_pinned;	  /* mapped: must not shrink */
	bool is_linkable; /* made without a name: may be given one */
	uint8_t *bytes;	  /* of a file or a symlink; owned */
	size_t size;
	struct model_xattr *xattr;   /* MODEL_XATTRS, NULL: none was ever set; owned */
	struct model_entry *entries; /* of a directory; owned */
	size_t entry_count;
	struct model_node *parent; /* of a directory */
	uint64_t seen_ino;	   /* scratch of the comparison */
};

struct model {
	struct model_node **nodes; /* by id; owned */
	uint32_t node_count;
};

extern const char *const model_xattr_names[MODEL_XATTRS];
extern const char *const op_names[OP_MAX];

void model_init(struct model *model);
void model_done(struct model *model);

/* Applies an operation that was acknowledged with @result (a count where the call
 * gives one). @bytes: of OP_ADOPT and OP_SETBYTES, op->length of them. */
void model_apply(struct model *model, const struct op *op, int64_t result, const void *bytes);

struct model_node *model_find(const struct model_node *dir, const char *name);
bool model_is_below(const struct model_node *node, const struct model_node *dir);

/* Writes the path of @name in @dir below the writers' directory: "own" or "shared" come
 * first. False if it does not fit. */
bool model_path(const struct model *model, const struct model_node *dir, const char *name,
		const char *own, const char *shared, char *path, size_t size);

/* The target of the symlink that @seed and @length stand for. */
void model_link_target(uint64_t seed, size_t length, char target[static MODEL_LINK_BYTES_MAX + 1]);
