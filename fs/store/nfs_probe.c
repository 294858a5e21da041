/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trying out whether the export takes what a target must take, in a directory of our
 * own at its root. The first thing that fails is named with its remedy. The store is
 * not in use by others yet, but the export may be: nothing outside the directory is
 * touched.
 */
#include "fs/store/nfs_store.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/log.h"

enum {
	PROBE_UID = 12345,
	PROBE_GID = 54321,
	PROBE_NSEC = 123456789,
	PROBE_BYTES = 4096,
};

struct probe {
	struct store *store;
	char name[64];
	struct locator dir, file;
};

/* What an error at the very first step means for a target. */
static int explain(struct probe *probe, int r, const char *step)
{
	const char *remedy;

	switch (r) {
	case -EROFS:
		remedy = "the export is read-only: export it read-write";
		break;
	case -ENOSPC:
	case -EDQUOT:
		remedy = "the target is full: make space, or raise the quota";
		break;
	case -EPERM:
	case -EACCES:
		remedy = "root may not do that there (root squash?): export it with no_root_squash";
		break;
	case -EOPNOTSUPP:
		remedy = "the server cannot do that: choose another target";
		break;
	case -EHOSTDOWN:
	case STORE_E_UNKNOWN:
		r = -EHOSTDOWN;
		remedy = "the server stopped answering: try again";
		break;
	default:
		remedy = "see the server's log";
		break;
	}
	return log_error_errno(r, "target '%s' fails at: %s; %s", probe->store->identity, step,
			       remedy);
}

static int make(struct probe *probe, const struct locator *dir, const char *name, mode_t mode,
		dev_t rdev, const char *target, struct locator *ret_locator)
{
	struct store_new new = { .mode = mode,
				 .rdev = rdev,
				 .link_target = target,
				 .uid = PROBE_UID,
				 .gid = PROBE_GID };
	struct store_attr attr;
	int r;

	r = nfscreate(probe->store, dir, name, &new, ret_locator, &attr);
	if (r == 0 && (attr.uid != PROBE_UID || attr.gid != PROBE_GID))
		r = -EPERM; /* silently made ours: squashed */
	if (r == 0 && !S_ISLNK(mode) && (attr.mode & 07777) != (mode & 07777))
		r = -EOPNOTSUPP;
	return r;
}

static int try_write(struct probe *probe)
{
	char zeros[PROBE_BYTES] = { 0 };
	struct store_file *file;
	int r;

	r = nfsfile_open(probe->store, &probe->file, STORE_OPEN_WRITE, &file);
	if (r < 0)
		return r;
	r = nfsfile_write(file, zeros, sizeof(zeros), 0, /* is_stable= */ true);
	nfsfile_close(file);
	return r;
}

/* Owner, suid and times in one go, as each copied file gets them. */
static int try_attributes(struct probe *probe)
{
	static const uint64_t units_ns[] = { 1, 100, 1000, 1000000, 1000000000, 2000000000 };
	struct store_setattr set = {
		.valid = STORE_SET_UID | STORE_SET_GID | STORE_SET_MODE | STORE_SET_ATIME |
			 STORE_SET_MTIME,
		.mode = 06755,
		.uid = PROBE_UID + 1,
		.gid = PROBE_GID + 1,
		.atime = { .tv_sec = 1000000001, .tv_nsec = PROBE_NSEC },
		.mtime = { .tv_sec = 1000000001, .tv_nsec = PROBE_NSEC },
	};
	const uint64_t given_ns = 1000000001 * UINT64_C(1000000000) + PROBE_NSEC;
	struct store_attr attr;
	uint64_t kept_ns;
	int r;

	r = nfsattr_set(probe->store, &probe->file, &set, NULL);
	if (r == 0)
		r = nfsattr_get(probe->store, &probe->file, &attr);
	if (r != 0)
		return r;
	if (attr.uid != set.uid || attr.gid != set.gid)
		return -EPERM;
	if ((attr.mode & 07777) != set.mode)
		return -EOPNOTSUPP;

	kept_ns = (uint64_t)attr.mtime.tv_sec * UINT64_C(1000000000) + (uint64_t)attr.mtime.tv_nsec;
	for (size_t i = 0; i < ARRAY_SIZE(units_ns); i++)
		if (kept_ns == given_ns - given_ns % units_ns[i]) {
			probe->store->caps.time_granularity_ns = units_ns[i];
			return 0;
		}
	return -EOPNOTSUPP; /* times that are not kept at all */
}

