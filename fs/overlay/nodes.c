/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A chained hash table in shards, each of which doubles and halves by itself. The locator stands
 * behind the node in the same allocation; one that outgrows it moves the node, which
 * nobody outside the shard's lock can notice.
 */
#include "fs/overlay/nodes.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
	SHARDS = 64,
	BUCKETS_FIRST = 64,
	SPARSE = 8, /* buckets to a node: half of them would do */
	LOOKUP_BITS = 40,
};

struct entry {
	struct entry *next;
	uint64_t id, ino, parent;
	uint64_t lookups : LOOKUP_BITS;
	uint64_t type : 4; /* S_IFMT >> 12 */
	uint64_t flags : 8;
	uint64_t side : 1;
	uint8_t length, room;
	uint8_t bytes[];
};

struct shard {
	pthread_mutex_t lock;
	struct entry **buckets; /* guarded by lock, as are the counts */
	uint32_t bucket_count, count;
} __attribute__((aligned(64)));

struct nodes {
	struct shard shards[SHARDS];
	_Atomic uint64_t count;
};

static_assert(SIDE_MAX == 2, "one bit for the side");

static uint64_t mix(uint64_t id)
{
	return (id * UINT64_C(0x9e3779b97f4a7c15)) >> 16;
}

static struct shard *shard_of(struct nodes *nodes, uint64_t id)
{
	return &nodes->shards[mix(id) % SHARDS];
}

static struct entry **bucket_of(struct shard *shard, uint64_t id)
{
	return &shard->buckets[(mix(id) / SHARDS) & (shard->bucket_count - 1)];
}

struct nodes *nodes_new(void)
{
	struct nodes *nodes = aligned_alloc(64, sizeof(*nodes));

	if (!nodes)
		return NULL;
	memset(nodes, 0, sizeof(*nodes));
	for (unsigned i = 0; i < SHARDS; i++) {
		struct shard *shard = &nodes->shards[i];

		pthread_mutex_init(&shard->lock, NULL);
		shard->buckets = calloc(BUCKETS_FIRST, sizeof(struct entry *));
		if (!shard->buckets)
			return nodes_free(nodes);
		shard->bucket_count = BUCKETS_FIRST;
	}
	return nodes;
}

struct nodes *nodes_free(struct nodes *nodes)
{
	if (!nodes)
		return NULL;
	for (unsigned i = 0; i < SHARDS; i++) {
		struct shard *shard = &nodes->shards[i];

		for (uint32_t b = 0; b < shard->bucket_count; b++) {
			while (shard->buckets[b]) {
				struct entry *entry = shard->buckets[b];

				shard->buckets[b] = entry->next;
				free(entry);
			}
		}
		free(shard->buckets);
		pthread_mutex_destroy(&shard->lock);
	}
	free(nodes);
	return NULL;
}

/* The link that points at the entry, or at NULL. */
static struct entry **find_locked(struct shard *shard, uint64_t id)
{
	struct entry **link = bucket_of(shard, id);

	while (*link && (*link)->id != id)
		link = &(*link)->next;
	return link;
}

/* So many buckets, a power of two; without memory for them it stays as it is. */
static void resize_locked(struct shard *shard, uint32_t new_count)
{
	uint32_t count = shard->bucket_count;
	struct entry **old = shard->buckets, **new = calloc(new_count, sizeof(*new));

	if (!new)
		return;
	shard->buckets = new;
	shard->bucket_count = new_count;
	for (uint32_t b = 0; b < count; b++) {
		while (old[b]) {
			struct entry *entry = old[b], **link = bucket_of(shard, entry->id);

			old[b] = entry->next;
			entry->next = *link;
			*link = entry;
		}
	}
	free(old);
}

/* Makes room for the locator of @node in *@link, which may be empty. */
static int fit_locked(struct entry **link, const struct node *node)
{
	struct entry *entry;

	if (*link && (*link)->room >= node->locator.length)
		return 0;
	entry = realloc(*link, sizeof(*entry) + node->locator.length);
	if (!entry)
		return -ENOMEM;
	if (!*link)
		memset(entry, 0, sizeof(*entry));
	entry->room = node->locator.length;
	*link = entry;
	return 0;
}

