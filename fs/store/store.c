/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The public face of a store: each function checks its arguments, which only a bug
 * in the caller can get wrong, and goes through the implementation's table.
 */
#include "fs/store/store.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "fs/store/store_ops.h"

#include <errno.h>

/* What is longer than NAME_MAX is left to the file system's ENAMETOOLONG: the
 * kernel hands on what clients ask for. */
static void assert_name(const char *name)
{
	assert(name);
	assert(name[0] != '\0');
	assert(!strchr(name, '/'));
	assert(!(name[0] == '.' && name[1] == '\0'));
	assert(!(name[0] == '.' && name[1] == '.' && name[2] == '\0'));
}

static void assert_locator(const struct locator *locator)
{
	assert(locator);
	assert(!locator_is_null(locator));
	assert(locator->length <= LOCATOR_BYTES_MAX);
}

static void assert_new(const struct store_new *new)
{
	assert(new);
	assert((new->mode &S_IFMT) != 0);
	assert(S_ISLNK(new->mode) == (new->link_target != NULL));
	assert(!new->cred || new->cred->group_count == 0 || new->cred->groups);
}

void store_set_reports_unknown(struct store *store, bool reports_unknown)
{
	assert(store);
	store->ops->set_reports_unknown(store, reports_unknown);
}

uint64_t store_last_loss_ms(struct store *store)
{
	assert(store);
	return store->ops->last_loss_ms ? store->ops->last_loss_ms(store) : 0;
}

struct store *store_close(struct store *store)
{
	return store ? store->ops->close(store) : NULL;
}

const struct store_caps *store_caps(const struct store *store)
{
	assert(store);
	return &store->caps;
}

const char *store_identity(const struct store *store)
{
	assert(store);
	assert(store->identity);
	return store->identity;
}

int store_probe_target(struct store *store)
{
	assert(store);
	return store->ops->probe_target(store);
}

/* ---- objects by locator -------------------------------------------------- */

void store_root(struct store *store, struct locator *ret_locator)
{
	assert(store);
	assert(ret_locator);
	store->ops->root(store, ret_locator);
}

int store_lookup(struct store *store, const struct locator *dir, const char *name,
		 struct locator *ret_locator, struct store_attr *ret_attr)
{
	assert(store);
	assert_locator(dir);
	assert_name(name);
	assert(ret_locator);
	assert(ret_attr);
	return store->ops->lookup(store, dir, name, ret_locator, ret_attr);
}

int store_getattr(struct store *store, const struct locator *object, struct store_attr *ret_attr)
{
	assert(store);
	assert_locator(object);
	assert(ret_attr);
	return store->ops->getattr(store, object, ret_attr);
}

int store_setattr(struct store *store, const struct locator *object,
		  const struct store_setattr *set, struct store_attr *ret_attr)
{
	assert(store);
	assert_locator(object);
	assert(set);
	return store->ops->setattr(store, object, set, ret_attr);
}

int store_create(struct store *store, const struct locator *dir, const char *name,
		 const struct store_new *new, struct locator *ret_locator,
		 struct store_attr *ret_attr)
{
	assert(store);
	assert_locator(dir);
	assert_name(name);
	assert_new(new);
	assert(ret_locator);
	assert(ret_attr);
	return store->ops->create(store, dir, name, new, ret_locator, ret_attr);
}

int store_create_open(struct store *store, const struct locator *dir, const char *name,
		      const struct store_new *new, struct locator *ret_locator,
		      struct store_attr *ret_attr, struct store_file **ret_file)
{
	int r;

	assert(ret_file);
	if (store->ops->create_open)
		return store->ops->create_open(store, dir, name, new, ret_locator, ret_attr, ret_file);
	r = store_create(store, dir, name, new, ret_locator, ret_attr);
	if (r == 0)
		*ret_file = NULL;
	return r;
}

int store_tmpfile(struct store *store, const struct locator *dir, const struct store_new *new,
		  bool is_linkable, struct locator *ret_locator, struct store_attr *ret_attr,
		  struct store_file **ret_file)
{
	assert(store);
	assert_locator(dir);
	assert_new(new);
	assert(S_ISREG(new->mode));
	assert(ret_locator);
	assert(ret_attr);
	assert(ret_file);
	return store->ops->tmpfile(store, dir, new, is_linkable, ret_locator, ret_attr, ret_file);
}

int store_link(struct store *store, const struct locator *object, const struct locator *dir,
	       const char *name)
{
	assert(store);
	assert_locator(object);
	assert_locator(dir);
	assert_name(name);
	return store->ops->link(store, object, dir, name);
}

int store_rename(struct store *store, const struct locator *old_dir, const char *old_name,
		 const struct locator *new_dir, const char *new_name, unsigned flags)
{
	assert(store);
	assert_locator(old_dir);
	assert_name(old_name);
	assert_locator(new_dir);
	assert_name(new_name);
	return store->ops->rename(store, old_dir, old_name, new_dir, new_name, flags);
}

int store_unlink(struct store *store, const struct locator *dir, const char *name)
{
	assert(store);
	assert_locator(dir);
	assert_name(name);
	return store->ops->unlink(store, dir, name);
}

int store_rmdir(struct store *store, const struct locator *dir, const char *name)
{
	assert(store);
	assert_locator(dir);
	assert_name(name);
	return store->ops->rmdir(store, dir, name);
}

