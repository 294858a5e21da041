/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Life and identity of a posix store.
 *
 * The tree is reached through a private, non-recursive clone of its mount. It is
 * taken before anything is mounted over the path, and made private so that later
 * mounts do not propagate into it. The clone alone refuses to follow symlinks and to
 * open devices, whatever a bug of ours or a swapped name may ask for.
 */
#include "fs/store/posix.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/descriptors.h"
#include "util/log.h"

/* Magic numbers that <linux/magic.h> lacks. */
enum {
	MAGIC_LUSTRE = 0x0bd00bd0,
	MAGIC_GPFS = 0x47504653,
	MAGIC_NTFS3 = 0x7366746e,
	MAGIC_ZFS = 0x2fc12fc1,
};

static const struct posix_fs_type fs_types[] = {
	{ EXT4_SUPER_MAGIC, "ext4", false, false, false },
	{ XFS_SUPER_MAGIC, "xfs", false, false, false },
	{ BTRFS_SUPER_MAGIC, "btrfs", false, false, false },
	{ F2FS_SUPER_MAGIC, "f2fs", false, false, false },
	{ MAGIC_ZFS, "zfs", false, false, false },
	{ OVERLAYFS_SUPER_MAGIC, "overlay", false, false, false },
	{ MSDOS_SUPER_MAGIC, "vfat", false, false, false },
	{ EXFAT_SUPER_MAGIC, "exfat", false, false, false },
	{ MAGIC_NTFS3, "ntfs3", false, false, false },
	{ TMPFS_MAGIC, "tmpfs", false, true, false },
	{ RAMFS_MAGIC, "ramfs", false, true, false },
	{ NFS_SUPER_MAGIC, "nfs", true, false, false },
	{ CEPH_SUPER_MAGIC, "ceph", true, false, false },
	{ MAGIC_LUSTRE, "lustre", true, false, false },
	{ MAGIC_GPFS, "gpfs", true, false, false },
	{ AFS_SUPER_MAGIC, "afs", true, false, false },
	{ OCFS2_SUPER_MAGIC, "ocfs2", true, false, false },
	{ V9FS_MAGIC, "9p", true, false, true },
	{ SMB_SUPER_MAGIC, "smb", true, false, true },
	{ SMB2_SUPER_MAGIC, "smb", true, false, true },
	{ CIFS_SUPER_MAGIC, "cifs", true, false, true },
	{ FUSE_SUPER_MAGIC, "fuse", true, false, true },
};

static const struct posix_fs_type fs_type_unknown = { 0, "unknown", false, false, false };

static const struct posix_fs_type *fs_type_of(const struct statfs *statfs)
{
	for (size_t i = 0; i < ARRAY_SIZE(fs_types); i++)
		if (fs_types[i].magic == ((unsigned long)statfs->f_type & 0xffffffffu))
			return &fs_types[i];
	return &fs_type_unknown;
}

static struct store *posix_close(struct store *base)
{
	struct posix_store *store = posix_store(base);

	store->dirs = dir_cache_free(store->dirs);
	store->root_fd = fd_close(store->root_fd);
	store->mount_fd = fd_close(store->mount_fd);
	free(store->base.identity);
	free(store->path);
	free(store);
	return NULL;
}

static void cleanup_posix_store(struct posix_store **store)
{
	if (*store)
		(void)posix_close(&(*store)->base);
}

static void posix_set_reports_unknown(struct store *store UNUSED, bool reports_unknown UNUSED)
{
	/* The outcome of a system call is always known. */
}

static void posix_root(struct store *store, struct locator *ret_locator)
{
	*ret_locator = posix_store(store)->root;
}

/* An error of writing back is reported once per descriptor, and the pages count as
 * clean then: saying just -EIO would invite a second try that succeeds over the loss. */
static int posix_commit(struct store *base)
{
	struct posix_store *store = posix_store(base);

	if (store->base.caps.is_volatile)
		return 0;
	if (syncfs(store->root_fd) == 0)
		return 0;
	if (errno == EIO || errno == ENOSPC || errno == EDQUOT) {
		log_warning_errno(errno, "writing back to '%s' failed, some data is lost",
				  store->path);
		return STORE_E_LOST;
	}
	return -errno;
}

static int posix_statfs(struct store *store, struct statvfs *ret_statvfs)
{
	struct statvfs statvfs;

	if (fstatvfs(posix_store(store)->root_fd, &statvfs) < 0)
		return -errno;
	*ret_statvfs = statvfs;
	return 0;
}

static const struct store_ops posix_ops = {
	.close = posix_close,
	.set_reports_unknown = posix_set_reports_unknown,
	.probe_target = posix_probe_target,
	.root = posix_root,
	.lookup = posix_lookup,
	.getattr = posix_getattr,
	.setattr = posix_setattr,
	.create = posix_create,
	.create_open = posix_create_open,
	.tmpfile = posix_tmpfile,
	.link = posix_link,
	.rename = posix_rename,
	.unlink = posix_unlink,
	.rmdir = posix_rmdir,
	.readlink = posix_readlink,
	.getxattr = posix_getxattr,
	.listxattr = posix_listxattr,
	.setxattr = posix_setxattr,
	.removexattr = posix_removexattr,
	.dir_open = posix_dir_open,
	.dir_next = posix_dir_next,
	.dir_seek = posix_dir_seek,
	.dir_fsync = posix_dir_fsync,
	.dir_close = posix_dir_close,
	.open = posix_open,
	.file_close = posix_file_close,
	.file_fd = posix_file_fd,
	.read = posix_read,
	.write = posix_write,
	.write_some = posix_write_some,
	.file_getattr = posix_file_getattr,
	.file_listxattr = posix_file_listxattr,
	.file_setattr = posix_file_setattr,
	.fsync = posix_fsync,
	.fallocate = posix_fallocate_file,
	.seek = posix_seek,
	.copy_range = posix_copy_range,
	.commit = posix_commit,
	.statfs = posix_statfs,
};

