/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Which files have writes that the server may still lose, and the write verifier that
 * each was given. Whoever commits takes the entries out, and puts back what could not
 * be asked about.
 *
 * Locking: all inside; thread-safe. The lock is a leaf.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/locator.h"

enum {
	NFSUNSTABLE_FILES_MAX = 65536, /* beyond, writes are made stable one by one */
	NFSUNSTABLE_BUCKETS = 4096,
	NFSUNSTABLE_VERIFIER_BYTES = 8,
};

struct nfsunstable_file {
	struct nfsunstable_file *next;
	struct locator file;
	char verifier[NFSUNSTABLE_VERIFIER_BYTES];
	bool is_lost; /* two writes had different verifiers */
};

struct nfsunstable {
	pthread_mutex_t lock;
	size_t count; /* guarded by lock */
	bool is_lost; /* guarded by lock: said at the next commit */
	struct nfsunstable_file *buckets[NFSUNSTABLE_BUCKETS]; /* guarded by lock */
};

void nfsunstable_init(struct nfsunstable *unstable);
void nfsunstable_done(struct nfsunstable *unstable);

/* May one more file be remembered? */
bool nfsunstable_has_room(struct nfsunstable *unstable);

/* Has @file such writes? */
bool nfsunstable_has(struct nfsunstable *unstable, const struct locator *file);

/* An unstable write to @file was answered with @verifier. Never fails: what cannot be
 * remembered counts as lost. */
void nfsunstable_note(struct nfsunstable *unstable, const struct locator *file,
		      const char *verifier);

/* Unstable writes were found to be gone by someone who does not speak for all. */
void nfsunstable_note_lost(struct nfsunstable *unstable);

/* Takes the entry of @file out, or all of them as a chain. The caller owns them. NULL:
 * nothing there. */
struct nfsunstable_file *nfsunstable_take(struct nfsunstable *unstable, const struct locator *file);
struct nfsunstable_file *nfsunstable_take_all(struct nfsunstable *unstable, bool *ret_is_lost);

/* Puts an entry back (taken). */
void nfsunstable_put_back(struct nfsunstable *unstable, struct nfsunstable_file *entry);
