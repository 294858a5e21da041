/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mount and what is agreed on with the kernel.
 *
 * It caches entries and attributes for long, since every change comes through here; it does
 * so across a flip too, because both sides are equal then.
 *
 * Opens. With "zero" the first OPEN is answered ENOSYS: no OPEN, FLUSH or RELEASE is ever sent
 * again, nor a CREATE (it makes the file by MKNOD): whatever is cached is read without a
 * message. O_TRUNC then must come as a SETATTR: an OPEN that is never sent truncates nothing.
 * With "full" each open is a message, and direct writes to one file can run side by side.
 */
#include "fs/overlay/overlay_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/log.h"

/* ---- INIT ---------------------------------------------------------------- */

static const uint64_t caps_wanted[] = {
	FUSE_CAP_ASYNC_READ,	    FUSE_CAP_ASYNC_DIO,		  FUSE_CAP_PARALLEL_DIROPS,
	FUSE_CAP_READDIRPLUS,	    FUSE_CAP_READDIRPLUS_AUTO,	  FUSE_CAP_POSIX_ACL,
	FUSE_CAP_DONT_MASK,	    FUSE_CAP_HANDLE_KILLPRIV_V2,  FUSE_CAP_CACHE_SYMLINKS,
	FUSE_CAP_EXPLICIT_INVAL_DATA, FUSE_CAP_SETXATTR_EXT,	  FUSE_CAP_NO_EXPORT_SUPPORT,
};

/* libfuse asks for some of these by itself. Locks stay in the kernel; pages stay valid,
 * whatever the times say; messages come by read(2), so that we can look at them. */
static const uint64_t caps_refused[] = {
	FUSE_CAP_ATOMIC_O_TRUNC, FUSE_CAP_AUTO_INVAL_DATA, FUSE_CAP_WRITEBACK_CACHE,
	FUSE_CAP_POSIX_LOCKS,	 FUSE_CAP_FLOCK_LOCKS,	   FUSE_CAP_SPLICE_READ,
	FUSE_CAP_EXPORT_SUPPORT, FUSE_CAP_HANDLE_KILLPRIV,
};

struct cap {
	uint64_t flag;
	const char *name;
};

/* Without these results would be wrong. */
static const struct cap caps_needed[] = {
	{ FUSE_CAP_POSIX_ACL, "POSIX ACLs" },
	{ FUSE_CAP_DONT_MASK, "umasks beside default ACLs" },
	{ FUSE_CAP_HANDLE_KILLPRIV_V2, "clearing of suid bits by the file system" },
};

static void need(struct overlay *overlay, struct fuse_conn_info *conn, const struct cap *cap)
{
	if (!fuse_get_feature_flag(conn, cap->flag))
		overlay->init_error = log_error_errno(
			EOPNOTSUPP, "this kernel's FUSE lacks %s (Linux 5.12 has it)", cap->name);
}

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	static const struct cap no_open = { FUSE_CAP_NO_OPEN_SUPPORT, "opens without a message" };
	static const struct cap writeback = { FUSE_CAP_WRITEBACK_CACHE, "writeback caching" };
	struct overlay *overlay = userdata;

	for (size_t i = 0; i < ARRAY_SIZE(caps_needed); i++)
		need(overlay, conn, &caps_needed[i]);
	if (overlay->opens == OVERLAY_OPENS_ZERO)
		need(overlay, conn, &no_open);
	if (overlay->is_writeback)
		need(overlay, conn, &writeback);
	for (size_t i = 0; i < ARRAY_SIZE(caps_refused); i++)
		fuse_unset_feature_flag(conn, caps_refused[i]);
	for (size_t i = 0; i < ARRAY_SIZE(caps_wanted); i++)
		(void)fuse_set_feature_flag(conn,
					    caps_wanted[i]); /* false: not there, not needed */
	if (overlay->opens == OVERLAY_OPENS_ZERO)
		(void)fuse_set_feature_flag(conn, no_open.flag); /* looked at above */
	if (overlay->is_writeback)
		(void)fuse_set_feature_flag(conn, writeback.flag); /* as above */
	conn->max_write = OVERLAY_IO_BYTES_MAX;
	conn->max_background = OVERLAY_BACKGROUND_MAX;
	conn->congestion_threshold = OVERLAY_BACKGROUND_MAX * 3 / 4;
	conn->time_gran = 1;
	conn->no_interrupt = 1; /* see session.c: libfuse gets none to see */
	overlay->is_ready = overlay->init_error == 0;
}

/* No lseek: the kernel passes SEEK_DATA on without sending the pages first that were dirtied
 * through a map, and then who copies data alone leaves them out. Without it all is data. */
