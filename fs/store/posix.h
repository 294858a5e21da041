/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * What the modules of the posix store share; nobody else includes it.
 *
 * A locator is the file handle: four bytes of type, as the kernel gives them, and
 * the handle itself. An operation turns it into a descriptor (a ref) for its own
 * duration; only directories stay open longer, in the dir_cache.
 *
 * Descriptors of objects are O_PATH unless the object is known to be a regular file
 * or a directory: opening a fifo blocks or wakes its other end, opening a device
 * acts on it.
 */

#include <stddef.h>
#include <sys/stat.h>

#include "fs/store/dir_cache.h"
#include "fs/store/store_ops.h"

/* Attributes of file systems that decide what a store on them can do. */
struct posix_fs_type {
	unsigned long magic;
	const char *name;
	bool is_remote;	     /* an unlinked open file may not survive */
	bool is_volatile;    /* memory-backed */
	bool has_no_handles; /* or handles that die with the kernel's cache */
};

struct posix_store {
	struct store base; /* first */
	const struct posix_fs_type *fs_type;
	char *path;   /* owned; for messages, never opened again */
	int mount_fd; /* the private clone of the mount; it lives as long as this */
	int root_fd;  /* O_RDONLY: open_by_handle_at() and syncfs() refuse O_PATH */
	struct locator root;
	struct dir_cache *dirs;
};

static inline struct posix_store *posix_store(struct store *store)
{
	static_assert(offsetof(struct posix_store, base) == 0, "cast");
	return (struct posix_store *)store;
}

/* ---- posix_handle.c ------------------------------------------------------ */

/* An object's descriptor for the time of one operation. */
struct posix_ref {
	struct posix_store *store;
	int fd;
	struct dir_cache_entry *entry; /* pinned, or NULL */
	bool is_owned;		       /* fd is closed with the ref */
};

#define POSIX_REF_NULL ((struct posix_ref){ .fd = -1 })
#define _cleanup_ref_ _cleanup_(posix_ref_done)

/* Opens the object by its handle; @flags as open(2), O_CLOEXEC is added. Returns the
 * descriptor; -ESTALE when the object is gone. */
int posix_handle_open(struct posix_store *store, const struct locator *locator,
		      int flags) MUST_CHECK;
int posix_handle_of(int fd, struct locator *ret_locator) MUST_CHECK;

void posix_attr_of(const struct stat *st, struct store_attr *ret_attr);
int posix_getattr_fd(int fd, struct store_attr *ret_attr) MUST_CHECK;
/* Locator and attributes of the one object that @fd stands for. */
int posix_identify(int fd, struct locator *ret_locator, struct store_attr *ret_attr) MUST_CHECK;

/* A directory to name things in: -ENOTDIR, -ESTALE. Ended by posix_ref_done(). */
int posix_ref_dir(struct posix_store *store, const struct locator *dir,
		  struct posix_ref *ret_ref) MUST_CHECK;
/* Any object, O_PATH. A removed directory is -ESTALE even while its inode lives on. */
int posix_ref_object(struct posix_store *store, const struct locator *object,
		     struct posix_ref *ret_ref) MUST_CHECK;
void posix_ref_done(struct posix_ref *ref);

/* The error of an operation in @dir that failed with @error (an errno): -ESTALE in
 * place of -ENOENT when the directory itself is gone, which its open descriptor hides. */
int posix_dir_error(struct posix_ref *dir, int error) MUST_CHECK;

/* ---- posix_attr.c -------------------------------------------------------- */

/* @is_path: the descriptor is O_PATH. */
int posix_chmod_fd(int fd, bool is_path, mode_t mode) MUST_CHECK;
int posix_setattr_fd(int fd, bool is_path, const struct store_setattr *set,
		     struct store_attr *ret_attr) MUST_CHECK;
/* Removes the extended attribute if it is there. */
int posix_drop_xattr_fd(int fd, bool is_path, const char *name) MUST_CHECK;