int store_readlink(struct store *store, const struct locator *object, char *buffer, size_t size)
{
	assert(store);
	assert_locator(object);
	assert(buffer);
	assert(size > 0);
	return store->ops->readlink(store, object, buffer, size);
}

ssize_t store_getxattr(struct store *store, const struct locator *object, const char *name,
		       void *value, size_t size)
{
	assert(store);
	assert_locator(object);
	assert(name);
	assert(value || size == 0);
	return store->ops->getxattr(store, object, name, value, size);
}

ssize_t store_listxattr(struct store *store, const struct locator *object, char *list, size_t size)
{
	assert(store);
	assert_locator(object);
	assert(list || size == 0);
	return store->ops->listxattr(store, object, list, size);
}

int store_setxattr(struct store *store, const struct locator *object, const char *name,
		   const void *value, size_t size, int flags)
{
	assert(store);
	assert_locator(object);
	assert(name);
	assert(value || size == 0);
	return store->ops->setxattr(store, object, name, value, size, flags);
}

int store_removexattr(struct store *store, const struct locator *object, const char *name)
{
	assert(store);
	assert_locator(object);
	assert(name);
	return store->ops->removexattr(store, object, name);
}

/* ---- directory streams --------------------------------------------------- */

int store_dir_open(struct store *store, const struct locator *dir, struct store_dir **ret_dir)
{
	assert(store);
	assert_locator(dir);
	assert(ret_dir);
	return store->ops->dir_open(store, dir, ret_dir);
}

int store_dir_next(struct store_dir *dir, struct store_entry *ret_entry)
{
	assert(dir);
	assert(ret_entry);
	return dir->ops->dir_next(dir, ret_entry);
}

int store_dir_seek(struct store_dir *dir, uint64_t cookie)
{
	assert(dir);
	return dir->ops->dir_seek(dir, cookie);
}

int store_dir_fsync(struct store_dir *dir)
{
	assert(dir);
	return dir->ops->dir_fsync(dir);
}

struct store_dir *store_dir_close(struct store_dir *dir)
{
	return dir ? dir->ops->dir_close(dir) : NULL;
}

/* ---- open files ---------------------------------------------------------- */

int store_open(struct store *store, const struct locator *object, unsigned flags,
	       struct store_file **ret_file)
{
	assert(store);
	assert_locator(object);
	assert(flags & (STORE_OPEN_READ | STORE_OPEN_WRITE));
	assert(ret_file);
	return store->ops->open(store, object, flags, ret_file);
}

struct store_file *store_file_close(struct store_file *file)
{
	return file ? file->ops->file_close(file) : NULL;
}

int store_file_fd(const struct store_file *file)
{
	assert(file);
	return file->ops->file_fd(file);
}

ssize_t store_read(struct store_file *file, void *buffer, size_t size, uint64_t offset)
{
	assert(file);
	assert(buffer || size == 0);
	assert(size <= SSIZE_MAX);
	return file->ops->read(file, buffer, size, offset);
}

int store_write(struct store_file *file, const void *buffer, size_t size, uint64_t offset,
		bool is_stable)
{
	assert(file);
	assert(buffer || size == 0);
	return file->ops->write(file, buffer, size, offset, is_stable);
}

ssize_t store_write_some(struct store_file *file, const void *buffer, size_t size, uint64_t offset,
			 bool is_stable)
{
	int r;

	assert(size <= SSIZE_MAX);
	if (file->ops->write_some)
		return file->ops->write_some(file, buffer, size, offset);
	r = store_write(file, buffer, size, offset, is_stable);
	return r == 0 ? (ssize_t)size : r;
}

int store_file_getattr(struct store_file *file, struct store_attr *ret_attr)
{
	assert(file);
	assert(ret_attr);
	return file->ops->file_getattr(file, ret_attr);
}

ssize_t store_file_listxattr(struct store_file *file, char *list, size_t size)
{
	assert(file);
	assert(list || size == 0);
	return file->ops->file_listxattr ? file->ops->file_listxattr(file, list, size) : -EOPNOTSUPP;
}

int store_file_setattr(struct store_file *file, const struct store_setattr *set,
		       struct store_attr *ret_attr)
{
	assert(file);
	assert(set);
	return file->ops->file_setattr(file, set, ret_attr);
}

int store_fsync(struct store_file *file, bool is_datasync)
{
	assert(file);
	return file->ops->fsync(file, is_datasync);
}

int store_fallocate(struct store_file *file, int mode, uint64_t offset, uint64_t length)
{
	assert(file);
	return file->ops->fallocate(file, mode, offset, length);
}

int64_t store_seek(struct store_file *file, uint64_t offset, int whence)
{
	assert(file);
	assert(whence == SEEK_DATA || whence == SEEK_HOLE);
	return file->ops->seek(file, offset, whence);
}

ssize_t store_copy_range(struct store_file *in, uint64_t offset_in, struct store_file *out,
			 uint64_t offset_out, size_t size)
{
	assert(in);
	assert(out);
	assert(in->ops == out->ops);
	return in->ops->copy_range(in, offset_in, out, offset_out, size);
}

/* ---- the whole ----------------------------------------------------------- */

int store_commit(struct store *store)
{
	assert(store);
	return store->ops->commit(store);
}

int store_statfs(struct store *store, struct statvfs *ret_statvfs)
{
	assert(store);
	assert(ret_statvfs);
	return store->ops->statfs(store, ret_statvfs);
}
