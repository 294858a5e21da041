/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Directories are read by streams, each on the side where it was opened, to its end; one that
 * is rewound begins again on the side that is active. The store's stream is opened by the first
 * read, which often never comes.
 *
 * Positions are the store's own cookies, but for "." and "..", which the store leaves
 * out: they come first, and have positions that no store gives.
 *
 * The kernel keeps listings, positions and all, and drops one when the directory changes
 * through the mount. A listing of one side must not meet positions of the other. So a node
 * knows of which side the kernel may hold a listing: whoever opens the directory on the other
 * has it dropped; and while a stream of the other side is open there, none is kept at all.
 */
#include "fs/overlay/overlay_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "util/cleanup.h"

#define POSITION_DOT ((uint64_t)INT64_MAX - 2)
#define POSITION_DOT_DOT ((uint64_t)INT64_MAX - 1)

struct stream {
	struct stream *next, **link; /* among all; guarded by the overlay's stream_lock */
	uint64_t dir_id;	     /* never changes */
	pthread_mutex_t lock;
	_Atomic int side;	     /* enum side; written with lock held */
	struct node dir;	     /* guarded by lock, as is all below; of that side */
	struct store_dir *store_dir; /* NULL: not opened yet, or the directory is gone */
	uint64_t position;	     /* of store_dir: the cookie it stands after */
	bool is_refilling;	     /* the kernel was told to drop the listing that it has */
	bool has_entry;		     /* one that did not fit into the last answer */
	struct store_entry entry;
};

static struct stream *stream_of(const struct fuse_file_info *fi)
{
	return (struct stream *)(uintptr_t)fi->fh;
}

static struct stream *stream_free(struct stream *stream)
{
	if (!stream)
		return NULL;
	stream->store_dir = store_dir_close(stream->store_dir);
	pthread_mutex_destroy(&stream->lock);
	free(stream);
	return NULL;
}

/* Puts the stream to the beginning of the directory on the active side. */
static int stream_begin(struct overlay *overlay, fuse_ino_t ino, struct stream *stream)
{
	struct node dir;
	int r;

	r = overlay_find(overlay, ino, &dir);
	if (r < 0)
		return r;
	stream->store_dir = store_dir_close(stream->store_dir);
	stream->dir = dir;
	atomic_store(&stream->side, overlay_active(overlay));
	stream->position = 0;
	stream->has_entry = false;
	return 0;
}

static int stream_new(struct overlay *overlay, fuse_ino_t ino, struct stream **ret_stream)
{
	struct stream *stream = calloc(1, sizeof(*stream));
	int r;

	if (!stream)
		return -ENOMEM;
	pthread_mutex_init(&stream->lock, NULL);
	stream->dir_id = ino;
	r = stream_begin(overlay, ino, stream);
	if (r < 0) {
		stream_free(stream);
		return r;
	}
	*ret_stream = stream;
	return 0;
}

/* Opens the store's stream if it is not; without one there is nothing to be read. */
static int stream_need(struct overlay *overlay, struct stream *stream)
{
	int r;

	if (stream->store_dir)
		return 0;
	/* A directory that is gone but still somebody's "." can be opened, and is empty. */
	if (stream->dir.flags & NODE_ENDED || nodes_flags(overlay->nodes, stream->dir.id) & NODE_ENDED)
		return 0;
	r = store_dir_open(overlay->store[stream->side], &stream->dir.locator, &stream->store_dir);
	return fs_outcome(r);
}

static void stream_add(struct overlay *overlay, struct stream *stream)
{
	pthread_mutex_lock(&overlay->stream_lock);
	stream->next = overlay->streams;
	stream->link = &overlay->streams;
	if (stream->next)
		stream->next->link = &stream->next;
	overlay->streams = stream;
	pthread_mutex_unlock(&overlay->stream_lock);
}

static void stream_remove(struct overlay *overlay, struct stream *stream)
{
	pthread_mutex_lock(&overlay->stream_lock);
	*stream->link = stream->next;
	if (stream->next)
		stream->next->link = stream->link;
	pthread_mutex_unlock(&overlay->stream_lock);
	stream_free(stream);
}

static bool has_other_streams(struct overlay *overlay, uint64_t dir, enum side side)
{
	bool has = false;

	if (atomic_load(&overlay->flips) == 0)
		return false;
	pthread_mutex_lock(&overlay->stream_lock);
	for (struct stream *other = overlay->streams; other && !has; other = other->next)
		has = other->dir_id == dir && other->side != (int)side;
	pthread_mutex_unlock(&overlay->stream_lock);
	return has;
}

static unsigned listed_on(int side)
{
	return side == SIDE_A ? NODE_LISTED_A : NODE_LISTED_B;
}

