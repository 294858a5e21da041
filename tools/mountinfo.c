/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mountinfo.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "util/cleanup.h"

/* Takes back what the kernel writes for space, tab, newline and backslash: \ooo. */
static void unescape_octal(char *text)
{
	char *out = text;

	while (*text) {
		if (text[0] == '\\' && strspn(text + 1, "01234567") >= 3) {
			*out++ = (char)((text[1] - '0') << 6 | (text[2] - '0') << 3 |
					(text[3] - '0'));
			text += 4;
		} else {
			*out++ = *text++;
		}
	}
	*out = '\0';
}

static void entry_done(struct mount_entry *entry)
{
	free(entry->device);
	free(entry->root);
	free(entry->mountpoint);
	free(entry->type);
	free(entry->source);
}

static int copy_field(const char *field, char **ret_copy)
{
	char *copy;

	if (!field)
		return -EIO;
	copy = strdup(field);
	if (!copy)
		return -ENOMEM;
	unescape_octal(copy);
	*ret_copy = copy;
	return 0;
}

/* "36 35 98:0 /root /mount/point rw,noatime master:1 - ext3 /dev/root rw,errors=..." */
static int parse_line(char *line, struct mount_entry *entry)
{
	char *save = NULL, *field[5], *word;
	int r;

	for (size_t i = 0; i < ARRAY_SIZE(field); i++) {
		field[i] = strtok_r(i == 0 ? line : NULL, " \n", &save);
		if (!field[i])
			return -EIO;
	}
	do { /* options, and optional fields up to the dash */
		word = strtok_r(NULL, " \n", &save);
		if (!word)
			return -EIO;
	} while (strcmp(word, "-") != 0);

	entry->id = strtoull(field[0], NULL, 10);
	entry->parent = strtoull(field[1], NULL, 10);
	r = copy_field(field[2], &entry->device);
	if (r == 0)
		r = copy_field(field[3], &entry->root);
	if (r == 0)
		r = copy_field(field[4], &entry->mountpoint);
	if (r == 0)
		r = copy_field(strtok_r(NULL, " \n", &save), &entry->type);
	if (r == 0) {
		/* A mount may have no source: the field is then empty, and the options follow. */
		word = strtok_r(NULL, " \n", &save);
		r = copy_field(word ? word : "", &entry->source);
	}
	return r;
}

static int append(struct mountinfo *mounts, unsigned *room, char *line)
{
	struct mount_entry entry = { 0 };
	int r;

	if (mounts->count == *room) {
		unsigned more = *room ? 2 * *room : 64;
		struct mount_entry *entries = reallocarray(mounts->entries, more, sizeof(*entries));

		if (!entries)
			return -ENOMEM;
		mounts->entries = entries;
		*room = more;
	}
	r = parse_line(line, &entry);
	if (r < 0) {
		entry_done(&entry);
		return r;
	}
	mounts->entries[mounts->count++] = entry;
	return 0;
}

int mountinfo_load(FILE *file, struct mountinfo *ret_mounts)
{
	_cleanup_(cleanup_mountinfo_) struct mountinfo mounts = MOUNTINFO_NULL;
	_cleanup_fclose_ FILE *own = NULL;
	_cleanup_free_ char *line = NULL;
	unsigned room = 0;
	size_t size = 0;

	if (!file) {
		file = own = fopen("/proc/self/mountinfo", "re");
		if (!file)
			return -errno;
	}
	while (getline(&line, &size, file) >= 0) {
		int r = append(&mounts, &room, line);

		if (r < 0)
			return r;
	}
	if (ferror(file))
		return -EIO;
	*ret_mounts = mounts;
	mounts = MOUNTINFO_NULL;
	return 0;
}

void mountinfo_done(struct mountinfo *mounts)
{
	for (unsigned i = 0; i < mounts->count; i++)
		entry_done(&mounts->entries[i]);
	free(mounts->entries);
	*mounts = MOUNTINFO_NULL;
}

bool mountinfo_path_is_inside(const char *inner, const char *outer)
{
	size_t length = strlen(outer);

	while (length > 0 && outer[length - 1] == '/')
		length--; /* "/" becomes empty: all is inside */
	return strncmp(inner, outer, length) == 0 &&
	       (inner[length] == '/' || inner[length] == '\0');
}

static bool is_parent_of_any(const struct mountinfo *mounts, const struct mount_entry *entry)
{
	for (unsigned i = 0; i < mounts->count; i++) {
		const struct mount_entry *other = &mounts->entries[i];

		if (other != entry && other->parent == entry->id &&
		    strcmp(other->mountpoint, entry->mountpoint) == 0)
			return true;
	}
	return false;
}

const struct mount_entry *mountinfo_at(const struct mountinfo *mounts, const char *path)
{
	/* Of those stacked at one place the topmost is nobody's parent there. */
	for (unsigned i = mounts->count; i > 0; i--) {
		const struct mount_entry *entry = &mounts->entries[i - 1];

		if (strcmp(entry->mountpoint, path) == 0 && !is_parent_of_any(mounts, entry))
			return entry;
	}
	return NULL;
}

const struct mount_entry *mountinfo_covering(const struct mountinfo *mounts, const char *path)
{
	char at[PATH_MAX];
	size_t length = strlen(path);

	if (length >= sizeof(at) || path[0] != '/')
		return NULL;
	memcpy(at, path, length + 1);
	for (;;) {
		const struct mount_entry *entry = mountinfo_at(mounts, at);

		if (entry || strcmp(at, "/") == 0)
			return entry;
		*strrchr(at, '/') = '\0';
		if (at[0] == '\0')
			strcpy(at, "/");
	}
}

const struct mount_entry *mountinfo_below(const struct mountinfo *mounts,
					  const struct mount_entry *mount, const char *path)
{
	for (unsigned i = 0; i < mounts->count; i++) {
		const struct mount_entry *entry = &mounts->entries[i];

		if (entry->parent == mount->id && entry != mount &&
		    mountinfo_path_is_inside(entry->mountpoint, path) &&
		    strcmp(entry->mountpoint, path) != 0)
			return entry;
	}
	return NULL;
}

/* Where @path is within its file system, whatever is mounted where. */
static bool get_inner_path(const struct mount_entry *mount, const char *path,
			   char inner[static PATH_MAX])
{
	size_t skip = strcmp(mount->mountpoint, "/") == 0 ? 0 : strlen(mount->mountpoint);
	const char *root = strcmp(mount->root, "/") == 0 ? "" : mount->root;
	int n = snprintf(inner, PATH_MAX, "%s%s", root, path + skip);

	return n >= 0 && n < PATH_MAX;
}

bool mountinfo_is_inside(const struct mountinfo *mounts, const char *inner, const char *outer)
{
	const struct mount_entry *inner_mount = mountinfo_covering(mounts, inner);
	const struct mount_entry *outer_mount = mountinfo_covering(mounts, outer);
	char inner_path[PATH_MAX], outer_path[PATH_MAX];

	if (mountinfo_path_is_inside(inner, outer))
		return true;
	if (!inner_mount || !outer_mount || strcmp(inner_mount->device, outer_mount->device) != 0)
		return false;
	return get_inner_path(inner_mount, inner, inner_path) &&
	       get_inner_path(outer_mount, outer, outer_path) &&
	       mountinfo_path_is_inside(inner_path, outer_path);
}
