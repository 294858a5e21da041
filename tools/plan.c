/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/plan.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/about.h"
#include "util/cleanup.h"
#include "util/log.h"

#define LOG_FILE "ferryfs.log" /* in the state directory */

enum { DEAD_MOUNTS_MAX = 8 }; /* stacked over one directory */

/* ---- canonical paths ----------------------------------------------------- */

static int resolve(const char *what, const char *path, char ret_path[static PATH_MAX])
{
	if (!realpath(path, ret_path))
		return log_error_errno(errno, "cannot find %s '%s'", what, path);
	return 0;
}

/* As resolve(), of a path whose end need not be there yet. */
static int resolve_new(const char *what, const char *path, char ret_path[static PATH_MAX])
{
	char at[PATH_MAX], found[PATH_MAX];
	size_t length = strlen(path);
	const char *rest;
	int n;

	while (length > 1 && path[length - 1] == '/')
		length--;
	n = snprintf(at, sizeof(at), "%s%.*s", path[0] == '/' ? "" : "./", (int)length, path);
	if (n < 0 || n >= PATH_MAX)
		return log_error_errno(ENAMETOOLONG, "%s '%s'", what, path);

	rest = at + strlen(at);
	for (;;) {
		char head[PATH_MAX];
		size_t cut = (size_t)(rest - at);

		memcpy(head, at, cut);
		head[cut] = '\0';
		if (realpath(cut ? head : "/", found))
			break;
		if (errno != ENOENT)
			return log_error_errno(errno, "cannot find %s '%s'", what, path);
		while (rest > at && rest[-1] != '/')
			rest--;
		if (strncmp(rest, "..", 2) == 0 && (rest[2] == '/' || rest[2] == '\0'))
			return log_error_errno(ENOENT, "cannot find %s '%s'", what, path);
		while (rest > at && rest[-1] == '/')
			rest--; /* now after what may be there */
	}
	rest += strspn(rest, "/");
	n = snprintf(ret_path, PATH_MAX, "%s%s%s", strcmp(found, "/") == 0 ? "" : found,
		     *rest || !found[1] ? "/" : "", rest);
	if (n < 0 || n >= PATH_MAX)
		return log_error_errno(ENAMETOOLONG, "%s '%s'", what, path);
	return 0;
}

static int set_name(const struct options *options, struct plan *plan)
{
	int r;

	if (options->name) {
		strcpy(plan->name, options->name); /* a name: it fits */
		return 0;
	}
	r = text_name_from_path(plan->source, plan->name);
	if (r < 0)
		return log_error_errno(r, "no name can be made of '%s': give one with --name",
				       plan->source);
	return 0;
}

static int set_state_path(const struct options *options, struct plan *plan,
			  char state[static PATH_MAX])
{
	char path[sizeof(ABOUT_STATE_DIR) + TEXT_NAME_MAX + 2];

	(void)snprintf(path, sizeof(path), ABOUT_STATE_DIR "/%s", plan->name); /* always fits */
	return resolve_new("the state directory", options->state ? options->state : path, state);
}

/* A log's directory is not made, it is a slip of the pen. */
static int check_parent(const char *path)
{
	char parent[PATH_MAX];
	struct stat st;

	strcpy(parent, path);
	*(strrchr(parent, '/') + 1) = '\0';
	if (stat(parent, &st) < 0)
		return log_error_errno(errno, "cannot find the log's directory '%s'", parent);
	if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
		log_error("the log '%s' is not a file", path);
		return -EINVAL;
	}
	return 0;
}

static int set_log(const struct options *options, const char *state, struct plan *plan)
{
	int n;

	if (options->log) {
		n = resolve_new("the log", options->log, plan->log);
		return n < 0 ? n : check_parent(plan->log);
	}
	if (options->is_foreground)
		return 0;
	n = snprintf(plan->log, PATH_MAX, "%s/%s", state, LOG_FILE);
	if (n < 0 || n >= PATH_MAX)
		return log_error_errno(ENAMETOOLONG, "the state directory '%s'", state);
	return 0;
}

static int set_target(const struct options *options, struct plan *plan)
{
	plan->is_url = options_is_url(options->target);
	if (!plan->is_url)
		return resolve("TARGET", options->target, plan->target);
	if (strlen(options->target) >= sizeof(plan->target))
		return log_error_errno(ENAMETOOLONG, "TARGET '%s'", options->target);
	strcpy(plan->target, options->target);
	return 0;
}

static int set_paths(const struct options *options, struct plan *plan, char state[static PATH_MAX])
{
	int r;

	r = resolve("SOURCE", options->source, plan->source);
	if (r < 0)
		return r;
	r = set_name(options, plan);
	if (r < 0)
		return r;
	r = resolve("the mount point", options->at ? options->at : plan->source, plan->mount);
	if (r < 0)
		return r;
	r = set_target(options, plan);
	if (r < 0)
		return r;
	r = set_state_path(options, plan, state);
	if (r < 0)
		return r;
	return set_log(options, state, plan);
}