static const struct fuse_lowlevel_ops operations = {
	.init = op_init,
	.lookup = op_lookup,
	.forget = op_forget,
	.forget_multi = op_forget_multi,
	.getattr = op_getattr,
	.setattr = op_setattr,
	.readlink = op_readlink,
	.mknod = op_mknod,
	.mkdir = op_mkdir,
	.unlink = op_unlink,
	.rmdir = op_rmdir,
	.symlink = op_symlink,
	.rename = op_rename,
	.link = op_link,
	.open = op_open,
	.read = op_read,
	.write = op_write,
	.flush = op_flush,
	.fsync = op_fsync,
	.opendir = op_opendir,
	.readdir = op_readdir,
	.readdirplus = op_readdirplus,
	.releasedir = op_releasedir,
	.fsyncdir = op_fsyncdir,
	.statfs = op_statfs,
	.setxattr = op_setxattr,
	.getxattr = op_getxattr,
	.listxattr = op_listxattr,
	.removexattr = op_removexattr,
	.create = op_create,
	.ioctl = op_ioctl,
	.fallocate = op_fallocate,
	.copy_file_range = op_copy_file_range,
	.tmpfile = op_tmpfile,
};

/* ---- mounting ------------------------------------------------------------ */

/* The flags of the mount that is covered. */
static unsigned long mount_flags(const char *mountpoint)
{
	struct statvfs covered;
	unsigned long flags = 0;

	if (statvfs(mountpoint, &covered) < 0)
		return 0; /* mount(2) will say what is wrong */
	if (covered.f_flag & ST_RDONLY)
		flags |= MS_RDONLY;
	if (covered.f_flag & ST_NOSUID)
		flags |= MS_NOSUID;
	if (covered.f_flag & ST_NODEV)
		flags |= MS_NODEV;
	if (covered.f_flag & ST_NOEXEC)
		flags |= MS_NOEXEC;
	if (covered.f_flag & ST_NOATIME)
		flags |= MS_NOATIME;
	if (covered.f_flag & ST_NODIRATIME)
		flags |= MS_NODIRATIME;
	return flags;
}

/* Mounts over the mount point and hands the device to the session. Done here and not
 * by libfuse, whose mounts are nosuid and nodev, and whose errors have no number. */
int overlay_mount_device(struct overlay *overlay)
{
	_cleanup_close_ int fd = -1;
	char path[32], options[128];

	fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (fd < 0 && (errno == ENOENT || errno == ENODEV || errno == ENXIO))
		return log_error_errno(errno,
				       "cannot open '/dev/fuse', load it by 'modprobe fuse'");
	if (fd < 0)
		return log_error_errno(errno, "cannot open '/dev/fuse'");

	(void)snprintf(options, sizeof(options),
		       "fd=%d,rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other",
		       fd);
	if (mount(overlay->fsname, overlay->mountpoint, "fuse.ferryfs",
		  mount_flags(overlay->mountpoint), options) < 0)
		return log_error_errno(errno, "cannot mount over '%s'", overlay->mountpoint);

	(void)snprintf(path, sizeof(path), "/dev/fd/%d", fd);
	if (fuse_session_mount(overlay->session, path) != 0) {
		(void)umount2(overlay->mountpoint, MNT_DETACH); /* empty and dead in any case */
		return log_error_errno(EIO, "cannot serve '%s'", overlay->mountpoint);
	}
	overlay->device_fd = TAKE_FD(fd); /* the session's now, which closes it */
	return 0;
}

int overlay_make_session(struct overlay *overlay)
{
	char name[] = "ferryfs", debug[] = "-odebug";
	char *words[] = { name, overlay->is_debug ? debug : NULL, NULL };
	struct fuse_args args = FUSE_ARGS_INIT(overlay->is_debug ? 2 : 1, words);
	struct fuse_lowlevel_ops ops = operations;

	/* A file that CREATE has opened would need a RELEASE; MKNOD does as well. */
	if (overlay->opens == OVERLAY_OPENS_ZERO)
		ops.create = NULL;
	overlay->session = fuse_session_new(&args, &ops, sizeof(ops), overlay);
	fuse_opt_free_args(&args);
	return overlay->session ? 0 : log_error_errno(ENOMEM, "cannot start a FUSE session");
}

/* ---- writeback ----------------------------------------------------------- */

static int write_setting(const struct statx *st, const char *name, const char *value)
{
	_cleanup_close_ int fd = -1;
	char path[96];

	(void)snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/%s", st->stx_dev_major,
		       st->stx_dev_minor, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	return write(fd, value, strlen(value)) < 0 ? -errno : 0;
}

/* FUSE mounts may hold 1 % of the memory for dirty pages, strictly, for fear of servers that
 * are not privileged. At that writers wait for each other. */
void overlay_lift_writeback_limits(struct overlay *overlay)
{
	struct statx st;
	int r;

	/* Of the kernel's own memory: it would be us who had to answer. */
	if (statx(AT_FDCWD, overlay->mountpoint, AT_STATX_DONT_SYNC, STATX_TYPE, &st) < 0)
		r = -errno;
	else
		r = write_setting(&st, "strict_limit", "0");
	if (r == 0 || r == -ENOENT) /* strict_limit is newer than Linux 6.1 */
		r = write_setting(&st, "max_ratio", "100");
	if (r < 0)
		(void)log_warning_errno(
			r, "cannot raise the limit of dirty pages of '%s', writeback will be slow",
			overlay->mountpoint);
}
