/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * What the modules of the overlay share; nobody else includes it.
 *
 * Lives.
 *  - A *node* is made when the kernel is first told of an object (entry reply, or an
 *    entry of READDIRPLUS) and ends when FORGET has taken back every such telling.
 *    Its id is the object's id in the journal: never used again, so that a handle of
 *    any age names one object or nothing. Handlers work on a copy.
 *  - A *cached file* is opened by the first read or write of an object and closed when
 *    it is the least recently used one too many, when its object is forgotten, or at
 *    the flip. It is always of the active side.
 *  - A *leftover* is an object whose last name was removed, or which never had one
 *    (O_TMPFILE), and which the kernel still knows: without OPEN and RELEASE that is all
 *    we can know about "is it still open". It is made before the name goes and ends at
 *    FORGET, which for this waits for an open gate. While it lives its file is kept
 *    open (a local store), or a name in limbo keeps it (others, and after a flip).
 *  - A *parked request* is a raw message, owned by the gate's queue until it is let
 *    through, interrupted, or the overlay ends.
 *  - A *stream* lives from OPENDIR to RELEASEDIR, on the side it was opened on.
 *
 * The side. Handlers read `active` after their request has passed the gate, which
 * counts them until they have answered; overlay_switch() writes it when nobody is
 * inside. So one request sees one side.
 *
 * Locks, in the order of taking: the stream's lock (held across the store's and the
 * journal's calls: it is what makes a stream one thread's), then any one of: the
 * gate's mutex, the cache's mutex, the leftovers', the list of streams', the notifier's, the
 * capabilities', and under that one a shard of the nodes. These are leaves: none is held across a call to a store, the journal, or libfuse.
 */

#define FUSE_USE_VERSION FUSE_MAKE_VERSION(3, 17)

#include <errno.h>
#include <fuse_lowlevel.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "fs/overlay/crew.h"
#include "fs/overlay/fdcache.h"
#include "fs/overlay/gate.h"
#include "fs/overlay/nodes.h"
#include "fs/overlay/notifier.h"
#include "fs/overlay/overlay.h"

enum {
	OVERLAY_IO_BYTES_MAX = 1 << 20, /* of one READ or WRITE */
	OVERLAY_FILES_MAX = 1024,	/* idle open files; older ones are closed */
	OVERLAY_BACKGROUND_MAX = 4096,	/* asynchronous requests; more wait in the kernel */
	OVERLAY_THREADS_MAX = 64,
	OVERLAY_RELEASERS_MAX = 4,     /* threads that let parked requests through */
	OVERLAY_TIDY_NODES = 10000,    /* forgotten: then their memory is given back */
	OVERLAY_CACHE_SECONDS = 86400, /* entries and attributes: we are the only way in */
};

struct leftover; /* opaque: leftover.c */
struct stream;	 /* opaque: op_dir.c */

struct overlay {
	/* Set at open, read by all. */
	char *mountpoint, *fsname, *limbo_name; /* owned */
	struct store *store[SIDE_MAX];
	struct journal *journal;
	struct marks *marks;
	struct orphans *orphans;
	struct gate *gate;
	struct crew *crew;
	struct notifier *notifier;
	struct nodes *nodes;
	struct fdcache *files;

	_Atomic int active;	/* enum side; written with nobody inside the gate */
	_Atomic uint64_t flips; /* that this migration has had */

	unsigned pins_max; /* leftovers kept by an open file; more go to limbo */
	_Atomic unsigned pins;

	pthread_mutex_t leftover_lock;
	struct leftover **leftovers; /* guarded by leftover_lock */

	pthread_mutex_t stream_lock;
	struct stream *streams; /* guarded by stream_lock */

	struct fuse_session *session;
	int device_fd; /* the session's */
	int ended_fd;  /* eventfd */
	atomic_bool is_ended;
	int init_error; /* of INIT; read after it was answered */
	bool is_ready;	/* INIT was answered */
	bool is_debug, is_writeback;
	enum overlay_opens opens;
	pthread_t threads[OVERLAY_THREADS_MAX + OVERLAY_RELEASERS_MAX + 1]; /* and the watcher */
	pthread_t notifier_thread; /* ends after them */
	bool has_notifier;
	unsigned thread_count;

	pthread_mutex_t capability_lock;
	uint64_t capability_changes; /* begun and ended; guarded by capability_lock */

	_Atomic uint64_t requests, changes, read_bytes, written_bytes;
	uint64_t nodes_most; /* since the last tidying; of the thread that does it */
};

static inline enum side overlay_active(const struct overlay *overlay)
{
	return (enum side)atomic_load(&overlay->active);
}

static inline struct store *overlay_store(const struct overlay *overlay)
{
	return overlay->store[overlay_active(overlay)];
}

static inline struct overlay *overlay_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

/* ---- mount.c -------------------------------------------------------------- */

