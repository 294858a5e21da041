/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Extended attributes and POSIX ACLs (which are attributes to the kernel: system.posix_acl_*).
 * What the target cannot carry is told, never hidden; and where it cannot carry an access
 * ACL, the group bits of the mode, which show the mask then, are cut to what the owning
 * group has, so that dropping the ACL does not widen access.
 */
#include <endian.h>
#include <errno.h>
#include <linux/posix_acl_xattr.h>
#include <stdlib.h>
#include <string.h>

#include "migrate/migrate_internal.h"
#include "util/cleanup.h"

#define ACL_ACCESS "system.posix_acl_access"
#define ACL_DEFAULT "system.posix_acl_default"

enum { ACL_TAG_GROUP_OBJ = 0x04, ACL_TAG_MASK = 0x10 };

struct list {
	char *names; /* NUL-ended, one after another */
	size_t size;
};

static bool is_acl(const char *name)
{
	return strcmp(name, ACL_ACCESS) == 0 || strcmp(name, ACL_DEFAULT) == 0;
}

/* Reads a list or a value whole, whatever its size; an empty one has size 0. */
static ssize_t read_whole(struct store *store, const struct locator *object, struct store_file *file,
			  const char *name, char **ret)
{
	_cleanup_free_ char *buffer = NULL;
	size_t room = 256;
	ssize_t n;

	for (;;) {
		free(buffer);
		buffer = malloc(room);
		if (!buffer)
			return -ENOMEM;
		n = !name && file ? store_file_listxattr(file, buffer, room) : -EOPNOTSUPP;
		if (n == -EOPNOTSUPP)
			n = name ? store_getxattr(store, object, name, buffer, room) :
				   store_listxattr(store, object, buffer, room);
		if (n != -ERANGE || room >= MIGRATE_XATTR_BYTES_MAX)
			break;
		room = MIGRATE_XATTR_BYTES_MAX;
	}
	if (n >= 0)
		*ret = TAKE_PTR(buffer);
	return n;
}

static int read_list(struct store *store, const struct locator *object, struct store_file *file,
		     struct list *ret_list)
{
	ssize_t n = read_whole(store, object, file, NULL, &ret_list->names);

	if (n == -EOPNOTSUPP)
		n = 0;
	if (n < 0)
		return (int)n;
	ret_list->size = (size_t)n;
	return 0;
}

static bool list_has(const struct list *list, const char *name)
{
	for (size_t at = 0; at < list->size; at += strlen(list->names + at) + 1)
		if (strcmp(list->names + at, name) == 0)
			return true;
	return false;
}

/* What the owning group may do by @value, an access ACL as the kernel encodes it. */
static int acl_group_bits(const char *value, size_t size, struct xattr_result *result)
{
	const struct posix_acl_xattr_entry *entries;
	size_t count;
	unsigned group = 0, mask = 7;

	if (size < sizeof(struct posix_acl_xattr_header))
		return -EINVAL;
	entries = (const void *)(value + sizeof(struct posix_acl_xattr_header));
	count = (size - sizeof(struct posix_acl_xattr_header)) / sizeof(*entries);
	for (size_t i = 0; i < count; i++) {
		if (le16toh(entries[i].e_tag) == ACL_TAG_GROUP_OBJ)
			group = le16toh(entries[i].e_perm);
		else if (le16toh(entries[i].e_tag) == ACL_TAG_MASK)
			mask = le16toh(entries[i].e_perm);
	}
	result->has_mask = true;
	result->group_bits = (mode_t)((group & mask & 7) << 3);
	return 0;
}

static int lose(struct migrate *m, const struct object *object, const char *name, struct xattr_result *result)
{
	_cleanup_free_ char *value = NULL;
	ssize_t n;

	if (!is_acl(name)) {
		result->has_lost_xattr = true;
		return 0;
	}
	result->has_lost_acl = true;
	if (strcmp(name, ACL_ACCESS) != 0)
		return 0;
	n = read_whole(m->source, &object->locator[m->from], NULL, name, &value);
	if (n < 0)
		return n == -ENODATA ? 0 : (int)n;
	return acl_group_bits(value, (size_t)n, result);
}

static int carry(struct migrate *m, const struct object *object, const char *name,
		 const struct list *target_list, struct xattr_result *result)
{
	const struct store_caps *caps = store_caps(m->target);
	_cleanup_free_ char *value = NULL, *there = NULL;
	ssize_t n, n_there;
	int r;

	if (is_acl(name) ? !caps->has_acl : !caps->has_xattr)
		return lose(m, object, name, result);
	n = read_whole(m->source, &object->locator[m->from], NULL, name, &value);
	if (n < 0)
		return n == -ENODATA ? 0 : (int)n; /* removed meanwhile: marked again */
	if (list_has(target_list, name)) {
		n_there = read_whole(m->target, &object->locator[m->to], NULL, name, &there);
		if (n_there == n && memcmp(value, there, (size_t)n) == 0)
			return 0;
	}
	r = store_setxattr(m->target, &object->locator[m->to], name, value, (size_t)n, 0);
	if (r == -EOPNOTSUPP || r == -EPERM)
		return lose(m, object, name, result); /* this namespace, or this kind of object */
	return r;
}

static int drop_others(struct migrate *m, const struct object *object, const struct list *source_list,
		       const struct list *target_list)
{
	int r;

	for (size_t at = 0; at < target_list->size; at += strlen(target_list->names + at) + 1) {
		const char *name = target_list->names + at;

		if (list_has(source_list, name))
			continue;
		r = store_removexattr(m->target, &object->locator[m->to], name);
		if (r == STORE_E_UNKNOWN || (r < 0 && r != -ENODATA && r != -EOPNOTSUPP && r != -EPERM))
			return r;
	}
	return 0;
}

int xattr_sync(struct worker *worker, const struct object *object, struct store_file *file, bool is_new,
	       struct xattr_result *ret_result)
{
	struct migrate *m = worker->migrate;
	struct xattr_result result = { .has_lost_xattr = false };
	struct list source_list = { NULL, 0 }, target_list = { NULL, 0 };
	const struct store_caps *caps = store_caps(m->target);
	int r;

	r = read_list(m->source, &object->locator[m->from], file, &source_list);
	if (r == 0 && !is_new && (caps->has_xattr || caps->has_acl))
		r = read_list(m->target, &object->locator[m->to], NULL, &target_list);
	for (size_t at = 0; r == 0 && at < source_list.size; at += strlen(source_list.names + at) + 1)
		r = carry(m, object, source_list.names + at, &target_list, &result);
	if (r == 0)
		r = drop_others(m, object, &source_list, &target_list);
	free(source_list.names);
	free(target_list.names);
	if (r == 0)
		*ret_result = result;
	return r;
}
