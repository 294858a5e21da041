/* SPDX-License-Identifier: Apache-2.0 */
/* What NFSv3 has no call for, as far as reads and writes give the same bytes. */
#include "fs/store/nfs_store.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <unistd.h>

#include "util/cleanup.h"

enum {
	CHUNK_BYTES = 1024 * 1024,
	GUARD_TRIES_MAX = 16,
};

/* Zeros in [offset, end). They are stable: nobody could write them again after a crash of
 * the server. */
static int write_zeros(struct store_file *file, uint64_t offset, uint64_t end)
{
	_cleanup_free_ char *zeros = calloc(1, CHUNK_BYTES);

	if (!zeros)
		return -ENOMEM;
	while (offset < end) {
		size_t size = end - offset < CHUNK_BYTES ? (size_t)(end - offset) : CHUNK_BYTES;
		int r = nfsfile_write(file, zeros, size, offset, /* is_stable= */ true);

		if (r != 0)
			return r;
		offset += size;
	}
	return 0;
}

/* Makes the file at least @end long. Guarded by the ctime, so that a write that made it
 * longer meanwhile is not cut off again. */
static int extend(struct store_file *file, uint64_t end)
{
	struct nfsfile *self = nfsfile_of(file);

	for (unsigned i = 0; i < GUARD_TRIES_MAX; i++) {
		struct store_attr attr;
		int r = nfsfile_getattr(file, &attr);

		if (r != 0 || attr.size >= end)
			return r;
		r = nfsattr_set_size_guarded(self->store, &self->object, end, &attr);
		if (r != -EAGAIN)
			return r;
	}
	return -EIO; /* it was changed under us each time */
}

int nfsfile_fallocate(struct store_file *file, int mode, uint64_t offset, uint64_t length)
{
	uint64_t end = offset + length;
	struct store_attr attr;
	int r;

	if (length == 0)
		return -EINVAL;
	if (end < offset || end > INT64_MAX)
		return -EFBIG;

	switch (mode) {
	case 0:
		return extend(file, end);
	case FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE:
	case FALLOC_FL_ZERO_RANGE:
	case FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE:
		break;
	default: /* KEEP_SIZE alone would promise space that nobody reserves */
		return -EOPNOTSUPP;
	}
	r = nfsfile_getattr(file, &attr);
	if (r != 0)
		return r;
	r = write_zeros(file, offset, end < attr.size ? end : attr.size);
	if (r == 0 && mode == FALLOC_FL_ZERO_RANGE)
		r = extend(file, end);
	return r;
}

int64_t nfsfile_seek(struct store_file *file, uint64_t offset, int whence)
{
	struct store_attr attr;
	int r;

	if (whence != SEEK_DATA && whence != SEEK_HOLE)
		return -EINVAL;
	r = nfsfile_getattr(file, &attr);
	if (r != 0)
		return r;
	if (offset >= attr.size)
		return -ENXIO;
	return (int64_t)(whence == SEEK_DATA ? offset : attr.size);
}

ssize_t nfsfile_copy_range(struct store_file *in, uint64_t offset_in, struct store_file *out,
			   uint64_t offset_out, size_t size)
{
	_cleanup_free_ char *buffer = malloc(CHUNK_BYTES);
	size_t done = 0;

	if (!buffer)
		return -ENOMEM;
	while (done < size) {
		size_t wanted = size - done < CHUNK_BYTES ? size - done : CHUNK_BYTES;
		ssize_t n = nfsfile_read(in, buffer, wanted, offset_in + done);
		int r;

		if (n < 0)
			return done > 0 ? (ssize_t)done : n;
		if (n == 0)
			break;
		r = nfsfile_write(out, buffer, (size_t)n, offset_out + done, /* is_stable= */ true);
		if (r < 0)
			return done > 0 ? (ssize_t)done : r;
		if (r > 0)
			return -EIO; /* unknown: nobody may take it for a count */
		done += (size_t)n;
	}
	return (ssize_t)done;
}
