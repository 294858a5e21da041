/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attributes and extended attributes. Where a call takes no O_PATH descriptor it goes
 * through the descriptor's magic link in /proc, which names exactly that object.
 */
#include "fs/store/posix.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "util/cleanup.h"

#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452 /* Linux 6.6 */
#endif

enum { PROC_PATH_MAX = 32 }; /* bytes of "/proc/self/fd/" and a number, with the NUL */

static const char *proc_path(int fd, char path[static PROC_PATH_MAX])
{
	int n = snprintf(path, PROC_PATH_MAX, "/proc/self/fd/%d", fd);

	assert(n > 0 && n < PROC_PATH_MAX);
	return path;
}

/* ---- attributes ---------------------------------------------------------- */

/* As fchmod(), for O_PATH. EOPNOTSUPP: a symlink. */
static int chmod_path(int fd, mode_t mode)
{
	static atomic_bool lacks_fchmodat2;
	char path[PROC_PATH_MAX];

	if (!atomic_load_explicit(&lacks_fchmodat2, memory_order_relaxed)) {
		if (syscall(SYS_fchmodat2, fd, "", mode, AT_EMPTY_PATH) == 0)
			return 0;
		if (errno != ENOSYS)
			return -errno;
		atomic_store_explicit(&lacks_fchmodat2, true, memory_order_relaxed);
	}
	return chmod(proc_path(fd, path), mode) < 0 ? -errno : 0;
}

int posix_chmod_fd(int fd, bool is_path, mode_t mode)
{
	struct stat st;
	int r;

	mode &= 07777;
	if (!is_path)
		return fchmod(fd, mode) < 0 ? -errno : 0;
	r = chmod_path(fd, mode);
	if (r == -EOPNOTSUPP && fstat(fd, &st) == 0 && S_ISLNK(st.st_mode))
		return 0; /* a symlink has no mode */
	return r;
}

static int set_size(int fd, bool is_path, uint64_t size)
{
	char path[PROC_PATH_MAX];

	if (size > INT64_MAX)
		return -EFBIG;
	if (!is_path && ftruncate(fd, (off_t)size) == 0)
		return 0;
	if (!is_path && errno != EINVAL && errno != EBADF)
		return -errno;
	/* O_PATH, or not open for writing. */
	return truncate(proc_path(fd, path), (off_t)size) < 0 ? -errno : 0;
}

static int set_owner(int fd, const struct store_setattr *set)
{
	uid_t uid = (uid_t)-1;
	gid_t gid = (gid_t)-1;

	/* -1 would mean: leave it. */
	if (set->valid & STORE_SET_UID) {
		if (set->uid == UINT32_MAX)
			return -EINVAL;
		uid = set->uid;
	}
	if (set->valid & STORE_SET_GID) {
		if (set->gid == UINT32_MAX)
			return -EINVAL;
		gid = set->gid;
	}
	return fchownat(fd, "", uid, gid, AT_EMPTY_PATH) < 0 ? -errno : 0;
}

static struct timespec time_to_set(unsigned valid, unsigned flag, unsigned flag_now,
				   struct timespec time)
{
	if (valid & flag_now)
		return (struct timespec){ .tv_nsec = UTIME_NOW };
	if (valid & flag)
		return time;
	return (struct timespec){ .tv_nsec = UTIME_OMIT };
}

static int set_times(int fd, const struct store_setattr *set)
{
	struct timespec times[2] = {
		time_to_set(set->valid, STORE_SET_ATIME, STORE_SET_ATIME_NOW, set->atime),
		time_to_set(set->valid, STORE_SET_MTIME, STORE_SET_MTIME_NOW, set->mtime),
	};

	return utimensat(fd, "", times, AT_EMPTY_PATH) < 0 ? -errno : 0;
}

int posix_setattr_fd(int fd, bool is_path, const struct store_setattr *set,
		     struct store_attr *ret_attr)
{
	int r;

