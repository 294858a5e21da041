/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Creating, in two ways.
 *
 * As a client (cred): the thread takes its identity for the one call that creates, and
 * the file system below does what it would do for that process.
 *
 * Exactly (no cred): created by root without any permission, then given the owner,
 * freed of ACLs that it inherited, and given the mode last. At no moment, and after no
 * crash, is it open to more than it shall be.
 */
#include "fs/store/posix.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/store/posix_cred.h"
#include "util/cleanup.h"

/* Makes the name. Returns a descriptor for a regular file, which no one can have put in
 * its place; else -1; or a negative errno in *@ret_error. */
static int make_name(int dir_fd, const char *name, const struct store_new *new, mode_t permissions,
		     int *ret_error)
{
	int r, fd = -1;

	switch (new->mode &S_IFMT) {
	case S_IFREG:
		r = fd = openat(dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
				permissions);
		break;
	case S_IFDIR:
		r = mkdirat(dir_fd, name, permissions);
		break;
	case S_IFLNK:
		r = symlinkat(new->link_target, dir_fd, name);
		break;
	default:
		r = mknodat(dir_fd, name, (new->mode &S_IFMT) | permissions, new->rdev);
	}
	*ret_error = r < 0 ? -errno : 0;
	return fd;
}

static int make_name_as(int dir_fd, const char *name, const struct store_new *new, int *ret_error)
{
	struct posix_cred_saved saved;
	mode_t permissions = new->mode & 07777;
	int fd;

	if (!new->cred)
		return make_name(dir_fd, name, new, 0, ret_error);

	*ret_error = posix_cred_begin(new->cred, &saved);
	if (*ret_error < 0)
		return -1;
	fd = make_name(dir_fd, name, new, permissions, ret_error);
	posix_cred_end(&saved);
	return fd;
}

/* Opens what was just made at @name, and makes sure that it is that: in a directory
 * that is also reached past us, somebody may have put another object there, which must
 * not get our owner and mode. */
