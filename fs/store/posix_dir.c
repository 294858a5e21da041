/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Directory streams: getdents64() into a buffer of our own, with d_off as the cookie.
 * libc's streams would hide the offsets of the single entries.
 */
#include "fs/store/posix.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "util/cleanup.h"

enum { DIR_BUFFER_BYTES = 32 * 1024 }; /* some hundreds of entries a system call */

struct posix_dir {
	struct store_dir base; /* first */
	int fd;
	size_t position, length; /* in buffer */
	char buffer[DIR_BUFFER_BYTES] __attribute__((aligned(8)));
};

static struct posix_dir *posix_dir(struct store_dir *dir)
{
	static_assert(offsetof(struct posix_dir, base) == 0, "cast");
	return (struct posix_dir *)dir;
}

int posix_dir_open(struct store *base, const struct locator *locator, struct store_dir **ret_dir)
{
	struct posix_store *store = posix_store(base);
	_cleanup_ref_ struct posix_ref ref = POSIX_REF_NULL;
	_cleanup_free_ struct posix_dir *dir = NULL;
	int r;

	/* Not posix_ref_dir(): who lists a tree does not come back to its directories. */
	r = posix_ref_object(store, locator, &ref);
	if (r < 0)
		return r;
	dir = malloc(sizeof(*dir));
	if (!dir)
		return -ENOMEM;
	dir->base.ops = store->base.ops;
	dir->position = dir->length = 0;
	dir->fd = openat(ref.fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir->fd < 0)
		return posix_dir_error(&ref, errno);
	*ret_dir = &TAKE_PTR(dir)->base;
	return 0;
}

static bool is_dot(const char *name)
{
	return name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

static struct dirent64 *entry_at(struct posix_dir *dir, size_t position)
{
	struct dirent64 *entry = (struct dirent64 *)(void *)(dir->buffer + position);

	assert(position < dir->length);
	assert(entry->d_reclen > 0);
	assert(position + entry->d_reclen <= dir->length);
	return entry;
}

int posix_dir_next(struct store_dir *base, struct store_entry *ret_entry)
{
	struct posix_dir *dir = posix_dir(base);
	struct dirent64 *entry;

	do {
		if (dir->position == dir->length) {
			long n = syscall(SYS_getdents64, dir->fd, dir->buffer, sizeof(dir->buffer));

			if (n < 0 && errno != ENOENT)
				return -errno;
			dir->position = 0;
			dir->length = n > 0 ? (size_t)n : 0;
			if (n <= 0)
				return STORE_E_END; /* ENOENT: the directory was removed */
		}
		entry = entry_at(dir, dir->position);
		dir->position += entry->d_reclen;
	} while (is_dot(entry->d_name));

	ret_entry->name = entry->d_name;
	ret_entry->ino = entry->d_ino;
	ret_entry->type = DTTOIF(entry->d_type);
	ret_entry->cookie = (uint64_t)entry->d_off;
	ret_entry->has_attr = false;
	return 0;
}

/* Whoever fills a client's buffer stops at an entry that does not fit and comes back to
 * the one before: most seeks end inside our buffer. The beginning is always read anew,
 * as rewinddir(3) has it. */
static bool seek_in_buffer(struct posix_dir *dir, uint64_t cookie)
{
	size_t position = 0;

	while (position < dir->length) {
		struct dirent64 *entry = entry_at(dir, position);

		position += entry->d_reclen;
		if ((uint64_t)entry->d_off == cookie) {
			dir->position = position;
			return true;
		}
	}
	return false;
}

int posix_dir_seek(struct store_dir *base, uint64_t cookie)
{
	struct posix_dir *dir = posix_dir(base);

	if (cookie > INT64_MAX)
		return -EINVAL;
	if (cookie != 0 && seek_in_buffer(dir, cookie))
		return 0;
	if (lseek(dir->fd, (off_t)cookie, SEEK_SET) < 0)
		return -errno;
	dir->position = dir->length = 0;
	return 0;
}

int posix_dir_fsync(struct store_dir *base)
{
	return fsync(posix_dir(base)->fd) < 0 ? -errno : 0;
}

struct store_dir *posix_dir_close(struct store_dir *base)
{
	struct posix_dir *dir = posix_dir(base);

	if (dir) {
		fd_close(dir->fd);
		free(dir);
	}
	return NULL;
}