	if (set->valid & STORE_SET_SIZE) {
		r = set_size(fd, is_path, set->size);
		if (r < 0)
			return r;
	}
	/* The order matters: a new owner clears suid and sgid, all of it sets the times. */
	if (set->valid & (STORE_SET_UID | STORE_SET_GID) || !set->valid) {
		r = set_owner(fd, set);
		if (r < 0)
			return r;
	}
	if (set->valid & STORE_SET_MODE) {
		r = posix_chmod_fd(fd, is_path, set->mode);
		if (r < 0)
			return r;
	}
	if (set->valid &
	    (STORE_SET_ATIME | STORE_SET_MTIME | STORE_SET_ATIME_NOW | STORE_SET_MTIME_NOW)) {
		r = set_times(fd, set);
		if (r < 0)
			return r;
	}
	return ret_attr ? posix_getattr_fd(fd, ret_attr) : 0;
}

int posix_getattr(struct store *store, const struct locator *object, struct store_attr *ret_attr)
{
	_cleanup_ref_ struct posix_ref ref = POSIX_REF_NULL;
	int r;

	r = posix_ref_object(posix_store(store), object, &ref);
	if (r < 0)
		return r;
	return posix_getattr_fd(ref.fd, ret_attr);
}

int posix_setattr(struct store *store, const struct locator *object,
		  const struct store_setattr *set, struct store_attr *ret_attr)
{
	_cleanup_ref_ struct posix_ref ref = POSIX_REF_NULL;
	int r;

	r = posix_ref_object(posix_store(store), object, &ref);
	if (r < 0)
		return r;
	return posix_setattr_fd(ref.fd, /* is_path= */ true, set, ret_attr);
}

/* ---- extended attributes ------------------------------------------------- */

int posix_drop_xattr_fd(int fd, bool is_path, const char *name)
{
	char path[PROC_PATH_MAX];
	ssize_t n;
	int r;

	/* Asked for first: that is cheap, while removing an ACL that is not there is a
	 * transaction of the file system. */
	proc_path(fd, path);
	n = is_path ? getxattr(path, name, NULL, 0) : fgetxattr(fd, name, NULL, 0);
	if (n < 0)
		return errno == ENODATA || errno == EOPNOTSUPP ? 0 : -errno;
	r = is_path ? removexattr(path, name) : fremovexattr(fd, name);
	if (r < 0 && errno != ENODATA)
		return -errno;
	return 0;
}

ssize_t posix_getxattr(struct store *store, const struct locator *object, const char *name,
		       void *value, size_t size)
{
	_cleanup_ref_ struct posix_ref ref = POSIX_REF_NULL;
	char path[PROC_PATH_MAX];
	ssize_t n;
	int r;

	r = posix_ref_object(posix_store(store), object, &ref);
	if (r < 0)
		return r;
	n = getxattr(proc_path(ref.fd, path), name, value, size);
	return n < 0 ? -errno : n;
}

ssize_t posix_listxattr(struct store *store, const struct locator *object, char *list, size_t size)
{
	_cleanup_ref_ struct posix_ref ref = POSIX_REF_NULL;
	char path[PROC_PATH_MAX];
	ssize_t n;
	int r;

	r = posix_ref_object(posix_store(store), object, &ref);
	if (r < 0)
		return r;
	n = listxattr(proc_path(ref.fd, path), list, size);
	return n < 0 ? -errno : n;
}

int posix_setxattr(struct store *store, const struct locator *object, const char *name,
		   const void *value, size_t size, int flags)
{
	_cleanup_ref_ struct posix_ref ref = POSIX_REF_NULL;
	char path[PROC_PATH_MAX];
	int r;

	r = posix_ref_object(posix_store(store), object, &ref);
	if (r < 0)
		return r;
	return setxattr(proc_path(ref.fd, path), name, value, size, flags) < 0 ? -errno : 0;
}

int posix_removexattr(struct store *store, const struct locator *object, const char *name)
{
	_cleanup_ref_ struct posix_ref ref = POSIX_REF_NULL;
	char path[PROC_PATH_MAX];
	int r;

	r = posix_ref_object(posix_store(store), object, &ref);
	if (r < 0)
		return r;
	return removexattr(proc_path(ref.fd, path), name) < 0 ? -errno : 0;
}
