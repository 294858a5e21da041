/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The parts of the NFS store as they see each other. Only nfs*.c include this.
 *
 * Operations have the contract of the public
 * function of the same name in store.h.
 */

#include <pthread.h>
#include <stdatomic.h>

#include "fs/store/nfs_call.h"
#include "fs/store/nfs_conn.h"
#include "fs/store/nfs_handle.h"
#include "fs/store/nfs_lib.h"
#include "fs/store/nfs_loss.h"
#include "fs/store/nfs_unstable.h"
#include "fs/store/nfs_url.h"
#include "fs/store/store_ops.h"

enum {
	NFSSTORE_CONNECTIONS_MAX = 8,
	NFSSTORE_TIMEOUT_MS = 30 * 1000, /* FERRYFS_NFS_TIMEOUT_MS in the environment: tests */
	NFSSTORE_OPEN_MS_MAX = 10 * 1000,
	NFSSTORE_IO_BYTES_MAX = 1024 * 1024, /* libnfs 4 reads no longer replies */
	NFSSTORE_IO_BYTES_MIN = 512,
	NFSSTORE_BLOCK_BYTES = 64 * 1024, /* what files say is good for I/O */
	NFSSTORE_WINDOW = 8,		  /* calls that one read or write keeps under way */
	NFSSTORE_DIR_LOCKS = 64,
};

static_assert((int)NFSSTORE_CONNECTIONS_MAX <= (int)NFSLOSS_SLOTS_MAX,
	      "each connection has a slot");

struct nfsstore {
	struct store base; /* first */
	struct nfsurl url;
	struct locator root;
	uint32_t read_bytes_max, write_bytes_max;
	unsigned timeout_ms;
	atomic_bool reports_unknown;
	atomic_uint xid; /* of the next call, whatever its connection */
	atomic_uint next_conn;
	struct nfsconn conns[NFSSTORE_CONNECTIONS_MAX];
	unsigned conn_count;
	struct nfsloss loss;

	pthread_rwlock_t dir_locks[NFSSTORE_DIR_LOCKS]; /* see nfs_dirs.c */

	struct nfsunstable unstable;
	/* Order lock: commits come one after the other; held across their calls. */
	pthread_mutex_t commit_lock;
	atomic_uint failed_commits, running_commits;
};

struct nfsfile {
	struct store_file base; /* first */
	struct nfsstore *store;
	struct locator object;
};

static inline struct nfsstore *nfsstore_of(struct store *store)
{
	return (struct nfsstore *)store;
}

static inline struct nfsfile *nfsfile_of(struct store_file *file)
{
	return (struct nfsfile *)file;
}

/* ---- nfs_dirs.c: calls beside a rename ------------------------------------ */

void nfsdirs_init(struct nfsstore *store);
void nfsdirs_done(struct nfsstore *store);
/* nfscall_run() of a call that names something in @dir, ... */
int nfsdirs_run(struct nfsstore *store, const nfs_fh3 *dir, struct nfscall *call) MUST_CHECK;
/* ... and of a rename, alone in both directories if it leaves one. */
int nfsdirs_run_rename(struct nfsstore *store, const nfs_fh3 *from, const nfs_fh3 *to,
		       struct nfscall *call) MUST_CHECK;

/* ---- nfs_attr.c: conversions, attributes -------------------------------- */

void nfsattr_from_wire(const fattr3 *wire, struct store_attr *ret_attr);

/* An attribute that a reply may or may not bring. */
struct nfsattr_maybe {
	bool is_there;
	struct store_attr attr;
};
void nfsattr_from_post_op(const post_op_attr *wire, struct nfsattr_maybe *ret_attr);

int nfsattr_get(struct store *store, const struct locator *object,
		struct store_attr *ret_attr) MUST_CHECK;
int nfsattr_set(struct store *store, const struct locator *object, const struct store_setattr *set,
		struct store_attr *ret_attr) MUST_CHECK;
/* Sets the size if the object's ctime still is that of @seen: 0, or -EAGAIN if not. */
int nfsattr_set_size_guarded(struct nfsstore *store, const struct locator *object, uint64_t size,
			     const struct store_attr *seen) MUST_CHECK;
int nfsattr_statfs(struct store *store, struct statvfs *ret_statvfs) MUST_CHECK;

/* What the server says of itself: the I/O sizes and its time granularity. */
int nfsattr_fsinfo(struct nfsstore *store) MUST_CHECK;

/* ---- nfs_name.c, nfs_create.c: names -------------------------------------- */

int nfsname_lookup(struct store *store, const struct locator *dir, const char *name,
		   struct locator *ret_locator, struct store_attr *ret_attr) MUST_CHECK;
int nfsname_link(struct store *store, const struct locator *object, const struct locator *dir,
		 const char *name) MUST_CHECK;
int nfsname_rename(struct store *store, const struct locator *old_dir, const char *old_name,
		   const struct locator *new_dir, const char *new_name, unsigned flags) MUST_CHECK;
int nfsname_unlink(struct store *store, const struct locator *dir, const char *name) MUST_CHECK;
int nfsname_rmdir(struct store *store, const struct locator *dir, const char *name) MUST_CHECK;
int nfsname_readlink(struct store *store, const struct locator *object, char *buffer,
		     size_t size) MUST_CHECK;
int nfscreate(struct store *store, const struct locator *dir, const char *name,
	      const struct store_new *new, struct locator *ret_locator,
	      struct store_attr *ret_attr) MUST_CHECK;

/* ---- nfs_dir.c: listing ---------------------------------------------------- */

int nfsdir_list_open(struct store *store, const struct locator *dir,
		     struct store_dir **ret_dir) MUST_CHECK;
int nfsdir_list_next(struct store_dir *dir, struct store_entry *ret_entry) MUST_CHECK;
int nfsdir_list_seek(struct store_dir *dir, uint64_t cookie) MUST_CHECK;
int nfsdir_list_fsync(struct store_dir *dir) MUST_CHECK;
struct store_dir *nfsdir_list_close(struct store_dir *dir);

/* ---- nfs_file.c, nfs_range.c: files ------------------------------------------ */

int nfsfile_open(struct store *store, const struct locator *object, unsigned flags,
		 struct store_file **ret_file) MUST_CHECK;
struct store_file *nfsfile_close(struct store_file *file);
int nfsfile_fd(const struct store_file *file);
ssize_t nfsfile_read(struct store_file *file, void *buffer, size_t size,
		     uint64_t offset) MUST_CHECK;
int nfsfile_write(struct store_file *file, const void *buffer, size_t size, uint64_t offset,
		  bool is_stable) MUST_CHECK;
int nfsfile_getattr(struct store_file *file, struct store_attr *ret_attr) MUST_CHECK;
int nfsfile_setattr(struct store_file *file, const struct store_setattr *set,
		    struct store_attr *ret_attr) MUST_CHECK;
int nfsfile_fallocate(struct store_file *file, int mode, uint64_t offset,
		      uint64_t length) MUST_CHECK;
int64_t nfsfile_seek(struct store_file *file, uint64_t offset, int whence) MUST_CHECK;
ssize_t nfsfile_copy_range(struct store_file *in, uint64_t offset_in, struct store_file *out,
			   uint64_t offset_out, size_t size) MUST_CHECK;

/* ---- nfs_commit.c: durability ------------------------------------------------ */

int nfscommit_all(struct store *store) MUST_CHECK;
int nfscommit_file(struct store_file *file, bool is_datasync) MUST_CHECK;

/* ---- nfs_probe.c ---------------------------------------------------------------- */

int nfsprobe_target(struct store *store) MUST_CHECK;
