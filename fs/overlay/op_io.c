/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data. There are no opens: a request names the object, and its file is in the cache or
 * is opened now. All of it is buffered below; O_DIRECT and O_APPEND stay in the kernel,
 * which sends offsets.
 */
#include "fs/overlay/overlay_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>
#include <unistd.h>

void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	if (overlay_of(req)->opens == OVERLAY_OPENS_ZERO) {
		fs_reply_err(req, -ENOSYS); /* never sent again, and taken for success */
		return;
	}
	overlay_opened(fi);
	(void)fuse_reply_open(req, fi); /* there is nothing that RELEASE would end */
}

void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	(void)fi;
	fs_reply_err(req, -ENOSYS); /* never sent again either */
}

/* The file of @ino, held for the caller. */
static int get_file(struct overlay *overlay, fuse_ino_t ino, unsigned flags,
		    struct cached_file **ret_file)
{
	struct cached_file *file = fdcache_find(overlay->files, ino, flags);
	struct node node;
	int r;

	if (file) {
		*ret_file = file;
		return 0;
	}
	r = overlay_find(overlay, ino, &node);
	if (r < 0)
		return r;
	if (S_ISREG(node.type))
		flags |= STORE_OPEN_REGULAR;
	return fs_outcome(fdcache_get(overlay->files, ino, flags, overlay_store(overlay),
				      &node.locator, ret_file));
}

/* Reads by a file of the request's own that leaves the access time as it is: false where
 * there is none to be had, of an unlinked file for one. */
static bool read_quietly(struct overlay *overlay, fuse_ino_t ino, void *buffer, size_t size,
			 uint64_t offset, ssize_t *ret_n)
{
	struct store_file *file;
	struct node node;
	int r;

	r = overlay_find(overlay, ino, &node);
	if (r == 0)
		r = store_open(overlay_store(overlay), &node.locator,
			       STORE_OPEN_READ | STORE_OPEN_NOATIME, &file);
	if (r != 0)
		return false;
	*ret_n = store_read(file, buffer, size, offset);
	store_file_close(file);
	return true;
}

static ssize_t read_data(struct overlay *overlay, fuse_ino_t ino, void *buffer, size_t size,
			 uint64_t offset, const struct fuse_file_info *fi)
{
	/* There was no OPEN, but each READ says how its file was opened. */
	bool is_quiet = fi->flags & O_NOATIME && store_caps(overlay_store(overlay))->is_local;
	struct cached_file *file;
	ssize_t n;

	n = get_file(overlay, ino, STORE_OPEN_READ, &file);
	if (n < 0)
		return n;
	/* Before the data is looked at: see op_write(). Direct reads name an owner of locks. */
	if (fi->lock_owner == 0)
		cached_file_note_pages(file);
	if (!is_quiet || !read_quietly(overlay, ino, buffer, size, offset, &n))
		n = store_read(cached_file_get(file), buffer, size, offset);
	fdcache_put(overlay->files, file);
	return n;
}

void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi)
{
	struct overlay *overlay = overlay_of(req);
	void *buffer = overlay_read_buffer();
	ssize_t n = -ENOMEM;

	if (size > OVERLAY_IO_BYTES_MAX)
		size = OVERLAY_IO_BYTES_MAX;
	if (buffer)
		n = read_data(overlay, ino, buffer, size, (uint64_t)offset, fi);
	if (n < 0) {
		fs_reply_err(req, (int)n);
		return;
	}
	atomic_fetch_add_explicit(&overlay->read_bytes, (uint64_t)n, memory_order_relaxed);
	(void)fuse_reply_buf(req, buffer, (size_t)n); /* fails when nobody waits for it */
}

/* A client learns how much went in. Of pages of a map, and with O_DIRECT, the kernel takes all
 * of it or an error: it makes EIO of less. */
static ssize_t write_data(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size,
			  uint64_t offset, const struct fuse_file_info *fi, bool *ret_is_stale)
{
	struct overlay *overlay = overlay_of(req);
	bool is_direct = !fi->writepage && fi->flags & O_DIRECT;
	bool is_whole = fi->writepage || is_direct;
	/* Acknowledged means kept: a server must not forget it in its restart. */
	bool is_stable = !store_caps(overlay_store(overlay))->is_local;
	struct marks_change change = MARKS_CHANGE_NULL;
	struct cached_file *file;
	ssize_t n;

	n = get_file(overlay, ino, STORE_OPEN_WRITE, &file);
	if (n < 0)
		return n;
	marks_change_add_data(&change, ino, offset, offset + size);
	marks_change_begin(overlay->marks, &change);
	n = overlay_drop_privileges(req, ino);
	if (n == 0 && is_whole) {
		n = fs_outcome(store_write(cached_file_get(file), data, size, offset, is_stable));
		n = n == 0 ? (ssize_t)size : n;
	} else if (n == 0) {
		n = store_write_some(cached_file_get(file), data, size, offset, is_stable);
	}
	marks_change_end(overlay->marks, &change);
	*ret_is_stale = is_direct && cached_file_take_pages(file);
	fdcache_put(overlay->files, file);
	return n;
}