/* Says whether the kernel may keep what it reads, and what it has. That it has a listing of
 * this side is noted with the first read, for until then it may not have dropped another. */
static void allow_caching(struct overlay *overlay, struct stream *stream, struct fuse_file_info *fi)
{
	if (has_other_streams(overlay, stream->dir_id, (enum side)stream->side))
		return;
	fi->cache_readdir = 1;
	if (nodes_flags(overlay->nodes, stream->dir_id) & listed_on(stream->side))
		fi->keep_cache = 1;
	else
		stream->is_refilling = true;
}

static void note_listing(struct overlay *overlay, struct stream *stream)
{
	unsigned ours = listed_on(stream->side);

	if (!stream->is_refilling)
		return;
	stream->is_refilling = false;
	nodes_set_flags(overlay->nodes, stream->dir_id, ours, NODE_LISTED & ~ours);
}

/* Rewound after a flip. The kernel, which still adds what this stream reads to the listing that
 * it has, first has to drop that; it holds no page of a directory while it waits for us. */
static int change_side(struct overlay *overlay, struct stream *stream)
{
	(void)fuse_lowlevel_notify_inval_inode(overlay->session, stream->dir_id, 0,
					       0); /* fails when there is nothing to drop */
	return stream_begin(overlay, stream->dir_id, stream);
}

void streams_free(struct overlay *overlay)
{
	while (overlay->streams)
		stream_remove(overlay, overlay->streams);
}

void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct overlay *overlay = overlay_of(req);
	struct stream *stream;
	int r;

	r = stream_new(overlay, ino, &stream);
	if (r < 0) {
		fs_reply_err(req, r);
		return;
	}
	allow_caching(overlay, stream, fi);
	stream_add(overlay, stream);
	fi->fh = (uintptr_t)stream;
	if (fuse_reply_open(req, fi) < 0)
		stream_remove(overlay, stream); /* no RELEASEDIR will come */
}

void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	stream_remove(overlay_of(req), stream_of(fi));
	fs_reply_done(req, 0);
}

void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int is_datasync, struct fuse_file_info *fi)
{
	struct overlay *overlay = overlay_of(req);
	struct stream *stream = stream_of(fi), *fresh = NULL;
	int r = 0;

	(void)is_datasync;
	/* What was changed since the flip is on the other side. */
	if (stream->side != (int)overlay_active(overlay)) {
		r = stream_new(overlay, ino, &fresh);
		stream = fresh;
	}
	if (r == 0) {
		pthread_mutex_lock(&stream->lock);
		r = stream_need(overlay, stream);
		if (r == 0 && stream->store_dir)
			r = fs_outcome(store_dir_fsync(stream->store_dir));
		pthread_mutex_unlock(&stream->lock);
	}
	stream_free(fresh);
	fs_reply_done(req, r);
}

/* ---- reading ------------------------------------------------------------- */

struct listing {
	fuse_req_t req;
	struct overlay *overlay;
	struct stream *stream;
	char *buffer;
	size_t size, used;
	bool is_plus;
};

/* Adds an entry without an inode for the kernel: false when it does not fit. */
static bool add_bare(struct listing *listing, const char *name, uint64_t ino, mode_t type,
		     uint64_t position)
{
	struct fuse_entry_param entry = { .attr = { .st_ino = ino, .st_mode = type } };
	char *at = listing->buffer + listing->used;
	size_t room = listing->size - listing->used, need;

	if (listing->is_plus)
		need = fuse_add_direntry_plus(listing->req, at, room, name, &entry,
					      (off_t)position);
	else
		need = fuse_add_direntry(listing->req, at, room, name, &entry.attr,
					 (off_t)position);
	if (need > room)
		return false;
	listing->used += need;
	return true;
}

static bool add_dots(struct listing *listing, uint64_t position)
{
	struct nodes *nodes = listing->overlay->nodes;
	uint64_t ino = listing->stream->dir.ino, parent_ino = ino;
	struct node dir, parent;

	if (position == 0 && !add_bare(listing, ".", ino, S_IFDIR, POSITION_DOT))
		return false;
	/* It may have been moved since it was opened. */
	if (nodes_get(nodes, listing->stream->dir_id, &dir) && dir.parent &&
	    nodes_get(nodes, dir.parent, &parent))
		parent_ino = parent.ino;
	return add_bare(listing, "..", parent_ino, S_IFDIR, POSITION_DOT_DOT);
}

/* The object of the stream's entry. -ENOENT: it has gone meanwhile. */
static int identify(struct listing *listing, struct node *ret_node, struct store_attr *ret_attr)
{
	struct stream *stream = listing->stream;
	struct overlay *overlay = listing->overlay;

	if (stream->entry.has_attr) {
		*ret_attr = stream->entry.attr;
		return overlay_intern(overlay, &stream->entry.locator, ret_attr, stream->dir.id,
				      ret_node);
	}
	return overlay_look_up(overlay, &stream->dir, stream->entry.name, ret_node, ret_attr);
}

