/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * What an implementation of a store provides: one table. Each entry has the
 * contract of the public function of the same name in store.h; those are one-line
 * calls through this table (store.c), and check their arguments.
 */

#include "fs/store/store.h"

struct store_ops {
	struct store *(*close)(struct store *store);
	void (*set_reports_unknown)(struct store *store, bool reports_unknown);
	uint64_t (*last_loss_ms)(struct store *store); /* NULL: nothing is ever lost */
	int (*probe_target)(struct store *store);

	void (*root)(struct store *store, struct locator *ret_locator);
	int (*lookup)(struct store *store, const struct locator *dir, const char *name,
		      struct locator *ret_locator, struct store_attr *ret_attr);
	int (*getattr)(struct store *store, const struct locator *object, struct store_attr *ret_attr);
	int (*setattr)(struct store *store, const struct locator *object, const struct store_setattr *set,
		       struct store_attr *ret_attr);
	int (*create)(struct store *store, const struct locator *dir, const char *name,
		      const struct store_new *new, struct locator *ret_locator,
		      struct store_attr *ret_attr);
	/* May be NULL: then create() and no file. */
	int (*create_open)(struct store *store, const struct locator *dir, const char *name,
			   const struct store_new *new, struct locator *ret_locator,
			   struct store_attr *ret_attr, struct store_file **ret_file);
	int (*tmpfile)(struct store *store, const struct locator *dir, const struct store_new *new,
		       bool is_linkable, struct locator *ret_locator, struct store_attr *ret_attr,
		       struct store_file **ret_file);
	int (*link)(struct store *store, const struct locator *object, const struct locator *dir,
		    const char *name);
	int (*rename)(struct store *store, const struct locator *old_dir, const char *old_name,
		      const struct locator *new_dir, const char *new_name, unsigned flags);
	int (*unlink)(struct store *store, const struct locator *dir, const char *name);
	int (*rmdir)(struct store *store, const struct locator *dir, const char *name);
	int (*readlink)(struct store *store, const struct locator *object, char *buffer, size_t size);
	ssize_t (*getxattr)(struct store *store, const struct locator *object, const char *name,
			    void *value, size_t size);
	ssize_t (*listxattr)(struct store *store, const struct locator *object, char *list, size_t size);
	int (*setxattr)(struct store *store, const struct locator *object, const char *name,
			const void *value, size_t size, int flags);
	int (*removexattr)(struct store *store, const struct locator *object, const char *name);

	int (*dir_open)(struct store *store, const struct locator *dir, struct store_dir **ret_dir);
	int (*dir_next)(struct store_dir *dir, struct store_entry *ret_entry);
	int (*dir_seek)(struct store_dir *dir, uint64_t cookie);
	int (*dir_fsync)(struct store_dir *dir);
	struct store_dir *(*dir_close)(struct store_dir *dir);

	int (*open)(struct store *store, const struct locator *object, unsigned flags,
		    struct store_file **ret_file);
	struct store_file *(*file_close)(struct store_file *file);
	int (*file_fd)(const struct store_file *file);
	ssize_t (*read)(struct store_file *file, void *buffer, size_t size, uint64_t offset);
	int (*write)(struct store_file *file, const void *buffer, size_t size, uint64_t offset,
		     bool is_stable);
	/* NULL: it writes all or fails. */
	ssize_t (*write_some)(struct store_file *file, const void *buffer, size_t size,
			      uint64_t offset);
	int (*file_getattr)(struct store_file *file, struct store_attr *ret_attr);
	ssize_t (*file_listxattr)(struct store_file *file, char *list, size_t size); /* may be NULL */
	int (*file_setattr)(struct store_file *file, const struct store_setattr *set,
			    struct store_attr *ret_attr);
	int (*fsync)(struct store_file *file, bool is_datasync);
	int (*fallocate)(struct store_file *file, int mode, uint64_t offset, uint64_t length);
	int64_t (*seek)(struct store_file *file, uint64_t offset, int whence);
	ssize_t (*copy_range)(struct store_file *in, uint64_t offset_in, struct store_file *out,
			      uint64_t offset_out, size_t size);

	int (*commit)(struct store *store);
	int (*statfs)(struct store *store, struct statvfs *ret_statvfs);
};

/* Each implementation embeds these first. */
struct store {
	const struct store_ops *ops;
	struct store_caps caps;
	char *identity; /* owned */
};

struct store_file {
	const struct store_ops *ops;
};

struct store_dir {
	const struct store_ops *ops;
};
