/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * A store: one side of a migration, a directory tree reached by locator. The
 * overlay's file operations and the migrator are written once, against this.
 *
 * All calls block until the outcome is known, and may be made by any number of
 * threads at once, unless said otherwise. Names are one component, as bytes:
 * 1 to 255 of them, no '/' and no NUL, ended by NUL; "." and ".." are never
 * passed. No symlink is ever followed. Pointers are borrowed for the call
 * unless said otherwise; `ret_` outputs are untouched on failure and may be
 * NULL where they say so.
 *
 * Failures are negative errno, as the file system below gives them: above all
 * -ENOENT and -ESTALE (the object a locator named is gone), -EEXIST, -ENOTDIR,
 * -ENOTEMPTY, -EINVAL (a directory into its own subtree), -ENOSPC, -EDQUOT,
 * -EROFS, -EACCES, -EPERM, -EOPNOTSUPP (this store cannot do that at all), -EIO.
 *
 * A remote store that was opened with reports_unknown adds: -EHOSTDOWN (the server could
 * not be reached for 30 seconds; nothing was changed) and -EAGAIN (it said for two
 * minutes that it is busy; nothing was changed). Both are worth another try later.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>

#include "util/attr.h"
#include "util/locator.h"

/* Outcomes the direct caller must handle (positive; failures are negative errno). */
enum {
	/* The connection was lost with the request under way: it may have been done,
	 * not been done, or still be done later. Only a remote store that was opened
	 * with reports_unknown gives it, and only from calls that change something. */
	STORE_E_UNKNOWN = 1,
	/* store_commit(): part of what was written since the last commit may be gone. */
	STORE_E_LOST,
	/* store_dir_next(): no more entries. */
	STORE_E_END,
};

struct store;	   /* opaque */
struct store_file; /* opaque: an open file */
struct store_dir;  /* opaque: a directory stream */

struct store_attr {
	mode_t mode; /* type and permission bits */
	uint32_t nlink;
	uint32_t uid, gid;
	uint64_t ino; /* this side's own */
	uint64_t size, blocks; /* bytes; units of 512 bytes */
	uint32_t block_size;   /* preferred for I/O */
	dev_t rdev;
	struct timespec atime, mtime, ctime;
};

enum {
	STORE_SET_MODE = 1 << 0,
	STORE_SET_UID = 1 << 1,
	STORE_SET_GID = 1 << 2,
	STORE_SET_SIZE = 1 << 3,
	STORE_SET_ATIME = 1 << 4,
	STORE_SET_MTIME = 1 << 5,
	STORE_SET_ATIME_NOW = 1 << 6,
	STORE_SET_MTIME_NOW = 1 << 7,
};

struct store_setattr {
	unsigned valid; /* STORE_SET_* */
	mode_t mode;	/* permission bits, suid, sgid, sticky */
	uint32_t uid, gid;
	uint64_t size;
	struct timespec atime, mtime;
};

/* Who creates: the file system below gives the new object this owner, its group
 * rules (setgid directories), its default ACL, and the umask, as for a process of
 * that identity. Permission to create has been checked by the kernel already. */
struct store_cred {
	uint32_t uid, gid;
	mode_t umask;
	unsigned group_count;
	const uint32_t *groups;
};

/* What to create. */
struct store_new {
	mode_t mode;		 /* type and permission bits; S_IFLNK for a symlink */
	dev_t rdev;		 /* S_IFCHR, S_IFBLK */
	const char *link_target; /* S_IFLNK */
	/* Created as this identity; or, when NULL, as root with exactly @mode and
	 * with owner @uid:@gid, whatever umask and default ACL would make of it. */
	const struct store_cred *cred;
	uint32_t uid, gid;
};

struct store_entry {
	const char *name; /* valid until the next call on the stream; "." and ".." are left out */
	uint64_t ino;
	mode_t type;	 /* S_IFMT bits, 0: not known */
	uint64_t cookie; /* store_dir_seek() with it goes on *after* this entry */
	bool has_attr;	 /* the listing itself brought locator and attr (READDIRPLUS) */
	struct locator locator;
	struct store_attr attr;
};

struct store_caps {
	const char *type;	/* "posix" or "nfs" */
	bool is_local;		/* an unlinked open file stays usable; no silly renames */
	bool is_volatile;	/* memory-backed: store_commit() has nothing to do */
	bool has_handles;	/* locators survive renames */
	bool has_xattr;		/* user.* and trusted.* */
	bool has_acl;		/* POSIX ACLs */
	bool has_punch_hole;	/* store_fallocate() PUNCH_HOLE */
	bool has_tmpfile;
	bool has_symlink_times; /* a symlink's own times can be set */
	bool has_rename_flags;	/* RENAME_NOREPLACE and RENAME_EXCHANGE are atomic */
	uint64_t time_granularity_ns; /* 1, or what the target rounds to */
	unsigned parallel_max;	/* calls in flight that still help */
	uint32_t io_size_max;	/* bytes a single read or write call moves at best */
};

