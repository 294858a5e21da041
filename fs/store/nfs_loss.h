/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Requests that may still land: when a connection was lost with changing calls under
 * way, the server may yet carry them out, also after newer ones. It cannot any more
 * once it was restarted, which a changed write verifier proves: a connection leads to
 * one life of the server, and each life has its own verifier.
 *
 * Locking: all inside; thread-safe. The lock is a leaf.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
	NFSLOSS_SLOTS_MAX = 8, /* one for each connection */
	NFSLOSS_VERIFIER_BYTES = 8,
};

struct nfsloss {
	pthread_mutex_t lock;
	atomic_bool is_any; /* some slot is set: keeps the lock out of the usual path */
	struct {
		uint64_t ms; /* 0: nothing may still land */
		bool has_verifier;
		char verifier[NFSLOSS_VERIFIER_BYTES]; /* of the life that the requests went to */
	} slots[NFSLOSS_SLOTS_MAX];		       /* guarded by lock */
};

void nfsloss_init(struct nfsloss *loss);
void nfsloss_done(struct nfsloss *loss);

/* Connection @slot was lost at @now_ms, after its reset, with changing calls under way.
 * @verifier is what the server said on that connection, or NULL if it never did. */
void nfsloss_note(struct nfsloss *loss, unsigned slot, uint64_t now_ms, const char *verifier);

/* On a connection that was begun at @connected_ms the server said @verifier. */
void nfsloss_seen(struct nfsloss *loss, uint64_t connected_ms, const char *verifier);

/* The newest loss of which something may still land; 0: none. */
uint64_t nfsloss_last_ms(struct nfsloss *loss);
