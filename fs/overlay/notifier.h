/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Has the kernel drop the pages of a file, and then answers the write that made them stale.
 *
 * The kernel drops what it has cached when a direct write begins; what is read into its cache
 * until an asynchronous one ends, it keeps. The drop waits for pages that are being read or
 * written back, through us: so a thread does it that serves nothing, and that nobody waits
 * for but the writer.
 *
 * Locking: one mutex, a leaf. All functions are thread-safe.
 */

#include <fuse_lowlevel.h>
#include <stdint.h>

#include "util/attr.h"

struct notifier; /* opaque */

struct notifier *notifier_new(void); /* NULL: no memory */
struct notifier *notifier_free(struct notifier *notifier);

/* Drops the pages of @id, then answers @req: so many bytes are written, or a negative errno.
 * Takes @req on 0; -ENOMEM. */
int notifier_add(struct notifier *notifier, fuse_req_t req, uint64_t id,
		 ssize_t result) MUST_CHECK;

/* Works until notifier_stop(), after which nothing may be added, and then off what is left; a thread of its own calls it. */
void notifier_run(struct notifier *notifier, struct fuse_session *session);
void notifier_stop(struct notifier *notifier);
