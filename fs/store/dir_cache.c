/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hash table with chains over entries in one list from the most to the least
 * recently used. An entry in the table has is_kept; one that left it (evicted,
 * forgotten) lives on until its last pin goes.
 */
#include "fs/store/dir_cache.h"

#include <pthread.h>
#include <stdlib.h>

#include "util/cleanup.h"

enum { BUCKETS = 512 };

struct dir_cache_entry {
	struct locator locator;
	int fd;
	/* guarded by lock of the cache */
	unsigned pin_count;
	bool is_kept;
	struct dir_cache_entry *next_in_bucket;
	struct dir_cache_entry *newer, *older;
};

struct dir_cache {
	pthread_mutex_t lock;
	unsigned entries_max;
	/* guarded by lock */
	unsigned entry_count;
	struct dir_cache_entry *newest, *oldest;
	struct dir_cache_entry *buckets[BUCKETS];
};

static unsigned bucket_of(const struct locator *locator)
{
	uint64_t hash = locator->length;

	for (unsigned i = 0; i < locator->length; i++)
		hash = (hash ^ locator->bytes[i]) * 0x100000001b3u;
	return (unsigned)((hash ^ hash >> 29) % BUCKETS);
}

struct dir_cache *dir_cache_new(unsigned entries_max)
{
	struct dir_cache *cache = calloc(1, sizeof(*cache));

	assert(entries_max > 0);
	if (!cache)
		return NULL;
	pthread_mutex_init(&cache->lock, NULL);
	cache->entries_max = entries_max;
	return cache;
}

static void entry_free(struct dir_cache_entry *entry)
{
	if (!entry)
		return;
	assert(entry->pin_count == 0);
	assert(!entry->is_kept);
	fd_close(entry->fd);
	free(entry);
}

static void list_remove_locked(struct dir_cache *cache, struct dir_cache_entry *entry)
{
	if (entry->newer)
		entry->newer->older = entry->older;
	else
		cache->newest = entry->older;
	if (entry->older)
		entry->older->newer = entry->newer;
	else
		cache->oldest = entry->newer;
	entry->newer = entry->older = NULL;
}

static void list_add_locked(struct dir_cache *cache, struct dir_cache_entry *entry)
{
	entry->newer = NULL;
	entry->older = cache->newest;
	if (cache->newest)
		cache->newest->newer = entry;
	else
		cache->oldest = entry;
	cache->newest = entry;
}

static struct dir_cache_entry *find_locked(struct dir_cache *cache, const struct locator *locator)
{
	struct dir_cache_entry *entry = cache->buckets[bucket_of(locator)];

	while (entry && !locator_equal(&entry->locator, locator))
		entry = entry->next_in_bucket;
	if (!entry)
		return NULL;

	entry->pin_count++;
	if (cache->newest != entry) {
		list_remove_locked(cache, entry);
		list_add_locked(cache, entry);
	}
	return entry;
}

/* Takes @entry out of the table and returns it if its end is the caller's to make. */
static struct dir_cache_entry *drop_locked(struct dir_cache *cache, struct dir_cache_entry *entry)
{
	struct dir_cache_entry **link = &cache->buckets[bucket_of(&entry->locator)];

	assert(entry->is_kept);
	assert(cache->entry_count > 0);
	while (*link != entry)
		link = &(*link)->next_in_bucket;
	*link = entry->next_in_bucket;
	list_remove_locked(cache, entry);
	entry->is_kept = false;
	cache->entry_count--;
	return entry->pin_count == 0 ? entry : NULL;
}

/* Makes room for one. Returns the entry that the caller frees, or NULL. */
static struct dir_cache_entry *evict_locked(struct dir_cache *cache)
{
	struct dir_cache_entry *entry = cache->oldest;

	while (entry && entry->pin_count > 0)
		entry = entry->newer;
	return entry ? drop_locked(cache, entry) : NULL;
}

struct dir_cache *dir_cache_free(struct dir_cache *cache)
{
	if (!cache)
		return NULL;
	while (cache->oldest) {
		struct dir_cache_entry *entry = drop_locked(cache, cache->oldest);

		assert(entry); /* else somebody still uses its descriptor */
		entry_free(entry);
	}
	assert(cache->entry_count == 0);
	pthread_mutex_destroy(&cache->lock);
	free(cache);
	return NULL;
}

struct dir_cache_entry *dir_cache_get(struct dir_cache *cache, const struct locator *locator)
{
	struct dir_cache_entry *entry;

	pthread_mutex_lock(&cache->lock);
	entry = find_locked(cache, locator);
	pthread_mutex_unlock(&cache->lock);
	return entry;
}

struct dir_cache_entry *dir_cache_add(struct dir_cache *cache, const struct locator *locator,
				      int fd)
{
	struct dir_cache_entry *entry, *found, *evicted = NULL;

	assert(fd >= 0);
	entry = calloc(1, sizeof(*entry));
	if (!entry) {
		fd_close(fd);
		return NULL;
	}
	entry->locator = *locator;
	entry->fd = fd;

	pthread_mutex_lock(&cache->lock);
	found = find_locked(cache, locator);
	if (!found) {
		entry->pin_count = 1;
		if (cache->entry_count == cache->entries_max)
			evicted = evict_locked(cache);
		if (cache->entry_count < cache->entries_max) {
			struct dir_cache_entry **bucket = &cache->buckets[bucket_of(locator)];

			entry->next_in_bucket = *bucket;
			*bucket = entry;
			list_add_locked(cache, entry);
			entry->is_kept = true;
			cache->entry_count++;
		}
	}
	assert(cache->entry_count <= cache->entries_max);
	pthread_mutex_unlock(&cache->lock);

	entry_free(evicted);
	if (found)
		entry_free(entry);
	return found ? found : entry;
}

int dir_cache_entry_fd(const struct dir_cache_entry *entry)
{
	return entry->fd;
}

void dir_cache_put(struct dir_cache *cache, struct dir_cache_entry *entry)
{
	bool is_last;

	pthread_mutex_lock(&cache->lock);
	assert(entry->pin_count > 0);
	entry->pin_count--;
	is_last = entry->pin_count == 0 && !entry->is_kept;
	pthread_mutex_unlock(&cache->lock);
	if (is_last)
		entry_free(entry);
}

void dir_cache_forget(struct dir_cache *cache, struct dir_cache_entry *entry)
{
	pthread_mutex_lock(&cache->lock);
	assert(entry->pin_count > 0);
	if (entry->is_kept)
		(void)drop_locked(cache, entry); /* NULL: the caller's pin is left */
	pthread_mutex_unlock(&cache->lock);
}
