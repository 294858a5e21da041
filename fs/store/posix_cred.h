/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Being a client for the time of one system call: fsuid, fsgid, supplementary groups,
 * and umask, of the calling thread alone. With a foreign fsuid the kernel also takes
 * the file capabilities away. The thread leaves the process's shared umask and
 * current directory for good at its first call.
 */

#include "fs/store/store.h"

struct posix_cred_saved {
	uid_t uid;
	gid_t gid;
	mode_t umask;
	bool is_other; /* than the daemon itself */
};

/* Returns 0, and the caller calls posix_cred_end() in the same thread; or -EINVAL,
 * -EPERM, -ENOMEM with nothing changed. */
int posix_cred_begin(const struct store_cred *cred, struct posix_cred_saved *ret_saved) MUST_CHECK;

/* Keeps errno. Stops the process if it cannot become itself again. */
void posix_cred_end(const struct posix_cred_saved *saved);