/* After a direct write the kernel may still hold pages that were read during it; so if any
 * were read since the last one it drops them before the answer. Whoever reads a page notes it
 * before looking at the data: either the write's thread sees that, or the page is new. */
void op_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t offset,
	      struct fuse_file_info *fi)
{
	struct overlay *overlay = overlay_of(req);
	bool is_stale = false;
	ssize_t n;

	n = write_data(req, ino, data, size, (uint64_t)offset, fi, &is_stale);
	if (n > 0)
		atomic_fetch_add_explicit(&overlay->written_bytes, (size_t)n, memory_order_relaxed);
	if (is_stale && notifier_add(overlay->notifier, req, ino, n) == 0)
		return;
	if (n < 0)
		fs_reply_err(req, (int)n);
	else
		(void)fuse_reply_write(req, (size_t)n); /* fails when nobody waits for it */
}

void op_fsync(fuse_req_t req, fuse_ino_t ino, int is_datasync, struct fuse_file_info *fi)
{
	struct overlay *overlay = overlay_of(req);
	struct cached_file *file;
	int r;

	(void)fi;
	r = get_file(overlay, ino, STORE_OPEN_READ, &file);
	if (r == 0) {
		r = fs_outcome(store_fsync(cached_file_get(file), is_datasync));
		fdcache_put(overlay->files, file);
	}
	fs_reply_done(req, r);
}

/* ---- space --------------------------------------------------------------- */

static void mark_fallocate(struct marks_change *change, fuse_ino_t ino, int mode, uint64_t offset,
			   uint64_t length)
{
	marks_change_add_attr(change, ino);
	if (mode & (FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_INSERT_RANGE))
		marks_change_add_data(change, ino, offset, MARKS_INFINITY);
	else if (mode != FALLOC_FL_KEEP_SIZE) /* which alone leaves every byte as it was */
		marks_change_add_data(change, ino, offset, offset + length);
}

void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
		  struct fuse_file_info *fi)
{
	struct overlay *overlay = overlay_of(req);
	struct marks_change change = MARKS_CHANGE_NULL;
	struct cached_file *file;
	int r;

	(void)fi;
	r = get_file(overlay, ino, STORE_OPEN_WRITE, &file);
	if (r == 0) {
		mark_fallocate(&change, ino, mode, (uint64_t)offset, (uint64_t)length);
		marks_change_begin(overlay->marks, &change);
		r = overlay_drop_privileges(req, ino);
		if (r == 0)
			r = fs_outcome(store_fallocate(cached_file_get(file), mode,
						       (uint64_t)offset, (uint64_t)length));
		marks_change_end(overlay->marks, &change);
		fdcache_put(overlay->files, file);
	}
	fs_reply_done(req, r);
}

static ssize_t copy_range(fuse_req_t req, fuse_ino_t ino_in, uint64_t offset_in, fuse_ino_t ino_out,
			  uint64_t offset_out, size_t size)
{
	struct overlay *overlay = overlay_of(req);
	struct marks_change change = MARKS_CHANGE_NULL;
	struct cached_file *in, *out;
	ssize_t n;

	n = get_file(overlay, ino_in, STORE_OPEN_READ, &in);
	if (n < 0)
		return n;
	n = get_file(overlay, ino_out, STORE_OPEN_WRITE, &out);
	if (n == 0) {
		marks_change_add_data(&change, ino_out, offset_out, offset_out + size);
		marks_change_begin(overlay->marks, &change);
		n = overlay_drop_privileges(req, ino_out);
		if (n == 0)
			n = store_copy_range(cached_file_get(in), offset_in, cached_file_get(out),
					     offset_out, size);
		marks_change_end(overlay->marks, &change);
		fdcache_put(overlay->files, out);
	}
	fdcache_put(overlay->files, in);
	return n;
}

void op_copy_file_range(fuse_req_t req, fuse_ino_t ino_in, off_t offset_in,
			struct fuse_file_info *fi_in, fuse_ino_t ino_out, off_t offset_out,
			struct fuse_file_info *fi_out, size_t size, int flags)
{
	ssize_t n;

	(void)fi_in;
	(void)fi_out;
	(void)flags;
	n = copy_range(req, ino_in, (uint64_t)offset_in, ino_out, (uint64_t)offset_out, size);
	if (n < 0)
		fs_reply_err(req, (int)n);
	else
		(void)fuse_reply_write(req, (size_t)n); /* fails when nobody waits for it */
}
