/* SPDX-License-Identifier: Apache-2.0 */
/*
 * glibc's setgroups() would change every thread of the process, so it is called raw.
 * setfsuid() and setfsgid() tell the old value, never an error: what they did is asked
 * for by a second call.
 */
#include "fs/store/posix_cred.h"

#include <errno.h>
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/fsuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef SYS_setgroups32
#define SYS_SETGROUPS SYS_setgroups32
#else
#define SYS_SETGROUPS SYS_setgroups
#endif

enum { OWN_GROUPS_MAX = 64 }; /* the daemon's own; a longer list is dropped, root needs none */

static pthread_once_t own_once = PTHREAD_ONCE_INIT;
static bool own_is_root;
static size_t own_group_count;
static gid_t own_groups[OWN_GROUPS_MAX];

static_assert(sizeof(gid_t) == sizeof(uint32_t), "groups are handed on as they are");

static void read_own(void)
{
	int n = getgroups(OWN_GROUPS_MAX, own_groups);

	own_group_count = n > 0 ? (size_t)n : 0;
	own_is_root = geteuid() == 0 && getegid() == 0;
}

static int set_groups(size_t count, const uint32_t *groups)
{
	return syscall(SYS_SETGROUPS, count, groups) < 0 ? -errno : 0;
}

static int leave_shared_umask(void)
{
	static _Thread_local bool has_left;

	if (has_left)
		return 0;
	if (unshare(CLONE_FS) < 0)
		return -errno;
	has_left = true;
	return 0;
}

/* Root is root with any groups: a create of its own needs the umask alone. */
static bool is_root(const struct store_cred *cred)
{
	return cred->uid == 0 && cred->gid == 0 && own_is_root;
}

static void restore(const struct posix_cred_saved *saved)
{
	int r;

	(void)umask(saved->umask); /* cannot fail */
	if (!saved->is_other)
		return;
	(void)setfsuid(saved->uid); /* looked at below */
	(void)setfsgid(saved->gid);
	r = set_groups(own_group_count, own_groups);

	/* Going on as somebody else would hand out files that are not theirs. */
	assert(r == 0);
	assert((uid_t)setfsuid((uid_t)-1) == saved->uid);
	assert((gid_t)setfsgid((gid_t)-1) == saved->gid);
}

int posix_cred_begin(const struct store_cred *cred, struct posix_cred_saved *ret_saved)
{
	struct posix_cred_saved saved;
	int r;

	if (cred->uid == (uid_t)-1 || cred->gid == (gid_t)-1)
		return -EINVAL;
	pthread_once(&own_once, read_own);
	r = leave_shared_umask();
	if (r < 0)
		return r;
	saved.is_other = !is_root(cred);
	if (saved.is_other) {
		r = set_groups(cred->group_count, cred->groups);
		if (r < 0)
			return r;
	}
	saved.umask = umask(cred->umask & 0777);
	if (!saved.is_other) {
		*ret_saved = saved;
		return 0;
	}
	saved.gid = (gid_t)setfsgid(cred->gid);
	saved.uid = (uid_t)setfsuid(cred->uid);
	if ((gid_t)setfsgid((gid_t)-1) != cred->gid || (uid_t)setfsuid((uid_t)-1) != cred->uid) {
		restore(&saved);
		return -EPERM;
	}
	*ret_saved = saved;
	return 0;
}

void posix_cred_end(const struct posix_cred_saved *saved)
{
	int saved_errno = errno;

	restore(saved);
	errno = saved_errno;
}