/* ---- life ---------------------------------------------------------------- */

/* Opens the directory tree at @path (absolute) through a private clone of its
 * mount, so that what is mounted over @path later is not entered. Fails with
 * -EOPNOTSUPP when the file system has no usable file handles. On success the
 * caller owns *@ret_store. The errors are logged with remedy. */
int store_posix_open(const char *path, struct store **ret_store) MUST_CHECK;

/* Opens nfs://host/export[?nfsport=N&mountport=N] (NFSv3 over TCP). @connections
 * is 1 to 8. With @reports_unknown calls return STORE_E_UNKNOWN when a connection
 * was lost under them; without, a call is repeated until its outcome is known (a
 * hard mount), which store_set_reports_unknown() switches to at the flip. */
int store_nfs_open(const char *url, unsigned connections, bool reports_unknown,
		   struct store **ret_store) MUST_CHECK;

void store_set_reports_unknown(struct store *store, bool reports_unknown);

/* When (clock_ms()) a connection was last lost with changing calls under way that may
 * still land, also after newer ones: whoever got STORE_E_UNKNOWN waits until this is long
 * enough ago. 0: never, or the server was restarted since (its write verifier changed), so
 * that nothing can land any more. Always 0 for a posix store. */
uint64_t store_last_loss_ms(struct store *store);

/* Ends it; no call may be under way and every file and stream is closed. NULL is
 * allowed. Returns NULL. */
struct store *store_close(struct store *store);

const struct store_caps *store_caps(const struct store *store);

/* A text that names this tree for good: for a posix store the file system's id and
 * the root's handle, for nfs server and export; compared at a restart.
 * Valid as long as @store. */
const char *store_identity(const struct store *store);

/* Finds out by trying, in a private directory that it removes again, whether this
 * store takes what a target must take (ownership, modes, times, links, special
 * files), and fills the caps. Fails with -EROFS, -ENOSPC, -EPERM (root squash), ...
 * after logging what is wrong and what to do. */
int store_probe_target(struct store *store) MUST_CHECK;

/* ---- objects by locator -------------------------------------------------- */

void store_root(struct store *store, struct locator *ret_locator);
int store_lookup(struct store *store, const struct locator *dir, const char *name,
		 struct locator *ret_locator, struct store_attr *ret_attr) MUST_CHECK;
int store_getattr(struct store *store, const struct locator *object, struct store_attr *ret_attr) MUST_CHECK;

/* Sets what @set->valid names, in this order: size, owner, mode, times; so that suid
 * and sgid bits given with an owner survive. If it names nothing, a local store moves the
 * change time, as chown(-1, -1) does. @ret_attr may be NULL; else the attributes after it. */
int store_setattr(struct store *store, const struct locator *object, const struct store_setattr *set,
		  struct store_attr *ret_attr) MUST_CHECK;

/* Creates @name (file, directory, symlink, special file) and never replaces: -EEXIST.
 * @ret_locator and @ret_attr may not be NULL. */
int store_create(struct store *store, const struct locator *dir, const char *name,
		 const struct store_new *new, struct locator *ret_locator,
		 struct store_attr *ret_attr) MUST_CHECK;

/* The same; a regular file is left open for reading and writing where that costs nothing
 * (*@ret_file owned by the caller), else *@ret_file is NULL. */
int store_create_open(struct store *store, const struct locator *dir, const char *name,
		      const struct store_new *new, struct locator *ret_locator,
		      struct store_attr *ret_attr, struct store_file **ret_file) MUST_CHECK;

/* Creates a file without a name on the file system of @dir and opens it read-write;
 * the object lives as long as *@ret_file (owned by the caller) or a link made to it
 * by store_link(). @is_linkable: not O_EXCL. */
int store_tmpfile(struct store *store, const struct locator *dir, const struct store_new *new,
		  bool is_linkable, struct locator *ret_locator, struct store_attr *ret_attr,
		  struct store_file **ret_file) MUST_CHECK;

int store_link(struct store *store, const struct locator *object, const struct locator *dir,
	       const char *name) MUST_CHECK;
/* @flags: 0, RENAME_NOREPLACE or RENAME_EXCHANGE; -EINVAL where it is not possible. */
int store_rename(struct store *store, const struct locator *old_dir, const char *old_name,
		 const struct locator *new_dir, const char *new_name, unsigned flags) MUST_CHECK;
int store_unlink(struct store *store, const struct locator *dir, const char *name) MUST_CHECK;
int store_rmdir(struct store *store, const struct locator *dir, const char *name) MUST_CHECK;

/* Fills @buffer with the NUL-ended target. -ERANGE if it is longer than @size - 1. */
int store_readlink(struct store *store, const struct locator *object, char *buffer, size_t size) MUST_CHECK;