/* Mounts over the mount point and hands the device to the session. */
int overlay_mount_device(struct overlay *overlay) MUST_CHECK;
int overlay_make_session(struct overlay *overlay) MUST_CHECK;
/* Of a mount that is served already. */
void overlay_lift_writeback_limits(struct overlay *overlay);

/* ---- session.c: the receive loop ----------------------------------------- */

/* What the raw message says and libfuse does not hand on; of the calling thread. */
struct request {
	uint32_t opcode;
	bool kills_privileges; /* suid and sgid are to be cleared */
	bool sets_nothing;     /* a SETATTR: chown(-1, -1), or the kernel's own clearing */
	bool acl_kills_sgid;   /* sgid is to be cleared */
};

const struct request *overlay_request(void);

/* A buffer of OVERLAY_IO_BYTES_MAX for the calling thread, or NULL. */
void *overlay_read_buffer(void);

/* Answers INIT; then overlay->is_ready or overlay->init_error is set. */
int overlay_session_greet(struct overlay *overlay) MUST_CHECK;
int overlay_session_start(struct overlay *overlay, unsigned threads) MUST_CHECK;
/* Waits for the threads, which end when the mount has. */
void overlay_session_join(struct overlay *overlay);

/* Parks the end of leftover @id until the gate opens. GATE_E_OPEN, -ENOMEM. */
int overlay_park_forget(struct overlay *overlay, uint64_t id) MUST_CHECK;

/* ---- locate.c: ids, locators, entries ------------------------------------ */

/* A copy of the node @id with a locator on the active side. -ESTALE, -EIO. */
int overlay_find(struct overlay *overlay, uint64_t id, struct node *ret_node) MUST_CHECK;

/* The object with @locator, as a node below @parent (0: none); not entered yet. */
int overlay_intern(struct overlay *overlay, const struct locator *locator,
		   const struct store_attr *attr, uint64_t parent,
		   struct node *ret_node) MUST_CHECK;

/* The same for one that was just made. Its record is composed, and has to be flushed before
 * anybody hears of the id: marks_put_whole() does. */
int overlay_intern_new(struct overlay *overlay, const struct locator *locator,
		       const struct store_attr *attr, uint64_t parent,
		       struct node *ret_node) MUST_CHECK;

/* What @name in @dir is: -ENOENT if nothing, or nothing to be shown. */
int overlay_look_up(struct overlay *overlay, const struct node *dir, const char *name,
		    struct node *ret_node, struct store_attr *ret_attr) MUST_CHECK;

/* Whether @name in @dir is our own: never shown, never made. */
bool overlay_is_hidden(const struct overlay *overlay, uint64_t dir, const char *name);

/* Counts the kernel's reference on @node and fills @ret_entry for it. */
int overlay_enter(struct overlay *overlay, struct node *node, const struct store_attr *attr,
		  struct fuse_entry_param *ret_entry) MUST_CHECK;
void overlay_forget(struct overlay *overlay, uint64_t id, uint64_t lookups);

/* ---- attr.c -------------------------------------------------------------- */

/* The attributes of @node, also of a leftover. */
int overlay_getattr(struct overlay *overlay, const struct node *node,
		    struct store_attr *ret_attr) MUST_CHECK;
/* Takes our own directory out of the root's link count. */
void overlay_hide_limbo(struct overlay *overlay, const struct node *node, struct store_attr *attr);
/* As the workload is to see them. */
void overlay_stat(struct overlay *overlay, const struct node *node, const struct store_attr *attr,
		  struct stat *ret_stat);
/* What is left of the @mode of a file of @group when @req, from a client without
 * CAP_FSETID, has changed it. */
mode_t mode_without_privileges(fuse_req_t req, mode_t mode, uint32_t group);
/* Does that to node @id if @req, the request being served, asks for it. */
int overlay_drop_privileges(fuse_req_t req, uint64_t id) MUST_CHECK;

/* ---- caller.c ------------------------------------------------------------ */

enum { CALLER_GROUPS_MAX = 1024 }; /* more are left out: the kernel has checked already */

struct caller {
	struct store_cred cred;
	uint32_t groups[CALLER_GROUPS_MAX];
};

/* First of all in each thread that serves. */
void caller_init_thread(void);
/* Who sent @req; *@ret_caller must not move, cred points into it. */
void caller_get(fuse_req_t req, struct caller *ret_caller);
/* Whether who sent @req is of @group, or root. Reads /proc when it is not the first one
 * of its groups: for what is rare. */
bool caller_is_in_group(fuse_req_t req, uint32_t group);

/* ---- leftover.c ---------------------------------------------------------- */

/* What stands at a name that is about to go. */
struct victim {
	bool is_there;
	bool is_known; /* it has an id */
	bool is_last;  /* of its names */
	bool is_unpaired;
	struct node node;
	struct store_attr attr;
	struct leftover *leftover; /* owned, between begin and end */
	char limbo[ORPHAN_NAME_BYTES];
};

