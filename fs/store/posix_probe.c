/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a store can do: told without touching the tree (posix_guess_caps()), and tried
 * out on a target, in a private directory that is removed again.
 */
#include "fs/store/posix.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/log.h"

enum {
	PROBE_UID = 54321, /* somebody else than root */
	PROBE_GID = 54322,
	PROBE_BYTES = 8192, /* written, so that a full file system shows */
	PROBE_NAME_MAX = 32,

	LOCAL_PARALLEL = 8,   /* calls in flight that still help a disk */
	REMOTE_PARALLEL = 64, /* ... and hide a network's latency */
	IO_BYTES_MAX = 1 << 20,
};

struct probe {
	struct posix_store *store;
	int dir_fd; /* the private directory */
	int fd;	    /* "file" in it */
};

/* Everything that the steps make; removed in this order. */
static const char *const made_names[] = {
	"file", "hardlink", "symlink", "fifo", "socket", "device", "other", "moved", "tmpfile",
};

/* In memory nothing waits but for a processor. */
static unsigned parallel_max(const struct posix_fs_type *type)
{
	long processors;

	if (type->is_remote)
		return REMOTE_PARALLEL;
	if (!type->is_volatile)
		return LOCAL_PARALLEL;
	processors = sysconf(_SC_NPROCESSORS_ONLN);
	return processors > 0 && processors < LOCAL_PARALLEL ? (unsigned)processors + 1 : LOCAL_PARALLEL;
}

void posix_guess_caps(struct posix_store *store)
{
	const struct posix_fs_type *type = store->fs_type;
	ssize_t n;

	store->base.caps = (struct store_caps){
		.type = "posix",
		.is_local = !type->is_remote,
		.is_volatile = type->is_volatile,
		.has_handles = true,
		.has_punch_hole = !type->is_remote,
		.has_tmpfile = !type->is_remote,
		.has_symlink_times = true,
		.has_rename_flags = !type->is_remote,
		.time_granularity_ns = 1,
		.parallel_max = parallel_max(type),
		.io_size_max = IO_BYTES_MAX,
	};
	n = fgetxattr(store->root_fd, "user.ferryfs", NULL, 0);
	store->base.caps.has_xattr = n >= 0 || errno != EOPNOTSUPP;
	n = fgetxattr(store->root_fd, "system.posix_acl_access", NULL, 0);
	store->base.caps.has_acl = n >= 0 || errno != EOPNOTSUPP;
}

static const char *remedy(int error)
{
	switch (error) {
	case EROFS:
		return "mount it read-write";
	case ENOSPC:
		return "make room, or take a larger target; inodes count too (df -i)";
	case EDQUOT:
		return "raise the quota";
	case EACCES:
	case EPERM:
		return "does the server squash root (export with no_root_squash), or is a security module in the way?";
	case EOPNOTSUPP:
	case ENOSYS:
	case EINVAL:
		return "a target needs a file system with Unix ownership, modes, and links";
	default:
		return "see the kernel's log";
	}
}

/* Says what could not be done (@error: an errno), and what to do. */
static int refuse(const struct posix_store *store, int error, const char *what)
{
	log_error("the target '%s' (%s) does not take %s: %s; %s", store->path,
		  store->fs_type->name, what, strerrordesc_np(error), remedy(error));
	return -error;
}

/* ---- what a target must do ----------------------------------------------- */