int posix_getattr(struct store *store, const struct locator *object, struct store_attr *ret_attr);
int posix_setattr(struct store *store, const struct locator *object,
		  const struct store_setattr *set, struct store_attr *ret_attr);
ssize_t posix_getxattr(struct store *store, const struct locator *object, const char *name,
		       void *value, size_t size);
ssize_t posix_listxattr(struct store *store, const struct locator *object, char *list, size_t size);
int posix_setxattr(struct store *store, const struct locator *object, const char *name,
		   const void *value, size_t size, int flags);
int posix_removexattr(struct store *store, const struct locator *object, const char *name);

/* ---- posix_create.c ------------------------------------------------------ */

int posix_create_open(struct store *store, const struct locator *dir, const char *name,
		      const struct store_new *new, struct locator *ret_locator,
		      struct store_attr *ret_attr, struct store_file **ret_file);
int posix_create(struct store *store, const struct locator *dir, const char *name,
		 const struct store_new *new, struct locator *ret_locator,
		 struct store_attr *ret_attr);
int posix_tmpfile(struct store *store, const struct locator *dir, const struct store_new *new,
		  bool is_linkable, struct locator *ret_locator, struct store_attr *ret_attr,
		  struct store_file **ret_file);

/* ---- posix_name.c -------------------------------------------------------- */

int posix_lookup(struct store *store, const struct locator *dir, const char *name,
		 struct locator *ret_locator, struct store_attr *ret_attr);
int posix_link(struct store *store, const struct locator *object, const struct locator *dir,
	       const char *name);
int posix_rename(struct store *store, const struct locator *old_dir, const char *old_name,
		 const struct locator *new_dir, const char *new_name, unsigned flags);
int posix_unlink(struct store *store, const struct locator *dir, const char *name);
int posix_rmdir(struct store *store, const struct locator *dir, const char *name);
int posix_readlink(struct store *store, const struct locator *object, char *buffer, size_t size);

/* ---- posix_dir.c --------------------------------------------------------- */

int posix_dir_open(struct store *store, const struct locator *dir, struct store_dir **ret_dir);
int posix_dir_next(struct store_dir *dir, struct store_entry *ret_entry);
int posix_dir_seek(struct store_dir *dir, uint64_t cookie);
int posix_dir_fsync(struct store_dir *dir);
struct store_dir *posix_dir_close(struct store_dir *dir);

/* ---- posix_file.c -------------------------------------------------------- */

/* Wraps @fd (taken, also on failure). NULL when memory is short. */
struct store_file *posix_file_new(struct posix_store *store, int fd) MUST_CHECK;

int posix_open(struct store *store, const struct locator *object, unsigned flags,
	       struct store_file **ret_file);
struct store_file *posix_file_close(struct store_file *file);
int posix_file_fd(const struct store_file *file);
ssize_t posix_read(struct store_file *file, void *buffer, size_t size, uint64_t offset);
int posix_write(struct store_file *file, const void *buffer, size_t size, uint64_t offset,
		bool is_stable);
ssize_t posix_write_some(struct store_file *file, const void *buffer, size_t size, uint64_t offset);
ssize_t posix_file_listxattr(struct store_file *file, char *list, size_t size);
int posix_file_getattr(struct store_file *file, struct store_attr *ret_attr);
int posix_file_setattr(struct store_file *file, const struct store_setattr *set,
		       struct store_attr *ret_attr);
int posix_fsync(struct store_file *file, bool is_datasync);
int posix_fallocate_file(struct store_file *file, int mode, uint64_t offset, uint64_t length);
int64_t posix_seek(struct store_file *file, uint64_t offset, int whence);
ssize_t posix_copy_range(struct store_file *in, uint64_t offset_in, struct store_file *out,
			 uint64_t offset_out, size_t size);

/* ---- posix_probe.c ------------------------------------------------------- */

/* What can be told without a change to the tree. */
void posix_guess_caps(struct posix_store *store);
int posix_probe_target(struct store *store);
