/* SPDX-License-Identifier: Apache-2.0 */
/* Open regular files. */
#include "fs/store/posix.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "util/cleanup.h"

enum { ZEROS_BYTES = 128 * 1024 }; /* a write of zeros at a time */

struct posix_file {
	struct store_file base; /* first */
	int fd;
};

static int fd_of(const struct store_file *file)
{
	static_assert(offsetof(struct posix_file, base) == 0, "cast");
	return ((const struct posix_file *)file)->fd;
}

struct store_file *posix_file_new(struct posix_store *store, int fd)
{
	struct posix_file *file = malloc(sizeof(*file));

	assert(fd >= 0);
	if (!file) {
		fd_close(fd);
		return NULL;
	}
	file->base.ops = store->base.ops;
	file->fd = fd;
	return &file->base;
}

static int check_regular(int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	return S_ISREG(st.st_mode) ? 0 : -EINVAL;
}

/* The type is looked at through O_PATH first. A handle holds inode number and
 * generation, so that it cannot stand for something of another type by the second open. */
static int open_checked(struct posix_store *store, const struct locator *object, int flags)
{
	_cleanup_close_ int fd = -1;
	int r;

	fd = posix_handle_open(store, object, O_PATH | O_NOFOLLOW);
	if (fd < 0)
		return fd;
	r = check_regular(fd);
	if (r < 0)
		return r;
	return posix_handle_open(store, object, flags);
}

/* The caller has seen the type. Should it be wrong (a damaged record), the clone of the
 * mount opens no device, and O_NONBLOCK never waits at a fifo. */
static int open_known(struct posix_store *store, const struct locator *object, int flags)
{
	_cleanup_close_ int fd = -1;
	int r;

	fd = posix_handle_open(store, object, flags | O_NONBLOCK);
	if (fd == -EAGAIN)
		return open_checked(store, object,
				    flags); /* somebody's lease is in the way: wait */
	if (fd == -ENXIO || fd == -ELOOP || fd == -EISDIR)
		return -EINVAL;
	if (fd < 0)
		return fd;
	r = check_regular(fd);
	if (r < 0)
		return r;
	return TAKE_FD(fd);
}

int posix_open(struct store *base, const struct locator *object, unsigned flags,
	       struct store_file **ret_file)
{
	struct posix_store *store = posix_store(base);
	struct store_file *file;
	int fd, open_flags = O_NOFOLLOW;

	if ((flags & STORE_OPEN_READ) && (flags & STORE_OPEN_WRITE))
		open_flags |= O_RDWR;
	else if (flags & STORE_OPEN_WRITE)
		open_flags |= O_WRONLY;
	else
		open_flags |= O_RDONLY;
	if (flags & STORE_OPEN_NOATIME)
		open_flags |= O_NOATIME;

	fd = flags & STORE_OPEN_REGULAR ? open_known(store, object, open_flags)
					: open_checked(store, object, open_flags);
	if (fd < 0)
		return fd;
	file = posix_file_new(store, fd);
	if (!file)
		return -ENOMEM;
	*ret_file = file;
	return 0;
}

struct store_file *posix_file_close(struct store_file *file)
{
	if (file) {
		fd_close(fd_of(file));
		free(file);
	}
	return NULL;
}

int posix_file_fd(const struct store_file *file)
{
	return fd_of(file);
}

static bool is_offset(uint64_t offset, uint64_t size)
{
	return offset <= INT64_MAX && size <= INT64_MAX - offset;
}

ssize_t posix_read(struct store_file *file, void *buffer, size_t size, uint64_t offset)
{
	size_t done = 0;

	if (!is_offset(offset, size))
		return -EINVAL;
	while (done < size) {
		ssize_t n = pread(fd_of(file), (char *)buffer + done, size - done,
				  (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

ssize_t posix_write_some(struct store_file *file, const void *buffer, size_t size, uint64_t offset)
{
	ssize_t n;

	if (!is_offset(offset, size))
		return -EFBIG;
	do
		n = pwrite(fd_of(file), buffer, size, (off_t)offset);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	if (n == 0 && size > 0)
		return -EIO; /* no file system should; never spin on it */
	return n;
}

int posix_write(struct store_file *file, const void *buffer, size_t size, uint64_t offset,
		bool is_stable UNUSED)
{
	size_t done = 0;

	while (done < size) {
		ssize_t n = posix_write_some(file, (const char *)buffer + done, size - done,
					     offset + done);

		if (n < 0)
			return (int)n;
		done += (size_t)n;
	}
	return 0;
}

ssize_t posix_file_listxattr(struct store_file *file, char *list, size_t size)
{
	ssize_t n = flistxattr(fd_of(file), list, size);

	return n < 0 ? -errno : n;
}

int posix_file_getattr(struct store_file *file, struct store_attr *ret_attr)
{
	return posix_getattr_fd(fd_of(file), ret_attr);
}

int posix_file_setattr(struct store_file *file, const struct store_setattr *set,
		       struct store_attr *ret_attr)
{
	return posix_setattr_fd(fd_of(file), /* is_path= */ false, set, ret_attr);
}

int posix_fsync(struct store_file *file, bool is_datasync)
{
	int r = is_datasync ? fdatasync(fd_of(file)) : fsync(fd_of(file));

	return r < 0 ? -errno : 0;
}

/* The effect of a punched hole on the bytes, for file systems that have none. */
static int write_zeros(struct store_file *file, uint64_t offset, uint64_t length)
{
	_cleanup_free_ char *zeros = NULL;
	struct stat st;
	uint64_t end;
	int r;

	if (fstat(fd_of(file), &st) < 0)
		return -errno;
	zeros = calloc(1, ZEROS_BYTES);
	if (!zeros)
		return -ENOMEM;

	end = offset + length < (uint64_t)st.st_size ? offset + length : (uint64_t)st.st_size;
	while (offset < end) {
		size_t size = end - offset < ZEROS_BYTES ? (size_t)(end - offset) : ZEROS_BYTES;

		r = posix_write(file, zeros, size, offset, /* is_stable= */ false);
		if (r < 0)
			return r;
		offset += size;
	}
	return 0;
}

int posix_fallocate_file(struct store_file *file, int mode, uint64_t offset, uint64_t length)
{
	int r;

	if (length == 0)
		return -EINVAL;
	if (!is_offset(offset, length))
		return -EFBIG;
	do
		r = fallocate(fd_of(file), mode, (off_t)offset, (off_t)length);
	while (r < 0 && errno == EINTR);
	if (r == 0)
		return 0;
	if (errno == EOPNOTSUPP && mode == (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE))
		return write_zeros(file, offset, length);
	return -errno;
}

int64_t posix_seek(struct store_file *file, uint64_t offset, int whence)
{
	off_t found;

	if (offset > INT64_MAX)
		return -ENXIO;
	/* It moves the descriptor's own offset, which nothing uses. */
	found = lseek(fd_of(file), (off_t)offset, whence);
	return found < 0 ? -errno : (int64_t)found;
}

ssize_t posix_copy_range(struct store_file *in, uint64_t offset_in, struct store_file *out,
			 uint64_t offset_out, size_t size)
{
	off64_t at_in = (off64_t)offset_in, at_out = (off64_t)offset_out;
	ssize_t n;

	if (!is_offset(offset_in, size) || !is_offset(offset_out, size))
		return -EINVAL;
	do
		n = copy_file_range(fd_of(in), &at_in, fd_of(out), &at_out, size, 0);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}