static int open_made(int dir_fd, const char *name, const struct store_new *new)
{
	/* ACL and mode of a directory are quicker through a descriptor that is not O_PATH. */
	int flags = S_ISDIR(new->mode) && !new->cred ? O_RDONLY | O_DIRECTORY : O_PATH;
	_cleanup_close_ int fd = -1;
	struct stat st;

	fd = openat(dir_fd, name, flags | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ELOOP || errno == ENOTDIR || errno == ENOENT ? -ESTALE : -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if ((st.st_mode & S_IFMT) != (new->mode &S_IFMT))
		return -ESTALE;
	if (!new->cred && st.st_uid != 0)
		return -EPERM; /* the server squashes root, or it is another object */
	if (!new->cred && !S_ISDIR(new->mode) && st.st_nlink != 1)
		return -ESTALE;
	if (!new->cred && !S_ISLNK(new->mode) && (st.st_mode & 0777) != 0)
		return -ESTALE;
	return TAKE_FD(fd);
}

static int make_exact(struct posix_store *store, int fd, const struct store_new *new)
{
	bool is_path = !S_ISREG(new->mode) && !S_ISDIR(new->mode);
	int r;

	if (new->uid == UINT32_MAX || new->gid == UINT32_MAX)
		return -EINVAL;
	if (fchownat(fd, "", new->uid, new->gid, AT_EMPTY_PATH) < 0)
		return -errno;
	if (S_ISLNK(new->mode))
		return 0;
	if (store->base.caps.has_acl) {
		r = posix_drop_xattr_fd(fd, is_path, "system.posix_acl_access");
		if (r < 0)
			return r;
	}
	if (store->base.caps.has_acl && S_ISDIR(new->mode)) {
		r = posix_drop_xattr_fd(fd, is_path, "system.posix_acl_default");
		if (r < 0)
			return r;
	}
	if (S_ISREG(new->mode) && (new->mode & 07777) == 0)
		return 0; /* as it was made */
	return posix_chmod_fd(fd, is_path, new->mode);
}

static int finish(struct posix_store *store, int fd, const struct store_new *new,
		  struct locator *ret_locator, struct store_attr *ret_attr)
{
	int r;

	if (!new->cred) {
		r = make_exact(store, fd, new);
		if (r < 0)
			return r;
	}
	return posix_identify(fd, ret_locator, ret_attr);
}

/* *@ret_fd: open read-write if it is a regular file, else O_PATH or so. */
static int create(struct posix_store *store, const struct locator *dir, const char *name,
		  const struct store_new *new, struct locator *ret_locator, struct store_attr *ret_attr,
		  int *ret_fd)
{
	_cleanup_ref_ struct posix_ref ref = POSIX_REF_NULL;
	_cleanup_close_ int fd = -1;
	int r;

	r = posix_ref_dir(store, dir, &ref);
	if (r < 0)
		return r;
	fd = make_name_as(ref.fd, name, new, &r);
	if (r < 0)
		return posix_dir_error(&ref, -r);

	if (fd < 0) {
		r = fd = open_made(ref.fd, name, new);
		if (r == -ESTALE)
			return r; /* not ours to remove */
	}
	if (r >= 0)
		r = finish(store, fd, new, ret_locator, ret_attr);
	if (r < 0)
		(void)unlinkat(ref.fd, name,
			       S_ISDIR(new->mode) ? AT_REMOVEDIR : 0); /* the error before counts */
	else
		*ret_fd = TAKE_FD(fd);
	return r;
}

int posix_create(struct store *base, const struct locator *dir, const char *name,
		 const struct store_new *new, struct locator *ret_locator,
		 struct store_attr *ret_attr)
{
	_cleanup_close_ int fd = -1;

	return create(posix_store(base), dir, name, new, ret_locator, ret_attr, &fd);
}

int posix_create_open(struct store *base, const struct locator *dir, const char *name,
		      const struct store_new *new, struct locator *ret_locator,
		      struct store_attr *ret_attr, struct store_file **ret_file)
{
	_cleanup_close_ int fd = -1;
	int r;

	r = create(posix_store(base), dir, name, new, ret_locator, ret_attr, &fd);
	if (r < 0)
		return r;
	/* It can be opened again: no memory is no failure. */
	*ret_file = S_ISREG(new->mode) ? posix_file_new(posix_store(base), TAKE_FD(fd)) : NULL;
	return 0;
}

static int open_tmpfile(int dir_fd, const struct store_new *new, bool is_linkable)
{
	int flags = O_TMPFILE | O_RDWR | O_CLOEXEC | (is_linkable ? 0 : O_EXCL);
	struct posix_cred_saved saved;
	int fd, r;

	if (!new->cred) {
		fd = openat(dir_fd, ".", flags, 0);
		return fd < 0 ? -errno : fd;
	}
	r = posix_cred_begin(new->cred, &saved);
	if (r < 0)
		return r;
	fd = openat(dir_fd, ".", flags, new->mode & 07777);
	posix_cred_end(&saved);
	return fd < 0 ? -errno : fd;
}

int posix_tmpfile(struct store *base, const struct locator *dir, const struct store_new *new,
		  bool is_linkable, struct locator *ret_locator, struct store_attr *ret_attr,
		  struct store_file **ret_file)
{
	struct posix_store *store = posix_store(base);
	_cleanup_ref_ struct posix_ref ref = POSIX_REF_NULL;
	struct store_file *file;
	struct locator locator;
	struct store_attr attr;
	int r, fd;

	r = posix_ref_dir(store, dir, &ref);
	if (r < 0)
		return r;
	fd = open_tmpfile(ref.fd, new, is_linkable);
	if (fd < 0)
		return posix_dir_error(&ref, -fd);
	r = finish(store, fd, new, &locator, &attr);
	if (r < 0) {
		fd_close(fd);
		return r;
	}
	file = posix_file_new(store, fd);
	if (!file)
		return -ENOMEM;
	*ret_locator = locator;
	*ret_attr = attr;
	*ret_file = file;
	return 0;
}
