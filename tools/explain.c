/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/explain.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/wire.h"
#include "util/cleanup.h"

/* One step of the walk: a name in a directory, and what is known of both. */
struct spot {
	struct locator dir, object;
	uint64_t dir_id, id; /* 0: the journal has not seen it */
	char name[JOURNAL_NAME_MAX + 1];
	mode_t mode;
	bool is_root;
	bool is_there; /* on the active side */
};

/* The part of @path below the mount's root, NULL if it is elsewhere. Text alone: asking
 * the mount would ask ourselves. */
static const char *below_mount(const struct service *service, const char *path)
{
	const char *mount = service->plan->mount;

	if (path[0] != '/')
		return path;
	if (!mountinfo_path_is_inside(path, mount))
		return NULL;
	return path + strlen(mount);
}

static int find_id(struct service *service, enum side active, const struct locator *locator,
		   uint64_t *ret_id)
{
	int r = journal_object_find(service->journal, active, locator, ret_id);

	if (r == JOURNAL_E_NONE) {
		*ret_id = 0;
		return 0;
	}
	return r;
}

/* Goes from @spot, a directory, to @name in it. */
static int step(struct service *service, enum side active, struct spot *spot, const char *name,
		size_t length)
{
	struct store_attr attr;
	int r;

	if (length > JOURNAL_NAME_MAX)
		return -ENAMETOOLONG;
	spot->dir = spot->object;
	spot->dir_id = spot->id;
	memcpy(spot->name, name, length);
	spot->name[length] = '\0';
	spot->is_root = false;
	spot->id = 0;
	r = store_lookup(service->store[active], &spot->dir, spot->name, &spot->object, &attr);
	spot->is_there = r == 0;
	if (r < 0)
		return r;
	spot->mode = attr.mode;
	return find_id(service, active, &spot->object, &spot->id);
}

/* Walks to @path; on -ENOENT *@spot is as far as the walk came, and *@ret_rest what is left. */
static int walk(struct service *service, enum side active, const char *path, struct spot *spot,
		const char **ret_rest)
{
	int r = 0;

	*spot = (struct spot){
		.is_root = true, .is_there = true, .mode = S_IFDIR, .id = JOURNAL_ROOT_ID
	};
	store_root(service->store[active], &spot->object);
	while (r == 0) {
		size_t length;

		path += strspn(path, "/");
		length = strcspn(path, "/");
		*ret_rest = path + length;
		if (length == 0)
			break;
		if (length <= 2 && strspn(path, ".") == length) {
			if (length == 2)
				return -EINVAL;
		} else {
			r = step(service, active, spot, path, length);
		}
		path += length;
	}
	return r;
}

static const char *kind_name(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
		return "file";
	case S_IFDIR:
		return "directory";
	case S_IFLNK:
		return "symlink";
	case S_IFIFO:
		return "fifo";
	case S_IFSOCK:
		return "socket";
	case S_IFCHR:
		return "character device";
	case S_IFBLK:
		return "block device";
	default:
		return "object";
	}
}

/* Where the object is on the passive side. */
static json_t *target_json(struct service *service, uint64_t id)
{
	char path[PATH_MAX];

	if (id == 0 || migrate_path(service->migrate, id, path, sizeof(path)) < 0)
		return json_null();
	return wire_text(strcmp(path, ".") == 0 ? "/" : path);
}

static json_t *marks_json(struct service *service, const struct spot *spot)
{
	struct marks_explanation marks = { 0 };
	bool has_name = spot->dir_id && marks_has_name(service->marks, spot->dir_id, spot->name);
	bool has_scan = spot->id && S_ISDIR(spot->mode) && marks_has_scan(service->marks, spot->id);

	if (spot->id)
		marks_explain_object(service->marks, spot->id, &marks);
	return json_pack("{s:b, s:b, s:b, s:I, s:I, s:o, s:b, s:b, s:b}", "name", has_name, "scan",
			 has_scan, "attr", marks.has_attr, "data_bytes",
			 (json_int_t)marks.dirty_bytes, "data_groups", (json_int_t)marks.groups,
			 "data_from",
			 marks.has_tail ? json_integer((json_int_t)marks.tail_offset) : json_null(),
			 "being_copied", marks.is_claimed, "being_changed", marks.is_changing,
			 "resting", marks.is_resting);
}

/* What the passive side has under this very name. */
static json_t *shadow_json(struct service *service, const struct spot *spot)
{
	uint64_t id;

	if (spot->is_root)
		return json_string("same");
	if (!spot->dir_id ||
	    journal_shadow_get(service->journal, spot->dir_id, spot->name, &id) != 0)
		return json_string("nothing");
	return json_string(id == spot->id ? "same" : "other");
}

static json_t *last_error_json(struct service *service, const char *name)
{
	struct migrate_status status;

	migrate_get_status(service->migrate, &status);
	return name[0] && strstr(status.error_last, name) ? wire_text(status.error_last)
							  : json_null();
}

static json_t *spot_json(struct service *service, enum side active, const char *path,
			 const struct spot *spot)
{
	return json_pack("{s:b, s:o, s:s, s:b, s:s, s:I, s:o, s:o, s:o, s:o}", "ok", 1, "path",
			 wire_text(path), "active", active == SIDE_A ? "source" : "target", "found",
			 spot->is_there, "kind", spot->is_there ? kind_name(spot->mode) : "nothing",
			 "object", (json_int_t)spot->id, "marks", marks_json(service, spot),
			 "at_name", shadow_json(service, spot), "copied_to",
			 target_json(service, spot->id), "last_error",
			 last_error_json(service, spot->name));
}

json_t *explain_json(struct service *service, const char *path)
{
	const char *below = below_mount(service, path), *rest;
	_cleanup_free_ char *shown = text_escape(path);
	struct phase_record record;
	struct spot spot;
	int r;

	if (!shown)
		return NULL;
	if (!below)
		return wire_error("'%s' is not below '%s': give a path in the mount", shown,
				  service->plan->mount);
	cutover_get_record(service->cutover, &record);
	r = walk(service, record.active, below, &spot, &rest);
	/* A name that is gone may still have its marks; one below a name that is gone cannot. */
	if (r == 0 || (r == -ENOENT && rest[strspn(rest, "/")] == '\0'))
		return spot_json(service, record.active, path, &spot);
	if (r == -EINVAL)
		return wire_error("'%s' has '..' in it: give the path without", shown);
	return wire_error("'%s' cannot be found: %s", shown, strerror(-r));
}
