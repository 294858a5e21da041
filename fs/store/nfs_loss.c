/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/store/nfs_loss.h"

#include <string.h>

#include "util/attr.h"

void nfsloss_init(struct nfsloss *loss)
{
	*loss = (struct nfsloss){ 0 };
	(void)pthread_mutex_init(&loss->lock, NULL); /* cannot fail with default attributes */
}

void nfsloss_done(struct nfsloss *loss)
{
	(void)pthread_mutex_destroy(&loss->lock);
}

void nfsloss_note(struct nfsloss *loss, unsigned slot, uint64_t now_ms, const char *verifier)
{
	assert(slot < NFSLOSS_SLOTS_MAX);
	assert(now_ms > 0);

	pthread_mutex_lock(&loss->lock);
	if (!verifier) {
		loss->slots[slot].has_verifier = false;
	} else if (loss->slots[slot].ms == 0) {
		loss->slots[slot].has_verifier = true;
		memcpy(loss->slots[slot].verifier, verifier, NFSLOSS_VERIFIER_BYTES);
	} else if (memcmp(loss->slots[slot].verifier, verifier, NFSLOSS_VERIFIER_BYTES) != 0) {
		/* Requests to two lives of the server: only time settles both. */
		loss->slots[slot].has_verifier = false;
	}
	loss->slots[slot].ms = now_ms;
	atomic_store(&loss->is_any, true);
	pthread_mutex_unlock(&loss->lock);
}

void nfsloss_seen(struct nfsloss *loss, uint64_t connected_ms, const char *verifier)
{
	bool is_any = false;

	if (!atomic_load(&loss->is_any))
		return;
	pthread_mutex_lock(&loss->lock);
	for (unsigned i = 0; i < NFSLOSS_SLOTS_MAX; i++) {
		/* An older connection may still deliver what the old life had said. */
		if (loss->slots[i].ms != 0 && loss->slots[i].has_verifier &&
		    connected_ms > loss->slots[i].ms &&
		    memcmp(loss->slots[i].verifier, verifier, NFSLOSS_VERIFIER_BYTES) != 0)
			loss->slots[i].ms = 0;
		is_any |= loss->slots[i].ms != 0;
	}
	atomic_store(&loss->is_any, is_any);
	pthread_mutex_unlock(&loss->lock);
}

uint64_t nfsloss_last_ms(struct nfsloss *loss)
{
	uint64_t last_ms = 0;

	pthread_mutex_lock(&loss->lock);
	for (unsigned i = 0; i < NFSLOSS_SLOTS_MAX; i++)
		if (loss->slots[i].ms > last_ms)
			last_ms = loss->slots[i].ms;
	pthread_mutex_unlock(&loss->lock);
	return last_ms;
}
