/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Life of the overlay: mount, INIT, threads, flip, unmount, end.
 *
 * The kernel caches entries and attributes for long, since every change comes through
 * here; it does so across a flip too, because both sides are equal then. It sends no
 * OPEN and no FLUSH after the first was answered ENOSYS. O_TRUNC then must come as a
 * SETATTR: an OPEN that is never sent truncates nothing.
 */
#include "fs/overlay/overlay_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/descriptors.h"
#include "util/log.h"

/* ---- what libfuse calls -------------------------------------------------- */

static const uint64_t caps_wanted[] = {
	FUSE_CAP_ASYNC_READ,	    FUSE_CAP_ASYNC_DIO,		  FUSE_CAP_PARALLEL_DIROPS,
	FUSE_CAP_READDIRPLUS,	    FUSE_CAP_READDIRPLUS_AUTO,	  FUSE_CAP_POSIX_ACL,
	FUSE_CAP_DONT_MASK,	    FUSE_CAP_HANDLE_KILLPRIV_V2,  FUSE_CAP_CACHE_SYMLINKS,
	FUSE_CAP_NO_OPEN_SUPPORT,   FUSE_CAP_EXPLICIT_INVAL_DATA, FUSE_CAP_SETXATTR_EXT,
	FUSE_CAP_NO_EXPORT_SUPPORT,
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
	{ FUSE_CAP_NO_OPEN_SUPPORT, "opens without a message" },
	{ FUSE_CAP_POSIX_ACL, "POSIX ACLs" },
	{ FUSE_CAP_DONT_MASK, "umasks beside default ACLs" },
	{ FUSE_CAP_HANDLE_KILLPRIV_V2, "clearing of suid bits by the file system" },
};

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	struct overlay *overlay = userdata;

	for (size_t i = 0; i < ARRAY_SIZE(caps_needed); i++) {
		if (fuse_get_feature_flag(conn, caps_needed[i].flag))
			continue;
		overlay->init_error =
			log_error_errno(EOPNOTSUPP,
					"this kernel's FUSE lacks %s (Linux 5.12 has it)",
					caps_needed[i].name);
	}
	for (size_t i = 0; i < ARRAY_SIZE(caps_wanted); i++)
		(void)fuse_set_feature_flag(conn,
					    caps_wanted[i]); /* false: not there, not needed */
	for (size_t i = 0; i < ARRAY_SIZE(caps_refused); i++)
		fuse_unset_feature_flag(conn, caps_refused[i]);
	conn->max_write = OVERLAY_IO_BYTES_MAX;
	conn->max_background = OVERLAY_BACKGROUND_MAX;
	conn->congestion_threshold = OVERLAY_BACKGROUND_MAX * 3 / 4;
	conn->time_gran = 1;
	conn->no_interrupt = 1; /* see session.c: libfuse gets none to see */
	overlay->is_ready = overlay->init_error == 0;
}

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
	.lseek = op_lseek,
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
static int mount_device(struct overlay *overlay)
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

static int make_session(struct overlay *overlay)
{
	char name[] = "ferryfs", debug[] = "-odebug";
	char *words[] = { name, overlay->is_debug ? debug : NULL, NULL };
	struct fuse_args args = FUSE_ARGS_INIT(overlay->is_debug ? 2 : 1, words);

	overlay->session = fuse_session_new(&args, &operations, sizeof(operations), overlay);
	fuse_opt_free_args(&args);
	return overlay->session ? 0 : log_error_errno(ENOMEM, "cannot start a FUSE session");
}

/* ---- life ---------------------------------------------------------------- */

static struct overlay *overlay_free(struct overlay *overlay)
{
	if (!overlay)
		return NULL;
	if (overlay->session)
		fuse_session_destroy(overlay->session);
	overlay->files = fdcache_free(overlay->files);
	overlay->nodes = nodes_free(overlay->nodes);
	overlay->gate = gate_free(overlay->gate);
	fd_close(overlay->ended_fd);
	pthread_mutex_destroy(&overlay->leftover_lock);
	free(overlay->leftovers);
	free(overlay->limbo_name);
	free(overlay->fsname);
	free(overlay->mountpoint);
	free(overlay);
	return NULL;
}

