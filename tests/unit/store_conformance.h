/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * What every store promises (fs/store/store.h), as cases of cmocka that take any store.
 * The process is root and the store writable. What a store cannot do by its caps is
 * expected to be refused.
 */

#include "fs/store/store.h"

/* Runs every case on @store (borrowed), each in a new directory below its root that is
 * removed afterwards. Returns the number of cases that failed. */
int store_conformance_run(const char *group_name, struct store *store);

/* Helpers for a store's own tests; each fails the running test on an error. */
struct locator make_dir(struct store *store, const struct locator *dir, const char *name);
struct locator make_file(struct store *store, const struct locator *dir, const char *name,
			 const void *data, size_t size);
struct store_attr attr_of(struct store *store, const struct locator *object);
bool has_name(struct store *store, const struct locator *dir, const char *name);
/* Removes @name of @dir with all that is below it; a missing name is fine. */
void remove_tree(struct store *store, const struct locator *dir, const char *name);
