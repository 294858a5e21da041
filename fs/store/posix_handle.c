/* SPDX-License-Identifier: Apache-2.0 */
/* From locators to descriptors and back. */
#include "fs/store/posix.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "util/cleanup.h"

union handle {
	struct file_handle head;
	uint8_t room[sizeof(struct file_handle) + MAX_HANDLE_SZ];
};

enum {
	HANDLE_TYPE_BYTES = sizeof(((struct file_handle *)NULL)->handle_type),
	OPEN_TRIES = 20, /* more than one, see posix_handle_open() */
	OPEN_RETRY_US = 500,
};

static_assert(HANDLE_TYPE_BYTES + MAX_HANDLE_SZ <= LOCATOR_BYTES_MAX, "a handle fits a locator");

int posix_handle_open(struct posix_store *store, const struct locator *locator, int flags)
{
	union handle handle;
	int fd;

	assert(locator->length <= LOCATOR_BYTES_MAX);
	if (locator->length <= HANDLE_TYPE_BYTES)
		return -ESTALE; /* none of ours: damaged on disk */

	handle.head.handle_bytes = locator->length - HANDLE_TYPE_BYTES;
	memcpy(&handle.head.handle_type, locator->bytes, HANDLE_TYPE_BYTES);
	memcpy(handle.head.f_handle, locator->bytes + HANDLE_TYPE_BYTES, handle.head.handle_bytes);
	/* ext4 says ENOMEM of a handle whose inode number is just being given out again. It is
	 * never taken for stale: what looks dead is removed on the other side. */
	for (unsigned tries = 0;; tries++) {
		fd = open_by_handle_at(store->root_fd, &handle.head, flags | O_CLOEXEC);
		if (fd >= 0)
			return fd;
		if (errno != ENOMEM || tries == OPEN_TRIES)
			return -errno;
		usleep(OPEN_RETRY_US);
	}
}

int posix_handle_of(int fd, struct locator *ret_locator)
{
	union handle handle;
	int mount_id;

	handle.head.handle_bytes = MAX_HANDLE_SZ;
	if (name_to_handle_at(fd, "", &handle.head, &mount_id, AT_EMPTY_PATH) < 0)
		return -errno;

	assert(handle.head.handle_bytes > 0);
	assert(handle.head.handle_bytes <= MAX_HANDLE_SZ);
	*ret_locator = LOCATOR_NULL;
	ret_locator->length = (uint8_t)(HANDLE_TYPE_BYTES + handle.head.handle_bytes);
	memcpy(ret_locator->bytes, &handle.head.handle_type, HANDLE_TYPE_BYTES);
	memcpy(ret_locator->bytes + HANDLE_TYPE_BYTES, handle.head.f_handle,
	       handle.head.handle_bytes);
	return 0;
}

void posix_attr_of(const struct stat *st, struct store_attr *ret_attr)
{
	*ret_attr = (struct store_attr){
		.mode = st->st_mode,
		.nlink = (uint32_t)st->st_nlink,
		.uid = st->st_uid,
		.gid = st->st_gid,
		.ino = st->st_ino,
		.size = (uint64_t)st->st_size,
		.blocks = (uint64_t)st->st_blocks,
		.block_size = (uint32_t)st->st_blksize,
		.rdev = st->st_rdev,
		.atime = st->st_atim,
		.mtime = st->st_mtim,
		.ctime = st->st_ctim,
	};
}

int posix_getattr_fd(int fd, struct store_attr *ret_attr)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	posix_attr_of(&st, ret_attr);
	return 0;
}

int posix_identify(int fd, struct locator *ret_locator, struct store_attr *ret_attr)
{
	struct locator locator;
	int r;

	r = posix_handle_of(fd, &locator);
	if (r < 0)
		return r;
	r = posix_getattr_fd(fd, ret_attr);
	if (r < 0)
		return r;
	*ret_locator = locator;
	return 0;
}

static bool is_removed_dir(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISDIR(st.st_mode) && st.st_nlink == 0;
}

/* What is open already: the root, or an entry of the cache. */
static bool ref_open_dir(struct posix_store *store, const struct locator *locator,
			 struct posix_ref *ret_ref)
{
	struct dir_cache_entry *entry;

	if (locator_equal(locator, &store->root)) {
		*ret_ref = (struct posix_ref){ .store = store, .fd = store->root_fd };
		return true;
	}
	entry = dir_cache_get(store->dirs, locator);
	if (!entry)
		return false;
	*ret_ref = (struct posix_ref){ .store = store,
				       .fd = dir_cache_entry_fd(entry),
				       .entry = entry };
	return true;
}

int posix_ref_dir(struct posix_store *store, const struct locator *dir, struct posix_ref *ret_ref)
{
	struct dir_cache_entry *entry;
	int fd;

	if (ref_open_dir(store, dir, ret_ref))
		return 0;

	fd = posix_handle_open(store, dir, O_PATH | O_DIRECTORY | O_NOFOLLOW);
	if (fd < 0)
		return fd;
	if (is_removed_dir(fd)) { /* somebody works in it still */
		fd_close(fd);
		return -ESTALE;
	}
	entry = dir_cache_add(store->dirs, dir, fd);
	if (!entry)
		return -ENOMEM;
	*ret_ref = (struct posix_ref){ .store = store,
				       .fd = dir_cache_entry_fd(entry),
				       .entry = entry };
	return 0;
}

int posix_ref_object(struct posix_store *store, const struct locator *object,
		     struct posix_ref *ret_ref)
{
	_cleanup_ref_ struct posix_ref ref = POSIX_REF_NULL;
	int fd;

	if (!ref_open_dir(store, object, &ref)) {
		fd = posix_handle_open(store, object, O_PATH | O_NOFOLLOW);
		if (fd < 0)
			return fd;
		ref = (struct posix_ref){ .store = store, .fd = fd, .is_owned = true };
	}
	if (is_removed_dir(ref.fd)) {
		if (ref.entry)
			dir_cache_forget(store->dirs, ref.entry);
		return -ESTALE;
	}
	*ret_ref = ref;
	ref = POSIX_REF_NULL;
	return 0;
}

void posix_ref_done(struct posix_ref *ref)
{
	if (ref->entry)
		dir_cache_put(ref->store->dirs, ref->entry);
	if (ref->is_owned)
		fd_close(ref->fd);
	*ref = POSIX_REF_NULL;
}

int posix_dir_error(struct posix_ref *dir, int error)
{
	assert(error > 0);
	if (error != ENOENT || !is_removed_dir(dir->fd))
		return -error;
	if (dir->entry)
		dir_cache_forget(dir->store->dirs, dir->entry);
	return -ESTALE;
}
