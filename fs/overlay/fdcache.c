/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hash of published files and a list of those among them that nobody holds, the
 * least recently used first. A file is unpublished before it is closed, and closed
 * outside the lock by whoever made it both unpublished and unheld.
 */
#include "fs/overlay/fdcache.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { BUCKETS = 1024 };

struct cached_file {
	struct cached_file *next;	   /* in its bucket */
	struct cached_file *newer, *older; /* while unheld */
	uint64_t id;
	struct store_file *file;
	unsigned held;
	bool is_published, is_writable;
	atomic_bool may_have_pages;
};

struct fdcache {
	pthread_mutex_t lock;
	struct cached_file *buckets[BUCKETS]; /* guarded by lock, as is all below */
	struct cached_file idle;	      /* head of the list: idle.newer is the oldest */
	unsigned idle_count, published_count, idle_max;
};

struct fdcache *fdcache_new(unsigned files_max)
{
	struct fdcache *cache = calloc(1, sizeof(*cache));

	assert(files_max > 0);
	if (!cache)
		return NULL;
	pthread_mutex_init(&cache->lock, NULL);
	cache->idle.newer = cache->idle.older = &cache->idle;
	cache->idle_max = files_max;
	return cache;
}

struct fdcache *fdcache_free(struct fdcache *cache)
{
	if (!cache)
		return NULL;
	fdcache_flush(cache);
	pthread_mutex_destroy(&cache->lock);
	free(cache);
	return NULL;
}

static struct cached_file **find_locked(struct fdcache *cache, uint64_t id)
{
	struct cached_file **link = &cache->buckets[id % BUCKETS];

	while (*link && (*link)->id != id)
		link = &(*link)->next;
	return link;
}

static void idle_remove_locked(struct fdcache *cache, struct cached_file *file)
{
	file->newer->older = file->older;
	file->older->newer = file->newer;
	cache->idle_count--;
}

static void idle_add_locked(struct fdcache *cache, struct cached_file *file)
{
	file->older = cache->idle.older; /* the newest so far */
	file->newer = &cache->idle;
	file->older->newer = file;
	file->newer->older = file;
	cache->idle_count++;
}

static void hold_locked(struct fdcache *cache, struct cached_file *file)
{
	if (file->held++ == 0 && file->is_published)
		idle_remove_locked(cache, file);
}

/* Returns the file if it is the caller's to close. */
static struct cached_file *unpublish_locked(struct fdcache *cache, struct cached_file **link)
{
	struct cached_file *file = *link;

	assert(file->is_published);
	*link = file->next;
	file->is_published = false;
	cache->published_count--;
	if (file->held)
		return NULL;
	idle_remove_locked(cache, file);
	return file;
}

static void close_file(struct cached_file *file)
{
	if (!file)
		return;
	assert(!file->held && !file->is_published);
	file->file = store_file_close(file->file);
	free(file);
}

/* Closes idle files until at most @count are left. */
static void shrink(struct fdcache *cache, unsigned count)
{
	for (;;) {
		struct cached_file *file = NULL;

		pthread_mutex_lock(&cache->lock);
		if (cache->idle_count > count)
			file = unpublish_locked(cache, find_locked(cache, cache->idle.newer->id));
		pthread_mutex_unlock(&cache->lock);
		if (!file)
			return;
		close_file(file);
	}
}

struct cached_file *fdcache_find(struct fdcache *cache, uint64_t id, unsigned flags)
{
	struct cached_file *file;

	pthread_mutex_lock(&cache->lock);
	file = *find_locked(cache, id);
	if (file && (flags & STORE_OPEN_WRITE) && !file->is_writable)
		file = NULL;
	if (file)
		hold_locked(cache, file);
	pthread_mutex_unlock(&cache->lock);
	return file;
}

/* Publishes @opened, held, unless a file as good is there by now. */
static struct cached_file *publish(struct fdcache *cache, struct cached_file *opened)
{
	struct cached_file **link, *file = opened, *closing = NULL;

	pthread_mutex_lock(&cache->lock);
	link = find_locked(cache, opened->id);
	if (*link && (*link)->is_writable >= opened->is_writable) {
		file = *link;
		closing = opened;
		opened->held = 0;
		hold_locked(cache, file);
	} else {
		if (*link)
			closing = unpublish_locked(cache, link);
		link = &cache->buckets[opened->id % BUCKETS];
		opened->next = *link;
		*link = opened;
		opened->is_published = true;
		cache->published_count++;
	}
	pthread_mutex_unlock(&cache->lock);
	close_file(closing);
	return file;
}