static int clone_mount(struct posix_store *store, const char *path)
{
	struct mount_attr attr = {
		.attr_set = MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSYMFOLLOW,
		.propagation = MS_PRIVATE,
	};

	store->mount_fd = open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (store->mount_fd < 0 && errno == EPERM)
		return log_error_errno(
			EPERM, "cannot clone the mount of '%s': run as root, with CAP_SYS_ADMIN",
			path);
	if (store->mount_fd < 0)
		return log_error_errno(errno, "cannot clone the mount of '%s'", path);
	if (mount_setattr(store->mount_fd, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
		return log_error_errno(errno, "cannot make the clone of the mount of '%s' private",
				       path);

	store->root_fd = openat(store->mount_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (store->root_fd < 0)
		return log_error_errno(errno, "cannot open the directory '%s'", path);
	return 0;
}

static int no_handles(const struct posix_store *store, const char *path, const char *why)
{
	log_error("'%s' lies on a file system (%s) without usable file handles: %s; "
		  "use the file system below it, or for a server nfs://host/export",
		  path, store->fs_type->name, why);
	return -EOPNOTSUPP;
}

/* Objects are found by handle whatever their names are by then: without that, no store. */
static int probe_handles(struct posix_store *store, const char *path)
{
	_cleanup_close_ int fd = -1;
	int r;

	if (store->fs_type->has_no_handles)
		return no_handles(store, path, "its kind cannot find an object by handle for good");
	r = posix_handle_of(store->root_fd, &store->root);
	if (r == -EOPNOTSUPP)
		return no_handles(store, path, "it gives none (overlayfs needs nfs_export=on)");
	if (r == -EOVERFLOW)
		return no_handles(store, path, "they are too long");
	if (r < 0)
		return log_error_errno(r, "cannot get the file handle of '%s'", path);

	fd = posix_handle_open(store, &store->root, O_PATH | O_DIRECTORY);
	if (fd == -EPERM)
		return log_error_errno(
			EPERM,
			"cannot open '%s' by file handle: run as root of the initial "
			"user namespace, with CAP_DAC_READ_SEARCH",
			path);
	if (fd < 0)
		return no_handles(store, path, "it cannot open by them");
	return 0;
}

/* f_fsid comes from the UUID on ext4, btrfs, and f2fs, but on XFS from the device
 * number, which may differ after a reboot: there the UUID is asked for. */
static uint64_t fs_id(const struct posix_store *store, const struct statfs *statfs)
{
	struct xfs_geometry_v1 {
		uint32_t before[8];
		uint64_t blocks[4];
		uint8_t uuid[16];
		uint32_t after[8];
	} geometry = { 0 };
	static_assert(sizeof(statfs->f_fsid) == sizeof(uint64_t), "fits");
	static_assert(sizeof(geometry) == 112, "XFS_IOC_FSGEOMETRY_V1 is stable");
	uint64_t id, high;

	memcpy(&id, &statfs->f_fsid, sizeof(id));
	if (store->fs_type->magic == XFS_SUPER_MAGIC &&
	    ioctl(store->root_fd, _IOR('X', 100, struct xfs_geometry_v1), &geometry) == 0) {
		memcpy(&id, geometry.uuid, sizeof(id));
		memcpy(&high, geometry.uuid + sizeof(id), sizeof(high));
		id ^= high;
	}
	return id;
}

static int make_identity(struct posix_store *store, const struct statfs *statfs)
{
	char hex[2 * LOCATOR_BYTES_MAX + 1];

	for (unsigned i = 0; i < store->root.length; i++)
		(void)snprintf(hex + 2 * i, 3, "%02x", store->root.bytes[i]); /* always fits */
	if (asprintf(&store->base.identity, "posix:%s:%016llx:%s", store->fs_type->name,
		     (unsigned long long)fs_id(store, statfs), hex) < 0) {
		store->base.identity = NULL;
		return log_error_errno(ENOMEM, "cannot name a store");
	}
	return 0;
}

int store_posix_open(const char *path, struct store **ret_store)
{
	_cleanup_(cleanup_posix_store) struct posix_store *store = NULL;
	struct statfs statfs;
	int r;

	assert(path);
	assert(ret_store);

	store = calloc(1, sizeof(*store));
	if (!store)
		return log_error_errno(ENOMEM, "cannot open the tree '%s'", path);
	store->base.ops = &posix_ops;
	store->mount_fd = store->root_fd = -1;
	store->path = strdup(path);
	store->dirs = dir_cache_new(descriptors_share(DESCRIPTORS_DIRS, DIR_CACHE_ENTRIES_MAX));
	if (!store->path || !store->dirs)
		return log_error_errno(ENOMEM, "cannot open the tree '%s'", path);

	r = clone_mount(store, path);
	if (r < 0)
		return r;
	if (fstatfs(store->root_fd, &statfs) < 0)
		return log_error_errno(errno, "cannot look at the file system of '%s'", path);
	store->fs_type = fs_type_of(&statfs);
	r = probe_handles(store, path);
	if (r < 0)
		return r;
	r = make_identity(store, &statfs);
	if (r < 0)
		return r;

	posix_guess_caps(store);
	*ret_store = &TAKE_PTR(store)->base;
	return 0;
}