int nodes_add(struct nodes *nodes, const struct node *node, uint64_t lookups)
{
	struct shard *shard = shard_of(nodes, node->id);
	struct entry **link, *entry;
	bool is_new;
	int r;

	assert(node->id != 0);
	pthread_mutex_lock(&shard->lock);
	link = find_locked(shard, node->id);
	is_new = !*link;
	r = fit_locked(link, node);
	if (r == 0) {
		entry = *link;
		entry->id = node->id;
		entry->ino = node->ino;
		if (node->parent)
			entry->parent = node->parent;
		entry->lookups += lookups;
		entry->type = node->type >> 12;
		/* What others have found out since the caller's copy was made stands. */
		entry->flags |= is_new ? node->flags : node->flags & ~(unsigned)NODE_LEARNED;
		entry->side = node->side;
		entry->length = node->locator.length;
		memcpy(entry->bytes, node->locator.bytes, node->locator.length);
	}
	if (r == 0 && is_new) {
		atomic_fetch_add_explicit(&nodes->count, 1, memory_order_relaxed);
		if (++shard->count > shard->bucket_count)
			resize_locked(shard, shard->bucket_count * 2);
	}
	pthread_mutex_unlock(&shard->lock);
	return r;
}

bool nodes_get(struct nodes *nodes, uint64_t id, struct node *ret_node)
{
	struct shard *shard = shard_of(nodes, id);
	const struct entry *entry;

	pthread_mutex_lock(&shard->lock);
	entry = *find_locked(shard, id);
	if (entry) {
		ret_node->id = id;
		ret_node->ino = entry->ino;
		ret_node->parent = entry->parent;
		ret_node->type = (mode_t)entry->type << 12;
		ret_node->flags = entry->flags;
		ret_node->side = entry->side;
		ret_node->locator.length = entry->length;
		memcpy(ret_node->locator.bytes, entry->bytes, entry->length);
	}
	pthread_mutex_unlock(&shard->lock);
	return entry;
}

unsigned nodes_flags(struct nodes *nodes, uint64_t id)
{
	struct shard *shard = shard_of(nodes, id);
	const struct entry *entry;
	unsigned flags;

	pthread_mutex_lock(&shard->lock);
	entry = *find_locked(shard, id);
	flags = entry ? entry->flags : 0;
	pthread_mutex_unlock(&shard->lock);
	return flags;
}

void nodes_set_flags(struct nodes *nodes, uint64_t id, unsigned set, unsigned clear)
{
	struct shard *shard = shard_of(nodes, id);
	struct entry *entry;

	pthread_mutex_lock(&shard->lock);
	entry = *find_locked(shard, id);
	if (entry)
		entry->flags = (entry->flags & ~clear) | set;
	pthread_mutex_unlock(&shard->lock);
}

void nodes_set_parent(struct nodes *nodes, uint64_t id, uint64_t parent)
{
	struct shard *shard = shard_of(nodes, id);
	struct entry *entry;

	pthread_mutex_lock(&shard->lock);
	entry = *find_locked(shard, id);
	if (entry)
		entry->parent = parent;
	pthread_mutex_unlock(&shard->lock);
}

bool nodes_forget(struct nodes *nodes, uint64_t id, uint64_t lookups, unsigned *ret_flags)
{
	struct shard *shard = shard_of(nodes, id);
	struct entry **link, *gone = NULL;

	pthread_mutex_lock(&shard->lock);
	link = find_locked(shard, id);
	if (*link && id != JOURNAL_ROOT_ID) {
		/* More than were given out: by a daemon before this one. */
		(*link)->lookups -= lookups < (*link)->lookups ? lookups : (*link)->lookups;
		if ((*link)->lookups == 0) {
			gone = *link;
			*link = gone->next;
			if (--shard->count < shard->bucket_count / SPARSE &&
			    shard->bucket_count > BUCKETS_FIRST)
				resize_locked(shard, shard->bucket_count / 2);
		}
	}
	pthread_mutex_unlock(&shard->lock);
	if (!gone)
		return false;
	atomic_fetch_sub_explicit(&nodes->count, 1, memory_order_relaxed);
	*ret_flags = gone->flags;
	free(gone);
	return true;
}

uint64_t nodes_count(const struct nodes *nodes)
{
	return atomic_load_explicit(&nodes->count, memory_order_relaxed);
}