/* ---- what an ended daemon left ------------------------------------------- */

static bool is_dead(const char *path)
{
	struct statx stx;

	return statx(AT_FDCWD, path, AT_STATX_FORCE_SYNC | AT_NO_AUTOMOUNT, STATX_MODE, &stx) < 0 &&
	       errno == ENOTCONN;
}

/* A dead mount answers nothing and keeps no secret: whoever still has files open on it
 * gets ENOTCONN either way. */
static int remove_dead_mount(const struct plan *plan, const struct mount_entry *mount)
{
	if (strcmp(mount->source, plan->name) != 0) {
		log_error(
			"a dead mount of '%s' covers '%s': start that migration again, or 'umount %s'",
			mount->source, plan->mount, plan->mount);
		return -EBUSY;
	}
	if (plan->state.is_new) {
		log_error(
			"a dead mount of '%s' covers '%s', but '%s' has no state of it: give the right "
			"--state, or 'umount %s'",
			plan->name, plan->mount, plan->state.path, plan->mount);
		return -EBUSY;
	}
	if (umount2(plan->mount, MNT_DETACH | UMOUNT_NOFOLLOW) < 0)
		return log_error_errno(errno, "cannot take away the dead mount at '%s'",
				       plan->mount);
	log_info("took away the dead mount that an earlier ferryfs left at '%s'", plan->mount);
	return 0;
}

static int remove_dead_mounts(const struct plan *plan)
{
	for (unsigned i = 0; i < DEAD_MOUNTS_MAX; i++) {
		_cleanup_(cleanup_mountinfo_) struct mountinfo mounts = MOUNTINFO_NULL;
		const struct mount_entry *mount;
		int r;

		r = mountinfo_load(NULL, &mounts);
		if (r < 0)
			return log_error_errno(r, "cannot read the list of mounts");
		mount = mountinfo_at(&mounts, plan->mount);
		if (!mount || strcmp(mount->type, MOUNTINFO_OURS) != 0 || !is_dead(plan->mount))
			return 0;
		r = remove_dead_mount(plan, mount);
		if (r < 0)
			return r;
	}
	log_error("dead mounts are stacked at '%s': umount them", plan->mount);
	return -EBUSY;
}

/* ---- the directories themselves ------------------------------------------ */

static int check_directory(const char *what, const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return log_error_errno(errno, "cannot stat %s '%s'", what, path);
	if (!S_ISDIR(st.st_mode)) {
		log_error("%s '%s' is not a directory", what, path);
		return -ENOTDIR;
	}
	return 0;
}

/* Mounting elsewhere must not hide anything. */
static int check_empty(const char *path)
{
	DIR *list = opendir(path);
	struct dirent *entry;
	int r = 0;

	if (!list)
		return log_error_errno(errno, "cannot list '%s'", path);
	while (r == 0 && (entry = readdir(list))) {
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			r = -ENOTEMPTY;
	}
	closedir(list);
	if (r < 0)
		log_error("the mount point '%s' is not empty: give an empty directory to --at",
			  path);
	return r;
}

static int check_directories(const struct plan *plan)
{
	int r;

	r = check_directory("SOURCE", plan->source);
	if (r < 0)
		return r;
	if (!plan->is_url) {
		r = check_directory("TARGET", plan->target);
		if (r < 0)
			return r;
	}
	if (strcmp(plan->mount, plan->source) == 0)
		return 0;
	r = check_directory("the mount point", plan->mount);
	return r < 0 ? r : check_empty(plan->mount);
}

static int check_all(const struct plan *plan)
{
	_cleanup_(cleanup_mountinfo_) struct mountinfo mounts = MOUNTINFO_NULL;
	int r;

	r = mountinfo_load(NULL, &mounts);
	if (r < 0)
		return log_error_errno(r, "cannot read the list of mounts");
	r = checks_mounts(plan, &mounts);
	if (r < 0)
		return r;
	r = check_directories(plan);
	if (r < 0)
		return r;
	return checks_overlap(plan, &mounts);
}

int plan_make(const struct options *options, struct plan *ret_plan)
{
	struct plan plan = { 0 };
	char state[PATH_MAX];
	int r;

	if (geteuid() != 0) {
		log_error("only root can mount over a directory and keep its owners");
		return -EPERM;
	}
	if (options->is_adopting) {
		log_error("--adopt is not in this version: give an empty TARGET");
		return -EOPNOTSUPP;
	}
	r = set_paths(options, &plan, state);
	if (r < 0)
		return r;
	/* First those that can be asked, then what is left of those that cannot. */
	r = checks_others(&plan);
	if (r < 0)
		return r;
	r = state_check(state, &plan.state);
	if (r < 0)
		return r;
	r = remove_dead_mounts(&plan);
	if (r < 0)
		return r;
	r = check_all(&plan);
	if (r < 0)
		return r;
	*ret_plan = plan;
	return 0;
}