/* As getxattr(2), listxattr(2) (sizes, -ERANGE, -ENODATA), setxattr(2) (@flags),
 * removexattr(2). */
ssize_t store_getxattr(struct store *store, const struct locator *object, const char *name, void *value,
		       size_t size) MUST_CHECK;
ssize_t store_listxattr(struct store *store, const struct locator *object, char *list,
			size_t size) MUST_CHECK;
int store_setxattr(struct store *store, const struct locator *object, const char *name,
		   const void *value, size_t size, int flags) MUST_CHECK;
int store_removexattr(struct store *store, const struct locator *object, const char *name) MUST_CHECK;

/* ---- directory streams --------------------------------------------------- */

/* One stream is used by one thread at a time. The stream outlives renames and the
 * removal of the directory, as an open directory does. */
int store_dir_open(struct store *store, const struct locator *dir, struct store_dir **ret_dir) MUST_CHECK;
/* The next entry, STORE_E_END, or an error. @entry is filled, owned by the caller. */
int store_dir_next(struct store_dir *dir, struct store_entry *ret_entry) MUST_CHECK;
/* @cookie 0 is the beginning. */
int store_dir_seek(struct store_dir *dir, uint64_t cookie) MUST_CHECK;
int store_dir_fsync(struct store_dir *dir) MUST_CHECK;
struct store_dir *store_dir_close(struct store_dir *dir);

/* ---- open files ---------------------------------------------------------- */

enum {
	STORE_OPEN_READ = 1 << 0,
	STORE_OPEN_WRITE = 1 << 1,
	STORE_OPEN_NOATIME = 1 << 2, /* reading leaves the atime as it is */
	STORE_OPEN_REGULAR = 1 << 3, /* the caller has seen that it is one: saves a check */
};

/* Opens a regular file. Never blocks on fifos: anything else is -EINVAL. A remote store makes
 * no call for it: that the object is gone (-ESTALE) shows at the first use. */
int store_open(struct store *store, const struct locator *object, unsigned flags,
	       struct store_file **ret_file) MUST_CHECK;
struct store_file *store_file_close(struct store_file *file);

/* The file descriptor below, or -1 where there is none (nfs). Borrowed. */
int store_file_fd(const struct store_file *file);

/* Reads up to @size bytes; fewer only at the end of the file. */
ssize_t store_read(struct store_file *file, void *buffer, size_t size, uint64_t offset) MUST_CHECK;

/* Writes all of it: returns 0, or an error after which any part may have been
 * written. @is_stable: durable when it returns (remote stores; a posix store leaves
 * it to store_fsync() and store_commit()). */
int store_write(struct store_file *file, const void *buffer, size_t size, uint64_t offset,
		bool is_stable) MUST_CHECK;
/* As write(2): what went in before there was an error (no space, say), or the error. */
ssize_t store_write_some(struct store_file *file, const void *buffer, size_t size, uint64_t offset,
			 bool is_stable) MUST_CHECK;
int store_file_getattr(struct store_file *file, struct store_attr *ret_attr) MUST_CHECK;
/* As store_listxattr() of the open file; -EOPNOTSUPP also where only that can list. */
ssize_t store_file_listxattr(struct store_file *file, char *list, size_t size) MUST_CHECK;
int store_file_setattr(struct store_file *file, const struct store_setattr *set,
		       struct store_attr *ret_attr) MUST_CHECK;
int store_fsync(struct store_file *file, bool is_datasync) MUST_CHECK;
/* @mode as fallocate(2). A store that cannot does what has the same effect on the
 * bytes (zeros written for PUNCH_HOLE and ZERO_RANGE, the size set), or says
 * -EOPNOTSUPP. */
int store_fallocate(struct store_file *file, int mode, uint64_t offset, uint64_t length) MUST_CHECK;
/* @whence SEEK_DATA or SEEK_HOLE: the offset, -ENXIO; a store that cannot tell says
 * that all is data. */
int64_t store_seek(struct store_file *file, uint64_t offset, int whence) MUST_CHECK;
/* As copy_file_range(2) within one store. */
ssize_t store_copy_range(struct store_file *in, uint64_t offset_in, struct store_file *out,
			 uint64_t offset_out, size_t size) MUST_CHECK;

/* ---- the whole ----------------------------------------------------------- */

/* All changes that returned before this call are durable when it returns 0. With
 * STORE_E_LOST (a server restarted) unstable writes that this or an earlier call of
 * the same time covered may be gone: whoever waits for this commit does its writes again.
 * What was lost is said once: one committer speaks for all who wrote since the commit before.
 * -EHOSTDOWN and -EAGAIN leave everything as it was, to be committed again. Any other error
 * means the same as STORE_E_LOST. */
int store_commit(struct store *store) MUST_CHECK;

int store_statfs(struct store *store, struct statvfs *ret_statvfs) MUST_CHECK;
