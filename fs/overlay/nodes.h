/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The objects that the kernel knows now: by object id, each with its lookup count,
 * the inode number that it shows, and the locator it was last found by.
 *
 * A node never leaves its shard's lock: callers get copies (struct node). Small, as
 * there may be millions: about 64 bytes and the locator. All functions are
 * thread-safe; the shard locks are leaves.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "journal/journal.h"
#include "util/attr.h"
#include "util/locator.h"

enum {
	NODE_PRIVILEGED = 1 << 0, /* may have had suid or sgid bits */
	NODE_ORPHAN = 1 << 1,	  /* it has no name; see overlay_internal.h, leftover */
	NODE_ENDED = 1 << 2,	  /* an orphan of which nothing is left on any side */
	/* What has been learned of the kernel's and the store's state. */
	NODE_NO_CAPABILITY = 1 << 3, /* it has no security.capability; see op_xattr.c */
	NODE_LISTED_A = 1 << 4,	     /* the kernel may hold a listing of that side; see op_dir.c */
	NODE_LISTED_B = 1 << 5,
	NODE_LISTED = NODE_LISTED_A | NODE_LISTED_B,
	NODE_LEARNED = NODE_NO_CAPABILITY | NODE_LISTED,
};

struct node {
	uint64_t id;
	uint64_t ino;	 /* shown */
	uint64_t parent; /* of a directory: where it was last seen; 0: not known */
	mode_t type;	 /* S_IFMT bits */
	unsigned flags;	 /* NODE_* */
	enum side side;	 /* of locator */
	struct locator locator;
};

struct nodes; /* opaque */

struct nodes *nodes_new(void); /* NULL: no memory */
struct nodes *nodes_free(struct nodes *nodes);

/* Adds @lookups to the count of @node->id, which is made if it is not there. Of one
 * that is there, flags are added to (but NODE_LEARNED), and locator and parent replaced.
 * 0 or -ENOMEM. */
int nodes_add(struct nodes *nodes, const struct node *node, uint64_t lookups) MUST_CHECK;
bool nodes_get(struct nodes *nodes, uint64_t id, struct node *ret_node);
/* Its NODE_* flags; 0 if it is not there. */
unsigned nodes_flags(struct nodes *nodes, uint64_t id);
void nodes_set_flags(struct nodes *nodes, uint64_t id, unsigned set, unsigned clear);
void nodes_set_parent(struct nodes *nodes, uint64_t id, uint64_t parent);

/* Takes @lookups from its count; true when it was the last and the node is gone:
 * *@ret_flags are those it had. The root stays. */
bool nodes_forget(struct nodes *nodes, uint64_t id, uint64_t lookups, unsigned *ret_flags);

uint64_t nodes_count(const struct nodes *nodes);
