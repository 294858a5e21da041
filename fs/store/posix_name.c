/* SPDX-License-Identifier: Apache-2.0 */
/* Names: finding, linking, moving, removing. */
#include "fs/store/posix.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "util/cleanup.h"

/* The name is opened first, and handle and attributes are taken from that descriptor:
 * asking for both by name may describe two objects, when the name is replaced between. */
int posix_lookup(struct store *store, const struct locator *dir, const char *name,
		 struct locator *ret_locator, struct store_attr *ret_attr)
{
	_cleanup_ref_ struct posix_ref ref = POSIX_REF_NULL;
	_cleanup_close_ int fd = -1;
	int r;

	r = posix_ref_dir(posix_store(store), dir, &ref);
	if (r < 0)
		return r;
	fd = openat(ref.fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return posix_dir_error(&ref, errno);
	return posix_identify(fd, ret_locator, ret_attr);
}

int posix_link(struct store *store, const struct locator *object, const struct locator *dir,
	       const char *name)
{
	_cleanup_ref_ struct posix_ref object_ref = POSIX_REF_NULL, dir_ref = POSIX_REF_NULL;
	int r;

	r = posix_ref_object(posix_store(store), object, &object_ref);
	if (r < 0)
		return r;
	r = posix_ref_dir(posix_store(store), dir, &dir_ref);
	if (r < 0)
		return r;
	if (linkat(object_ref.fd, "", dir_ref.fd, name, AT_EMPTY_PATH) < 0)
		return posix_dir_error(&dir_ref, errno);
	return 0;
}

int posix_rename(struct store *store, const struct locator *old_dir, const char *old_name,
		 const struct locator *new_dir, const char *new_name, unsigned flags)
{
	_cleanup_ref_ struct posix_ref old_ref = POSIX_REF_NULL, new_ref = POSIX_REF_NULL;
	int r;

	if (flags != 0 && flags != RENAME_NOREPLACE && flags != RENAME_EXCHANGE)
		return -EINVAL;
	r = posix_ref_dir(posix_store(store), old_dir, &old_ref);
	if (r < 0)
		return r;
	r = posix_ref_dir(posix_store(store), new_dir, &new_ref);
	if (r < 0)
		return r;
	if (renameat2(old_ref.fd, old_name, new_ref.fd, new_name, flags) < 0) {
		r = posix_dir_error(&old_ref, errno);
		return posix_dir_error(&new_ref, -r);
	}
	return 0;
}

static int remove_name(struct store *store, const struct locator *dir, const char *name, int flags)
{
	_cleanup_ref_ struct posix_ref ref = POSIX_REF_NULL;
	int r;

	r = posix_ref_dir(posix_store(store), dir, &ref);
	if (r < 0)
		return r;
	if (unlinkat(ref.fd, name, flags) < 0)
		return posix_dir_error(&ref, errno);
	return 0;
}

int posix_unlink(struct store *store, const struct locator *dir, const char *name)
{
	return remove_name(store, dir, name, 0);
}

int posix_rmdir(struct store *store, const struct locator *dir, const char *name)
{
	return remove_name(store, dir, name, AT_REMOVEDIR);
}

int posix_readlink(struct store *store, const struct locator *object, char *buffer, size_t size)
{
	_cleanup_ref_ struct posix_ref ref = POSIX_REF_NULL;
	ssize_t n;
	int r;

	r = posix_ref_object(posix_store(store), object, &ref);
	if (r < 0)
		return r;
	n = readlinkat(ref.fd, "", buffer, size);
	if (n < 0)
		return errno == ENOENT ? -EINVAL
				       : -errno; /* so says an empty path of what is no link */
	if ((size_t)n == size)
		return -ERANGE;
	buffer[n] = '\0';
	return 0;
}