static int open_file(struct fdcache *cache, struct store *store, const struct locator *locator,
		     unsigned flags, struct store_file **ret_file)
{
	int r = store_open(store, locator, flags, ret_file);

	if (r == -EMFILE || r == -ENFILE) {
		shrink(cache, 0);
		r = store_open(store, locator, flags, ret_file);
	}
	return r;
}

int fdcache_insert(struct fdcache *cache, uint64_t id, struct store_file *file,
		   struct cached_file **ret_file)
{
	struct cached_file *opened = calloc(1, sizeof(*opened));

	if (!opened)
		return -ENOMEM;
	opened->id = id;
	opened->file = file;
	opened->held = 1;
	opened->is_writable = true;
	atomic_init(&opened->may_have_pages, true);
	*ret_file = publish(cache, opened);
	return 0;
}

int fdcache_get(struct fdcache *cache, uint64_t id, unsigned flags, struct store *store,
		const struct locator *locator, struct cached_file **ret_file)
{
	struct cached_file *opened, *file = fdcache_find(cache, id, flags);
	unsigned known = flags & STORE_OPEN_REGULAR;
	int r;

	if (file) {
		*ret_file = file;
		return 0;
	}
	opened = calloc(1, sizeof(*opened));
	if (!opened)
		return -ENOMEM;
	opened->id = id;
	opened->held = 1;
	opened->is_writable = true;
	atomic_init(&opened->may_have_pages, true);
	r = open_file(cache, store, locator, known | STORE_OPEN_READ | STORE_OPEN_WRITE, &opened->file);
	/* Read-only file systems, immutable files, running programs. */
	if ((r == -EROFS || r == -EPERM || r == -EACCES || r == -ETXTBSY) &&
	    !(flags & STORE_OPEN_WRITE)) {
		opened->is_writable = false;
		r = open_file(cache, store, locator, known | STORE_OPEN_READ, &opened->file);
	}
	if (r < 0) {
		free(opened);
		return r;
	}
	*ret_file = publish(cache, opened);
	return 0;
}

void fdcache_put(struct fdcache *cache, struct cached_file *file)
{
	struct cached_file *closing = NULL;
	bool is_over;

	pthread_mutex_lock(&cache->lock);
	assert(file->held > 0);
	if (--file->held == 0) {
		if (file->is_published)
			idle_add_locked(cache, file);
		else
			closing = file;
	}
	is_over = cache->idle_count > cache->idle_max;
	pthread_mutex_unlock(&cache->lock);
	close_file(closing);
	if (is_over)
		shrink(cache, cache->idle_max);
}

struct store_file *cached_file_get(const struct cached_file *file)
{
	return file->file;
}

void cached_file_note_pages(struct cached_file *file)
{
	/* Mostly it is so already, and then the cache line stays shared. */
	if (!atomic_load(&file->may_have_pages))
		atomic_store(&file->may_have_pages, true);
}

bool cached_file_take_pages(struct cached_file *file)
{
	return atomic_load(&file->may_have_pages) && atomic_exchange(&file->may_have_pages, false);
}

void fdcache_drop(struct fdcache *cache, uint64_t id)
{
	struct cached_file **link, *closing = NULL;

	pthread_mutex_lock(&cache->lock);
	link = find_locked(cache, id);
	if (*link)
		closing = unpublish_locked(cache, link);
	pthread_mutex_unlock(&cache->lock);
	close_file(closing);
}

void fdcache_flush(struct fdcache *cache)
{
	for (unsigned i = 0; i < BUCKETS; i++) {
		bool is_more;

		do {
			struct cached_file **link = &cache->buckets[i], *closing = NULL;

			pthread_mutex_lock(&cache->lock);
			is_more = *link;
			if (is_more)
				closing = unpublish_locked(cache, link);
			pthread_mutex_unlock(&cache->lock);
			close_file(closing);
		} while (is_more);
	}
}

unsigned fdcache_count(struct fdcache *cache)
{
	unsigned count;

	pthread_mutex_lock(&cache->lock);
	count = cache->published_count;
	pthread_mutex_unlock(&cache->lock);
	return count;
}