static int probe_data(struct probe *probe)
{
	static const char data[PROBE_BYTES] = "ferryfs";
	ssize_t n;

	probe->fd = openat(probe->dir_fd, "file", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (probe->fd < 0)
		return refuse(probe->store, errno, "a new file");
	n = pwrite(probe->fd, data, sizeof(data), 0);
	if (n != (ssize_t)sizeof(data))
		return refuse(probe->store, n < 0 ? errno : ENOSPC, "data");
	if (fsync(probe->fd) < 0)
		return refuse(probe->store, errno, "data (fsync)");
	return 0;
}

static int probe_owner_and_mode(struct probe *probe)
{
	struct stat st;

	if (fchown(probe->fd, PROBE_UID, PROBE_GID) < 0)
		return refuse(probe->store, errno, "another owner");
	if (fchmod(probe->fd, 06755) < 0)
		return refuse(probe->store, errno, "a mode");
	if (fstat(probe->fd, &st) < 0)
		return refuse(probe->store, errno, "a look at a file");
	if (st.st_uid != PROBE_UID || st.st_gid != PROBE_GID)
		return refuse(probe->store, EPERM, "another owner: it ignores it");
	if ((st.st_mode & 07777) != 06755)
		return refuse(probe->store, EPERM, "suid and sgid bits");
	return 0;
}

/* The largest power of ten that the returned nanoseconds are a multiple of. */
static uint64_t granularity_of(long set_ns, long found_ns)
{
	uint64_t granularity = 1;

	while (granularity < 1000000000 &&
	       set_ns / (long)granularity * (long)granularity != found_ns)
		granularity *= 10;
	return granularity;
}

static int probe_times(struct probe *probe)
{
	const struct timespec times[2] = { { 1000000001, 987654321 }, { 1000000003, 123456789 } };
	struct stat st;

	if (futimens(probe->fd, times) < 0)
		return refuse(probe->store, errno, "times");
	if (fstat(probe->fd, &st) < 0)
		return refuse(probe->store, errno, "a look at a file");
	if (st.st_mtim.tv_sec != times[1].tv_sec && st.st_mtim.tv_sec != times[1].tv_sec - 1)
		return refuse(probe->store, EINVAL, "times: it sets others");
	probe->store->base.caps.time_granularity_ns =
		granularity_of(times[1].tv_nsec, st.st_mtim.tv_nsec);
	return 0;
}

static int probe_links(struct probe *probe)
{
	struct stat st;
	char target[16];
	ssize_t n;

	if (linkat(probe->dir_fd, "file", probe->dir_fd, "hardlink", 0) < 0)
		return refuse(probe->store, errno, "hard links");
	if (fstat(probe->fd, &st) < 0 || st.st_nlink != 2)
		return refuse(probe->store, EOPNOTSUPP, "hard links");
	if (symlinkat("file", probe->dir_fd, "symlink") < 0)
		return refuse(probe->store, errno, "symlinks");
	n = readlinkat(probe->dir_fd, "symlink", target, sizeof(target));
	if (n != (ssize_t)strlen("file") || memcmp(target, "file", strlen("file")) != 0)
		return refuse(probe->store, n < 0 ? errno : EOPNOTSUPP, "symlinks");
	if (fchownat(probe->dir_fd, "symlink", PROBE_UID, PROBE_GID, AT_SYMLINK_NOFOLLOW) < 0)
		return refuse(probe->store, errno, "another owner of a symlink");
	return 0;
}

static int probe_special(struct probe *probe)
{
	if (mknodat(probe->dir_fd, "fifo", S_IFIFO | 0600, 0) < 0)
		return refuse(probe->store, errno, "fifos");
	if (mknodat(probe->dir_fd, "socket", S_IFSOCK | 0600, 0) < 0)
		return refuse(probe->store, errno, "sockets");
	/* Most trees have none, and each one that fails will be named. */
	if (mknodat(probe->dir_fd, "device", S_IFCHR | 0600, makedev(1, 3)) < 0)
		log_warning_errno(errno,
				  "the target '%s' (%s) does not take device nodes, ignoring",
				  probe->store->path, probe->store->fs_type->name);
	return 0;
}

/* ---- what it may do ------------------------------------------------------ */

static bool probe_acl(struct probe *probe)
{
	/* Version 2; owner rwx, user 54321 r, group r, mask r, other none. */
	static const uint8_t acl[] = {
		2, 0,	 0,    0,    0x01, 0,	 7,    0, 0xff, 0xff, 0xff, 0xff, 0x02, 0,    4,
		0, 0x31, 0xd4, 0,    0,	   0x04, 0,    4, 0,	0xff, 0xff, 0xff, 0xff, 0x10, 0,
		4, 0,	 0xff, 0xff, 0xff, 0xff, 0x20, 0, 0,	0,    0xff, 0xff, 0xff, 0xff,
	};
	uint8_t found[sizeof(acl)];

	return fsetxattr(probe->fd, "system.posix_acl_access", acl, sizeof(acl), 0) == 0 &&
	       fgetxattr(probe->fd, "system.posix_acl_access", found, sizeof(found)) ==
		       (ssize_t)sizeof(found);
}

static bool probe_rename_flags(struct probe *probe)
{
	int dir_fd = probe->dir_fd;

	if (mknodat(dir_fd, "other", S_IFREG | 0600, 0) < 0)
		return false;
	return renameat2(dir_fd, "other", dir_fd, "moved", RENAME_NOREPLACE) == 0 &&
	       renameat2(dir_fd, "moved", dir_fd, "file", RENAME_NOREPLACE) < 0 &&
	       errno == EEXIST && renameat2(dir_fd, "moved", dir_fd, "file", RENAME_EXCHANGE) == 0;
}

static bool probe_tmpfile(struct probe *probe)
{
	_cleanup_close_ int fd = openat(probe->dir_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0);

	return fd >= 0 && linkat(fd, "", probe->dir_fd, "tmpfile", AT_EMPTY_PATH) == 0;
}

static bool probe_symlink_times(struct probe *probe)
{
	const struct timespec times[2] = { { 1000000000, 0 }, { 1000000002, 0 } };
	struct stat st;

	return utimensat(probe->dir_fd, "symlink", times, AT_SYMLINK_NOFOLLOW) == 0 &&
	       fstatat(probe->dir_fd, "symlink", &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       st.st_mtim.tv_sec == times[1].tv_sec;
}

static void probe_optional(struct probe *probe)
{
	struct store_caps *caps = &probe->store->base.caps;

	caps->has_xattr = fsetxattr(probe->fd, "user.ferryfs", "1", 1, 0) == 0;
	caps->has_acl = probe_acl(probe);
	caps->has_punch_hole = fallocate(probe->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
					 PROBE_BYTES / 2) == 0;
	caps->has_rename_flags = probe_rename_flags(probe);
	caps->has_tmpfile = probe_tmpfile(probe);
	caps->has_symlink_times = probe_symlink_times(probe);
}

static int probe_all(struct probe *probe)
{
	static int (*const steps[])(struct probe *) = {
		probe_data, probe_owner_and_mode, probe_times, probe_links, probe_special,
	};
	int r;

	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		r = steps[i](probe);
		if (r < 0)
			return r;
	}
	probe_optional(probe);
	return 0;
}

static int make_dir(struct posix_store *store, char name[static PROBE_NAME_MAX])
{
	uint32_t random;

	if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random))
		return -EIO;
	(void)snprintf(name, PROBE_NAME_MAX, ".ferryfs-probe-%08x", random); /* fits */
	return mkdirat(store->root_fd, name, 0700) < 0 ? -errno : 0;
}

