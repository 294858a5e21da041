/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Open directories, by locator: a bounded cache, so that consecutive operations in
 * one directory open it once. Only for directories: the descriptor of a file would
 * keep an unlinked file alive and make its dead handle look alive.
 *
 * An entry is pinned while someone uses its descriptor. What is least recently used
 * goes first; at the bound, with all entries pinned, a new one is handed out but not
 * kept. Thread-safe; no system call is made under its lock.
 */

#include "util/attr.h"
#include "util/locator.h"

enum { DIR_CACHE_ENTRIES_MAX = 256 }; /* more are of no use */

struct dir_cache;	/* opaque */
struct dir_cache_entry; /* opaque */

/* Keeps @entries_max descriptors open; then the oldest is closed. NULL when memory is
 * short. */
struct dir_cache *dir_cache_new(unsigned entries_max) MUST_CHECK;

/* Closes all. No entry is pinned any more. NULL is allowed. Returns NULL. */
struct dir_cache *dir_cache_free(struct dir_cache *cache);

/* The pinned entry of @locator (borrowed until dir_cache_put()), or NULL. */
struct dir_cache_entry *dir_cache_get(struct dir_cache *cache,
				      const struct locator *locator) MUST_CHECK;

/* Enters @fd (taken, also on failure) for @locator and returns the pinned entry: an
 * older one if another thread was quicker. NULL when memory is short. */
struct dir_cache_entry *dir_cache_add(struct dir_cache *cache, const struct locator *locator,
				      int fd) MUST_CHECK;

int dir_cache_entry_fd(const struct dir_cache_entry *entry);

void dir_cache_put(struct dir_cache *cache, struct dir_cache_entry *entry);

/* Takes @entry (pinned by the caller, who still puts it) out of the cache. */
void dir_cache_forget(struct dir_cache *cache, struct dir_cache_entry *entry);
