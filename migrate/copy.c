/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <string.h>
#include <unistd.h>

#include "migrate/migrate_internal.h"

static uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static int copy_data(struct copy *copy, uint64_t offset, uint64_t end)
{
	while (offset < end) {
		size_t size = (size_t)min_u64(end - offset, MIGRATE_COPY_BYTES);
		ssize_t n = store_read(copy->source, copy->buffer, size, offset);
		int r;

		if (n < 0)
			return (int)n;
		if (n > 0) {
			r = store_write(copy->target, copy->buffer, (size_t)n, offset, copy->is_stable);
			if (r != 0)
				return r;
			copy->copied_bytes += (uint64_t)n;
			copy->target_size = copy->target_size > offset + (uint64_t)n ? copy->target_size :
										    offset + (uint64_t)n;
		}
		offset += (uint64_t)n;
		if ((size_t)n < size) {
			copy->size = min_u64(copy->size, offset); /* it has been cut meanwhile */
			break;
		}
	}
	return 0;
}

static int write_zeros(struct copy *copy, uint64_t offset, uint64_t end)
{
	memset(copy->buffer, 0, MIGRATE_COPY_BYTES);
	while (offset < end) {
		size_t size = (size_t)min_u64(end - offset, MIGRATE_COPY_BYTES);
		int r = store_write(copy->target, copy->buffer, size, offset, copy->is_stable);

		if (r != 0)
			return r;
		offset += size;
	}
	return 0;
}

/* A hole of the source is zero on the target, whatever was there. */
static int make_hole(struct copy *copy, uint64_t offset, uint64_t end)
{
	int r;

	end = min_u64(end, copy->target_size);
	if (copy->is_virgin || offset >= end)
		return 0;
	if (copy->can_punch) {
		r = store_fallocate(copy->target, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset,
				    end - offset);
		if (r != -EOPNOTSUPP)
			return r;
		copy->can_punch = false;
	}
	return write_zeros(copy, offset, end);
}

/* The end of the run that begins at @offset: of data (SEEK_HOLE) or of a hole (SEEK_DATA). */
static int run_end(struct copy *copy, uint64_t offset, uint64_t end, int whence, uint64_t *ret_end)
{
	int64_t at = store_seek(copy->source, offset, whence);

	if (at == -ENXIO)
		at = (int64_t)end;
	if (at < 0)
		return (int)at;
	*ret_end = min_u64((uint64_t)at, end);
	return 0;
}

int copy_range(struct copy *copy, uint64_t offset, uint64_t end)
{
	uint64_t run = offset;
	int r;

	end = min_u64(end, copy->size);
	if (!copy->is_sparse)
		return offset < end ? copy_data(copy, offset, end) : 0;

	while (offset < end) {
		r = run_end(copy, offset, end, SEEK_DATA, &run);
		if (r == 0 && run > offset)
			r = make_hole(copy, offset, run);
		if (r != 0)
			return r;
		offset = run;
		if (offset >= end)
			break;
		r = run_end(copy, offset, end, SEEK_HOLE, &run);
		if (r == 0)
			r = copy_data(copy, offset, run);
		if (r != 0)
			return r;
		if (copy->size < run)
			break;
		offset = run;
	}
	return 0;
}