static int clean_up(struct probe *probe, const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(made_names); i++)
		if (probe->dir_fd >= 0 && unlinkat(probe->dir_fd, made_names[i], 0) < 0 &&
		    errno != ENOENT)
			return log_error_errno(errno, "cannot remove '%s/%s/%s'",
					       probe->store->path, name, made_names[i]);
	if (unlinkat(probe->store->root_fd, name, AT_REMOVEDIR) < 0)
		return log_error_errno(errno, "cannot remove '%s/%s'", probe->store->path, name);
	return 0;
}

int posix_probe_target(struct store *base)
{
	struct probe probe = { .store = posix_store(base), .dir_fd = -1, .fd = -1 };
	char name[PROBE_NAME_MAX];
	int r, r_clean;

	r = make_dir(probe.store, name);
	if (r < 0)
		return refuse(probe.store, -r, "a new directory");
	probe.dir_fd =
		openat(probe.store->root_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	r = probe.dir_fd < 0 ? refuse(probe.store, errno, "a look at a new directory")
			     : probe_all(&probe);

	/* Closed first: a network mount keeps an open file's name in another form. */
	probe.fd = fd_close(probe.fd);
	r_clean = clean_up(&probe, name);
	probe.dir_fd = fd_close(probe.dir_fd);
	return r < 0 ? r : r_clean;
}
