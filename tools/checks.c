/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/process.h"
#include "tools/wire.h"
#include "util/cleanup.h"
#include "util/log.h"

enum { ASK_MS_MAX = 2000 }; /* how long another daemon may take to answer */

/* ---- other daemons ------------------------------------------------------- */

/* Asks the daemon @name: 0 with its status, -ETIMEDOUT, or another error if it is gone. */
static int ask(const char *name, json_t **ret_status, pid_t *ret_pid)
{
	_cleanup_json_ json_t *request = json_pack("{s:s}", "command", "status");

	if (!request)
		return -ENOMEM;
	return wire_call(name, request, ASK_MS_MAX, ret_status, ret_pid);
}

static const char *get_string(json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

static bool overlaps(const char *a, const char *b)
{
	return a[0] == '/' && b[0] == '/' &&
	       (mountinfo_path_is_inside(a, b) || mountinfo_path_is_inside(b, a));
}

static int check_directories_of(const struct plan *plan, const char *name, json_t *status)
{
	const char *source = get_string(status, "source"), *target = get_string(status, "target");

	if (strcmp(plan->source, source) == 0) {
		log_error("'%s' is already being migrated, as '%s': see 'ferry status %s'", source,
			  name, name);
		return -EBUSY;
	}
	if (strcmp(plan->target, target) == 0 || overlaps(plan->target, target) ||
	    overlaps(plan->target, source)) {
		log_error(
			"TARGET '%s' is in the way of '%s', which migrates '%s' to '%s': give another one",
			plan->target, name, source, target);
		return -EBUSY;
	}
	if (overlaps(plan->source, source) || overlaps(plan->source, target)) {
		log_error("SOURCE '%s' is in the way of '%s', which migrates '%s' to '%s'",
			  plan->source, name, source, target);
		return -EBUSY;
	}
	return 0;
}

static int check_other(void *context, const char *name)
{
	const struct plan *plan = context;
	_cleanup_json_ json_t *status = NULL;
	pid_t pid = 0;
	int r;

	r = ask(name, &status, &pid);
	if (r == -ETIMEDOUT && !process_is_ending(pid) && strcmp(name, plan->name) == 0) {
		log_error("'%s' is in use by process %d, which does not answer", name, (int)pid);
		return -EBUSY;
	}
	if (r < 0)
		return 0; /* nobody there, about to end, or stuck with something else */
	r = check_directories_of(plan, name, status);
	if (r < 0)
		return r;
	if (strcmp(name, plan->name) == 0) {
		log_error(
			"'%s' is the name of a migration that runs as process %d: give another one with --name",
			name, (int)pid);
		return -EBUSY;
	}
	return 0;
}

int checks_others(const struct plan *plan)
{
	int r = wire_each(check_other, (void *)plan);

	if (r == -EBUSY)
		return r;
	return r < 0 ? log_error_errno(r, "cannot list '%s'", WIRE_DIR) : 0;
}

/* ---- mounts -------------------------------------------------------------- */

static int check_not_ours(const char *what, const char *path, const struct mountinfo *mounts)
{
	const struct mount_entry *mount = mountinfo_covering(mounts, path);

	if (!mount || strcmp(mount->type, MOUNTINFO_OURS) != 0)
		return 0;
	if (strcmp(mount->mountpoint, path) == 0)
		log_error("%s '%s' is already being migrated, as '%s': see 'ferry status %s'", what,
			  path, mount->source, mount->source);
	else
		log_error("%s '%s' is inside the mount of '%s' at '%s'", what, path, mount->source,
			  mount->mountpoint);
	return -EBUSY;
}

int checks_mounts(const struct plan *plan, const struct mountinfo *mounts)
{
	const struct mount_entry *mount, *nested;
	int r;

	r = check_not_ours("SOURCE", plan->source, mounts);
	if (r < 0)
		return r;
	if (!plan->is_url) {
		r = check_not_ours("TARGET", plan->target, mounts);
		if (r < 0)
			return r;
	}
	r = check_not_ours("the mount point", plan->mount, mounts);
	if (r < 0)
		return r;
	mount = mountinfo_covering(mounts, plan->source);
	nested = mount ? mountinfo_below(mounts, mount, plan->source) : NULL;
	if (nested) {
		log_error(
			"SOURCE '%s' has another file system (%s) mounted in it, at '%s': umount that, or "
			"migrate the parts one by one",
			plan->source, nested->type, nested->mountpoint);
		return -EBUSY;
	}
	return 0;
}

/* ---- overlap ------------------------------------------------------------- */

static int check_apart(const struct mountinfo *mounts, const char *inner_what, const char *inner,
		       const char *outer_what, const char *outer)
{
	if (!mountinfo_is_inside(mounts, inner, outer))
		return 0;
	if (mountinfo_is_inside(mounts, outer, inner))
		log_error("%s '%s' is the same directory as %s '%s'", inner_what, inner, outer_what,
			  outer);
	else
		log_error("%s '%s' is inside %s '%s'", inner_what, inner, outer_what, outer);
	return -EINVAL;
}

static int check_both_apart(const struct mountinfo *mounts, const char *what, const char *path,
			    const char *other_what, const char *other)
{
	int r = check_apart(mounts, what, path, other_what, other);

	return r < 0 ? r : check_apart(mounts, other_what, other, what, path);
}

int checks_overlap(const struct plan *plan, const struct mountinfo *mounts)
{
	const struct {
		const char *what, *path;
	} outer[] = {
		{ "SOURCE", plan->source },
		{ "the mount point", plan->mount },
		{ "TARGET", plan->is_url ? NULL : plan->target },
	};
	bool is_at = strcmp(plan->mount, plan->source) != 0;
	int r = 0;

	if (!plan->is_url)
		r = check_both_apart(mounts, "SOURCE", plan->source, "TARGET", plan->target);
	if (r == 0 && is_at)
		r = check_both_apart(mounts, "the mount point", plan->mount, "SOURCE",
				     plan->source);
	if (r == 0 && is_at && !plan->is_url)
		r = check_both_apart(mounts, "the mount point", plan->mount, "TARGET",
				     plan->target);
	for (size_t i = 0; i < ARRAY_SIZE(outer) && r == 0; i++) {
		if (!outer[i].path)
			continue;
		/* The daemon must never wait for its own mount, nor copy its own journal. */
		r = check_apart(mounts, "the state directory", plan->state.path, outer[i].what,
				outer[i].path);
		if (r == 0 && plan->log[0])
			r = check_apart(mounts, "the log", plan->log, outer[i].what, outer[i].path);
	}
	return r;
}