/* Whether the stream is of the side that requests are served from. A stream of the other
 * gives names and types only: its objects and numbers are not to be handed out. */
static bool is_current(const struct listing *listing)
{
	return listing->stream->side == (int)overlay_active(listing->overlay);
}

static bool add_plus(struct listing *listing)
{
	const struct store_entry *entry = &listing->stream->entry;
	size_t room = listing->size - listing->used, need;
	struct fuse_entry_param param;
	struct store_attr attr;
	struct node node;

	need = fuse_add_direntry_plus(listing->req, NULL, 0, entry->name, NULL, 0);
	if (need > room)
		return false;
	/* What cannot be looked up now is named all the same: the kernel will ask. */
	if (!is_current(listing) || identify(listing, &node, &attr) < 0 ||
	    overlay_enter(listing->overlay, &node, &attr, &param) < 0)
		return add_bare(listing, entry->name, entry->ino, entry->type, entry->cookie);
	(void)fuse_add_direntry_plus(listing->req, listing->buffer + listing->used, room,
				     entry->name, &param, (off_t)entry->cookie);
	listing->used += need;
	return true;
}

static bool add_plain(struct listing *listing)
{
	const struct store_entry *entry = &listing->stream->entry;
	uint64_t ino = entry->ino;
	struct store_attr attr;
	struct node node;

	/* Before any flip objects show this side's own numbers. */
	if (atomic_load(&listing->overlay->flips) > 0 && is_current(listing) &&
	    identify(listing, &node, &attr) == 0)
		ino = node.ino;
	return add_bare(listing, entry->name, ino, entry->type, entry->cookie);
}

/* Puts the store's stream to after @position. */
static int seek(struct stream *stream, uint64_t position)
{
	int r;

	if (position == stream->position)
		return 0;
	stream->has_entry = false;
	r = fs_outcome(store_dir_seek(stream->store_dir, position));
	if (r == 0)
		stream->position = position;
	return r;
}

/* Fills the listing from @position on; an error only if it is still empty. */
static int fill(struct listing *listing, uint64_t position)
{
	struct stream *stream = listing->stream;
	int r = 0;

	if (position == 0 && !is_current(listing))
		r = change_side(listing->overlay, stream);
	if (r == 0)
		r = stream_need(listing->overlay, stream);
	if (r < 0 || !stream->store_dir)
		return r;
	if (position == 0 || position == POSITION_DOT) {
		if (!add_dots(listing, position))
			return listing->used ? 0 : -EINVAL;
		position = POSITION_DOT_DOT;
	}
	r = seek(stream, position == POSITION_DOT_DOT ? 0 : position);
	if (r < 0)
		return listing->used ? 0 : r;
	for (;;) {
		if (!stream->has_entry) {
			r = store_dir_next(stream->store_dir, &stream->entry);
			if (r != 0)
				return r == STORE_E_END || listing->used ? 0 : fs_outcome(r);
		}
		stream->has_entry = true;
		if (!overlay_is_hidden(listing->overlay, stream->dir.id, stream->entry.name) &&
		    !(listing->is_plus ? add_plus(listing) : add_plain(listing)))
			return 0;
		stream->has_entry = false;
		stream->position = stream->entry.cookie;
	}
}

static void read_dir(fuse_req_t req, size_t size, off_t offset, struct fuse_file_info *fi,
		     bool is_plus)
{
	struct listing listing = {
		.req = req,
		.overlay = overlay_of(req),
		.stream = stream_of(fi),
		.buffer = overlay_read_buffer(),
		.size = size < OVERLAY_IO_BYTES_MAX ? size : OVERLAY_IO_BYTES_MAX,
		.is_plus = is_plus,
	};
	int r = -ENOMEM;

	if (listing.buffer) {
		pthread_mutex_lock(&listing.stream->lock);
		note_listing(listing.overlay, listing.stream);
		r = fill(&listing, (uint64_t)offset);
		pthread_mutex_unlock(&listing.stream->lock);
	}
	if (r < 0)
		fs_reply_err(req, r);
	else
		(void)fuse_reply_buf(req, listing.buffer,
				     listing.used); /* lost lookups are harmless */
}

void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		struct fuse_file_info *fi)
{
	(void)ino;
	read_dir(req, size, offset, fi, /* is_plus= */ false);
}

void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		    struct fuse_file_info *fi)
{
	(void)ino;
	read_dir(req, size, offset, fi, /* is_plus= */ true);
}