/* Looks; nothing there is no error. */
int victim_look(struct overlay *overlay, const struct node *dir, const char *name,
		struct victim *ret_victim) MUST_CHECK;
/* Adds its marks to @change, which borrows from @victim. */
void victim_mark(struct victim *victim, struct marks_change *change);
/* Within the change, before the operation: makes sure that the object outlives it. */
int victim_begin(struct overlay *overlay, struct victim *victim) MUST_CHECK;
/* Within the change, after the operation. */
void victim_end(struct overlay *overlay, struct victim *victim, bool is_gone);

/* The table: NULL when memory is short. Freed by free() when it is empty. */
struct leftover **leftovers_new(void);

/* Whether there is a limbo on the active side. */
bool limbo_exists(struct overlay *overlay);
/* A file made without a name, within a change of its limbo name. @file is taken. */
int leftover_add_tmpfile(struct overlay *overlay, uint64_t id, struct store_file *file) MUST_CHECK;
/* Leftover @id got a name; within a change of its limbo name. */
void leftover_rescue(struct overlay *overlay, uint64_t id);
/* The kernel has forgotten leftover @id; takes place when the gate is open. */
void leftover_forget(struct overlay *overlay, uint64_t id);
/* The same within the gate. */
void leftover_end(struct overlay *overlay, uint64_t id);
/* Attributes of a NODE_ENDED one. 0 or -ESTALE. */
int leftover_getattr(struct overlay *overlay, uint64_t id, struct store_attr *ret_attr) MUST_CHECK;
int leftover_setattr(struct overlay *overlay, uint64_t id, const struct store_setattr *set,
		     struct store_attr *ret_attr) MUST_CHECK;
/* All reads are held: leftovers live in limbo from here on. */
void leftovers_switch(struct overlay *overlay);
/* At a start, on side A: what a daemon that died has left in limbo is nobody's any more. As
 * long as it stands there it is alive to the migrator, which waits for its end. */
void leftovers_clear(struct overlay *overlay);
/* The mount has ended: so have they. */
void leftovers_end_all(struct overlay *overlay, bool is_frozen);

/* ---- replies ------------------------------------------------------------- */

/* The one place where the sign is turned: @r is negative. */
static inline void fs_reply_err(fuse_req_t req, int r)
{
	assert(r < 0);
	(void)fuse_reply_err(req, -r); /* fails when the client or the mount is gone */
}

/* For operations that answer with nothing but success: @r is 0 or negative. */
static inline void fs_reply_done(fuse_req_t req, int r)
{
	assert(r <= 0);
	(void)fuse_reply_err(req, -r); /* as above */
}

/* Answers an open: files are reached by object, pages stay valid, nothing waits for close. */
static inline void overlay_opened(struct fuse_file_info *fi)
{
	fi->fh = 0;
	fi->keep_cache = 1;
	fi->noflush = 1;
	fi->parallel_direct_writes = 1;
}

/* A store's outcome for a client: what it does not know is an I/O error. */
static inline int fs_outcome(int r)
{
	return r > 0 ? -EIO : r;
}

/* The mount has ended: of an aborted one no RELEASEDIR came. */
void streams_free(struct overlay *overlay);

/* ---- operations ---------------------------------------------------------- */

void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t lookups);
void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets);
void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
	       struct fuse_file_info *fi);
void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev);
void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name);
void op_tmpfile(fuse_req_t req, fuse_ino_t parent, mode_t mode, struct fuse_file_info *fi);
void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name);

void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_rename(fuse_req_t req, fuse_ino_t old_parent, const char *old_name, fuse_ino_t new_parent,
	       const char *new_name, unsigned flags);

void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int valid,
		struct fuse_file_info *fi);
void op_readlink(fuse_req_t req, fuse_ino_t ino);
void op_statfs(fuse_req_t req, fuse_ino_t ino);
void op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned cmd, void *arg, struct fuse_file_info *fi,
	      unsigned flags, const void *in, size_t in_size, size_t out_size);

void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi);
void op_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t offset,
	      struct fuse_file_info *fi);
void op_fsync(fuse_req_t req, fuse_ino_t ino, int is_datasync, struct fuse_file_info *fi);
void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
		  struct fuse_file_info *fi);
void op_copy_file_range(fuse_req_t req, fuse_ino_t ino_in, off_t offset_in,
			struct fuse_file_info *fi_in, fuse_ino_t ino_out, off_t offset_out,
			struct fuse_file_info *fi_out, size_t size, int flags);

void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		struct fuse_file_info *fi);
void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		    struct fuse_file_info *fi);
void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int is_datasync, struct fuse_file_info *fi);

void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size,
		 int flags);
void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name);