/* Some servers take a symlink's times and leave them as they are. */
static int try_symlink_times(struct probe *probe, const struct locator *symlink)
{
	const struct store_setattr set = { .valid = STORE_SET_MTIME,
					   .mtime = { .tv_sec = 1000000001 } };
	struct store_attr attr;
	int r;

	r = nfsattr_set(probe->store, symlink, &set, NULL);
	if (r == 0)
		r = nfsattr_get(probe->store, symlink, &attr);
	if (r == -EHOSTDOWN || r > 0)
		return r;
	probe->store->caps.has_symlink_times = r == 0 && attr.mtime.tv_sec == set.mtime.tv_sec;
	return 0;
}

static int try_names(struct probe *probe)
{
	static const struct {
		const char *name, *step;
		mode_t mode;
	} kinds[] = {
		{ "link", "creating a symlink", S_IFLNK | 0777 },
		{ "fifo", "creating a fifo", S_IFIFO | 0600 },
		{ "socket", "creating a socket", S_IFSOCK | 0600 },
		{ "device", "creating a device node", S_IFCHR | 0600 },
		{ "directory", "creating a setgid directory", S_IFDIR | 02775 },
	};
	struct locator made;
	int r;

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		r = make(probe, &probe->dir, kinds[i].name, kinds[i].mode, makedev(1, 3),
			 S_ISLNK(kinds[i].mode) ? "target" : NULL, &made);
		if (r != 0)
			return explain(probe, r, kinds[i].step);
		if (S_ISLNK(kinds[i].mode)) {
			r = try_symlink_times(probe, &made);
			if (r != 0)
				return explain(probe, r, "setting a symlink's times");
		}
	}
	r = nfsname_link(probe->store, &probe->file, &probe->dir, "second");
	if (r != 0)
		return explain(probe, r, "creating a hard link");
	r = nfsname_rename(probe->store, &probe->dir, "second", &probe->dir, "third", 0);
	if (r != 0)
		return explain(probe, r, "renaming");
	return 0;
}

static int try_all(struct probe *probe)
{
	int r;

	r = make(probe, &probe->dir, "file", S_IFREG | 06755, 0, NULL, &probe->file);
	if (r != 0)
		return explain(probe, r, "creating a suid file of another owner");
	r = try_write(probe);
	if (r != 0)
		return explain(probe, r, "writing to a file");
	r = try_attributes(probe);
	if (r != 0)
		return explain(probe, r, "setting owner, mode and times");
	return try_names(probe);
}

/* Best effort: what stays behind does no harm, and its name says whose it is. */
static void clean_up(struct probe *probe)
{
	static const char *const files[] = { "file",   "link",	 "fifo", "socket",
					     "device", "second", "third" };
	struct locator root = nfsstore_of(probe->store)->root;
	int r;

	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		(void)!nfsname_unlink(probe->store, &probe->dir,
				      files[i]); /* most are not there after a failure */
	(void)!nfsname_rmdir(probe->store, &probe->dir, "directory"); /* likewise */
	r = nfsname_rmdir(probe->store, &root, probe->name);
	if (r != 0)
		(void)log_warning_errno(r, "cannot remove '%s' from the target's root, ignoring",
					probe->name);
}

int nfsprobe_target(struct store *store)
{
	struct probe probe = { .store = store };
	struct locator root = nfsstore_of(store)->root;
	struct store_new new = { .mode = S_IFDIR | 0700 };
	struct store_attr attr;
	int r;

	(void)snprintf(probe.name, sizeof(probe.name), ".ferryfs-probe-%ld-%llx", (long)getpid(),
		       (unsigned long long)clock_ns()); /* fits */
	r = nfscreate(store, &root, probe.name, &new, &probe.dir, &attr);
	if (r != 0)
		return explain(&probe, r, "creating a directory");
	r = try_all(&probe);
	clean_up(&probe);
	return r;
}
