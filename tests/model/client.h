/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The workload: random trees, and threads that do random operations on the mount.
 */

#include <stdatomic.h>

#include "tests/model/mount.h"
#include "tests/model/world.h"

/* Makes the source's first tree, before there is any daemon. */
void client_make_tree(void);
/* Changes the source while no daemon is there. */
void client_change_bare(unsigned operations);

struct client {
	struct mount *mount;
	unsigned index;
	unsigned operations;
	atomic_bool *is_stopping;
	pthread_t thread;
};

void *client_thread(void *client);