static struct overlay *overlay_new(const struct overlay_config *config)
{
	struct overlay *overlay = calloc(1, sizeof(*overlay));

	if (!overlay)
		return NULL;
	pthread_mutex_init(&overlay->leftover_lock, NULL);
	overlay->ended_fd = eventfd(0, EFD_CLOEXEC);
	overlay->device_fd = -1;
	overlay->mountpoint = strdup(config->mountpoint);
	overlay->fsname = strdup(config->fsname);
	overlay->limbo_name = strdup(config->limbo_name);
	memcpy(overlay->store, config->store, sizeof(overlay->store));
	overlay->journal = config->journal;
	overlay->marks = config->marks;
	overlay->orphans = config->orphans;
	overlay->is_debug = config->is_debug;
	atomic_init(&overlay->active, config->active);
	overlay->gate = gate_new(config->parked_bytes_max);
	overlay->nodes = nodes_new();
	overlay->files = fdcache_new(descriptors_share(DESCRIPTORS_FILES, OVERLAY_FILES_MAX));
	overlay->leftovers = leftovers_new();
	overlay->pins_max = descriptors_share(DESCRIPTORS_UNLINKED, UINT_MAX);
	if (overlay->ended_fd < 0 || !overlay->mountpoint || !overlay->fsname ||
	    !overlay->limbo_name || !overlay->gate || !overlay->nodes || !overlay->files ||
	    !overlay->leftovers)
		return overlay_free(overlay);
	return overlay;
}

static int load_flips(struct overlay *overlay)
{
	uint64_t flips = 0;
	int r;

	r = journal_number_get(overlay->journal, "overlay.flips", &flips);
	if (r < 0)
		return r;
	/* The record of the flip counts, not ours, which may have been lost. */
	if (overlay_active(overlay) == SIDE_B && flips == 0)
		flips = 1;
	atomic_store(&overlay->flips, flips);
	return 0;
}

/* The root is always known. */
static int add_root(struct overlay *overlay)
{
	struct node root = { .id = JOURNAL_ROOT_ID,
			     .type = S_IFDIR,
			     .side = overlay_active(overlay) };
	struct object object;
	struct store_attr attr;
	int r;

	store_root(overlay_store(overlay), &root.locator);
	r = fs_outcome(store_getattr(overlay_store(overlay), &root.locator, &attr));
	if (r < 0)
		return r;
	r = journal_object_get(overlay->journal, JOURNAL_ROOT_ID, &object);
	if (r < 0)
		return r;
	root.ino = r == 0 && object.ino ? object.ino : attr.ino;
	return nodes_add(overlay->nodes, &root, 1);
}

/* Ends a mount that never came to serve. */
static void abandon(struct overlay *overlay)
{
	(void)umount2(overlay->mountpoint,
		      MNT_FORCE | MNT_DETACH); /* aborts; there is nothing more to do */
	overlay_session_join(overlay);
}

int overlay_open(const struct overlay_config *config, struct overlay **ret_overlay)
{
	struct overlay *overlay;
	int r;

	assert(config->threads > 0 && config->threads <= OVERLAY_THREADS_MAX);
	assert(config->store[config->active] && config->mountpoint[0] == '/');
	overlay = overlay_new(config);
	if (!overlay)
		return log_error_errno(ENOMEM, "cannot mount over '%s'", config->mountpoint);
	r = load_flips(overlay);
	if (r == 0)
		r = add_root(overlay);
	if (r < 0) {
		(void)log_error_errno(r, "cannot read the root below '%s'", config->mountpoint);
		overlay_free(overlay);
		return r;
	}
	if (config->active == SIDE_A)
		leftovers_clear(overlay);
	r = make_session(overlay);
	if (r == 0)
		r = mount_device(overlay);
	if (r < 0) {
		overlay_free(overlay);
		return r;
	}
	r = overlay_session_greet(overlay);
	if (r == 0)
		r = overlay_session_start(overlay, config->threads);
	if (r < 0) {
		(void)log_error_errno(r, "cannot serve '%s'", config->mountpoint);
		abandon(overlay);
		overlay_free(overlay);
		return r;
	}
	*ret_overlay = overlay;
	return 0;
}

