/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/store/nfs_unstable.h"

#include <stdlib.h>
#include <string.h>

#include "fs/store/nfs_handle.h"
#include "util/attr.h"

void nfsunstable_init(struct nfsunstable *unstable)
{
	*unstable = (struct nfsunstable){ 0 };
	(void)pthread_mutex_init(&unstable->lock, NULL); /* cannot fail with default attributes */
}

void nfsunstable_done(struct nfsunstable *unstable)
{
	struct nfsunstable_file *entry, *next;
	bool is_lost;

	for (entry = nfsunstable_take_all(unstable, &is_lost); entry; entry = next) {
		next = entry->next;
		free(entry);
	}
	(void)pthread_mutex_destroy(&unstable->lock);
}

static size_t bucket_of(const struct locator *file)
{
	return nfshandle_hash(file->bytes, file->length) % NFSUNSTABLE_BUCKETS;
}

static struct nfsunstable_file **find_locked(struct nfsunstable *unstable,
					     const struct locator *file)
{
	struct nfsunstable_file **link = &unstable->buckets[bucket_of(file)];

	while (*link && !locator_equal(&(*link)->file, file))
		link = &(*link)->next;
	return link;
}

bool nfsunstable_has_room(struct nfsunstable *unstable)
{
	bool has_room;

	pthread_mutex_lock(&unstable->lock);
	has_room = unstable->count < NFSUNSTABLE_FILES_MAX;
	pthread_mutex_unlock(&unstable->lock);
	return has_room;
}

bool nfsunstable_has(struct nfsunstable *unstable, const struct locator *file)
{
	bool has;

	pthread_mutex_lock(&unstable->lock);
	has = *find_locked(unstable, file) != NULL;
	pthread_mutex_unlock(&unstable->lock);
	return has;
}

void nfsunstable_note(struct nfsunstable *unstable, const struct locator *file,
		      const char *verifier)
{
	struct nfsunstable_file **link;

	pthread_mutex_lock(&unstable->lock);
	link = find_locked(unstable, file);
	if (*link) {
		if (memcmp((*link)->verifier, verifier, NFSUNSTABLE_VERIFIER_BYTES) != 0)
			(*link)->is_lost = true;
	} else {
		*link = calloc(1, sizeof(**link));
		if (*link) {
			(*link)->file = *file;
			memcpy((*link)->verifier, verifier, NFSUNSTABLE_VERIFIER_BYTES);
			unstable->count++;
		} else {
			unstable->is_lost = true;
		}
	}
	pthread_mutex_unlock(&unstable->lock);
}

void nfsunstable_note_lost(struct nfsunstable *unstable)
{
	pthread_mutex_lock(&unstable->lock);
	unstable->is_lost = true;
	pthread_mutex_unlock(&unstable->lock);
}

struct nfsunstable_file *nfsunstable_take(struct nfsunstable *unstable, const struct locator *file)
{
	struct nfsunstable_file **link, *entry;

	pthread_mutex_lock(&unstable->lock);
	link = find_locked(unstable, file);
	entry = *link;
	if (entry) {
		*link = entry->next;
		entry->next = NULL;
		unstable->count--;
	}
	pthread_mutex_unlock(&unstable->lock);
	return entry;
}

struct nfsunstable_file *nfsunstable_take_all(struct nfsunstable *unstable, bool *ret_is_lost)
{
	struct nfsunstable_file *all = NULL;

	pthread_mutex_lock(&unstable->lock);
	*ret_is_lost = unstable->is_lost;
	unstable->is_lost = false;
	for (size_t i = 0; unstable->count > 0; i++) {
		assert(i < NFSUNSTABLE_BUCKETS);
		while (unstable->buckets[i]) {
			struct nfsunstable_file *entry = unstable->buckets[i];

			unstable->buckets[i] = entry->next;
			entry->next = all;
			all = entry;
			unstable->count--;
		}
	}
	pthread_mutex_unlock(&unstable->lock);
	return all;
}

void nfsunstable_put_back(struct nfsunstable *unstable, struct nfsunstable_file *entry)
{
	struct nfsunstable_file **link;

	pthread_mutex_lock(&unstable->lock);
	link = find_locked(unstable, &entry->file);
	if (*link) {
		if (entry->is_lost ||
		    memcmp((*link)->verifier, entry->verifier, NFSUNSTABLE_VERIFIER_BYTES) != 0)
			(*link)->is_lost = true;
		free(entry);
	} else {
		entry->next = NULL;
		*link = entry;
		unstable->count++;
	}
	pthread_mutex_unlock(&unstable->lock);
}
