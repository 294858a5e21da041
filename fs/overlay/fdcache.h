/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Open files by object. The kernel sends no OPEN, so a read or write finds its file
 * here or opens it; the least recently used ones are closed beyond the bound.
 *
 * A file that somebody holds stays open whatever happens to the cache; "published"
 * are those that fdcache_get() can still find. Holding one for long pins it: so an
 * unlinked file stays alive. Pinned files do not count against the bound.
 *
 * Locking: one mutex, a leaf; no store is called under it. Thread-safe, but for
 * fdcache_flush(), which nobody may run against a get for another side.
 */

#include <stdbool.h>
#include <stdint.h>

#include "fs/store/store.h"
#include "util/attr.h"

struct fdcache;	    /* opaque */
struct cached_file; /* opaque */

struct fdcache *fdcache_new(unsigned files_max);     /* NULL: no memory */
struct fdcache *fdcache_free(struct fdcache *cache); /* nothing may be held */

/* A published file of @id that allows @flags (STORE_OPEN_READ, STORE_OPEN_WRITE), held
 * for the caller until fdcache_put(); NULL when there is none. */
struct cached_file *fdcache_find(struct fdcache *cache, uint64_t id, unsigned flags);

/* The same, opened by @locator if need be (STORE_OPEN_REGULAR: the caller knows that it is a
 * regular file): for reading and writing where that goes, so
 * that the next writer finds it too. Errors as of store_open(). */
int fdcache_get(struct fdcache *cache, uint64_t id, unsigned flags, struct store *store,
		const struct locator *locator, struct cached_file **ret_file) MUST_CHECK;

/* Publishes and holds @file, open for reading and writing (taken on success). */
int fdcache_insert(struct fdcache *cache, uint64_t id, struct store_file *file,
		   struct cached_file **ret_file) MUST_CHECK;

void fdcache_put(struct fdcache *cache, struct cached_file *file);
struct store_file *cached_file_get(const struct cached_file *file); /* borrowed while held */

/* Whether the kernel may hold pages of the file, as far as is known here: true at first, and
 * after cached_file_note_pages(). Taking it makes it false. */
void cached_file_note_pages(struct cached_file *file);
bool cached_file_take_pages(struct cached_file *file);

/* Unpublishes the file of @id; it is closed when nobody holds it. */
void fdcache_drop(struct fdcache *cache, uint64_t id);
/* Unpublishes all. */
void fdcache_flush(struct fdcache *cache);

unsigned fdcache_count(struct fdcache *cache); /* published */