int overlay_unmount(struct overlay *overlay)
{
	if (overlay_is_ended(overlay))
		return 0;
	return umount2(overlay->mountpoint, UMOUNT_NOFOLLOW) < 0 ? -errno : 0;
}

bool overlay_is_ended(const struct overlay *overlay)
{
	return atomic_load(&overlay->is_ended);
}

int overlay_ended_fd(const struct overlay *overlay)
{
	return overlay->ended_fd;
}

struct overlay *overlay_close(struct overlay *overlay)
{
	int r;

	if (!overlay)
		return NULL;
	overlay_session_join(overlay);
	r = gate_enter(overlay->gate, GATE_CHANGE);
	leftovers_end_all(overlay, /* is_frozen= */ r != 0);
	if (r == 0)
		gate_leave(overlay->gate, GATE_CHANGE);
	return overlay_free(overlay);
}

/* ---- the gate ------------------------------------------------------------ */

int overlay_freeze(struct overlay *overlay, uint64_t deadline_ms)
{
	return gate_freeze(overlay->gate, deadline_ms);
}

bool overlay_is_overfull(const struct overlay *overlay)
{
	return gate_is_overfull(overlay->gate);
}

void overlay_thaw(struct overlay *overlay)
{
	gate_open(overlay->gate);
}

/* For a restart; nothing hangs on it before. */
static void keep_flips(struct overlay *overlay, uint64_t flips)
{
	journal_compose(overlay->journal);
	journal_put_number(overlay->journal, "overlay.flips", flips);
	(void)journal_submit(overlay->journal); /* flushed with the next change */
}

int overlay_hold_reads(struct overlay *overlay, uint64_t deadline_ms)
{
	return gate_close_reads(overlay->gate, deadline_ms);
}

void overlay_switch(struct overlay *overlay, enum side side)
{
	assert(overlay->store[side]);
	assert(overlay_active(overlay) != side);
	leftovers_switch(overlay);
	fdcache_flush(overlay->files);
	atomic_store(&overlay->active, side);
	keep_flips(overlay, atomic_fetch_add(&overlay->flips, 1) + 1);
	gate_open(overlay->gate);
}

/* The allocator keeps what is freed amidst what is not, unless it is told. */
void overlay_tidy(struct overlay *overlay)
{
	uint64_t count = nodes_count(overlay->nodes);

	if (count > overlay->nodes_most)
		overlay->nodes_most = count;
	/* By halves: a tree that is dropped bit by bit is not worth a look each time. */
	if (overlay->nodes_most - count < OVERLAY_TIDY_NODES || count > overlay->nodes_most / 2)
		return;
	if (gate_parked(overlay->gate) > 0)
		return; /* whoever waits need not wait for this too */
	overlay->nodes_most = count;
	(void)malloc_trim(0); /* whether there was anything */
}

void overlay_get_stats(struct overlay *overlay, struct overlay_stats *ret_stats)
{
	*ret_stats = (struct overlay_stats){
		.requests = atomic_load(&overlay->requests),
		.changes = atomic_load(&overlay->changes),
		.read_bytes = atomic_load(&overlay->read_bytes),
		.written_bytes = atomic_load(&overlay->written_bytes),
		.nodes = nodes_count(overlay->nodes),
		.parked = gate_parked(overlay->gate),
		.last_parked_ms = gate_last_parked_ms(overlay->gate),
	};
}
