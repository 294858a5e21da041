/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The comparison of a writer's model with what a directory holds.
 *
 * An operation that was under way when the record ended may have been made or not;
 * one that writes bytes may also have been made in part: each byte is then the old
 * one or the new one.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tests/lib/writer.h"
#include "tests/lib/writer_record.h"

enum { REPORTS_MAX = 40 };

struct comparison {
	struct model *model;
	const struct writer_options *options;
	FILE *out;
	char own[NAME_MAX];
	uint64_t differences;
};

static void PRINTF_LIKE(3, 4)
	differ(struct comparison *c, const char *path, const char *format, ...)
{
	va_list args;

	if (++c->differences > REPORTS_MAX || !c->out)
		return;
	fprintf(c->out, "writer %u: %s: ", c->options->id, escaped(path));
	va_start(args, format);
	vfprintf(c->out, format, args);
	va_end(args);
	fputc('\n', c->out);
}

/* ---- bytes and xattrs -------------------------------------------------------- */

static size_t read_bytes(const char *path, bool is_link, uint8_t *buffer, size_t size)
{
	size_t done = 0;
	ssize_t n;
	int fd;

	if (is_link) {
		n = readlink(path, (char *)buffer, size);
		return n < 0 ? SIZE_MAX : (size_t)n;
	}
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return SIZE_MAX;
	while (done < size && (n = read(fd, buffer + done, size - done)) > 0)
		done += (size_t)n;
	if (done < size && n < 0)
		done = SIZE_MAX;
	close(fd);
	return done;
}

static void compare_bytes(struct comparison *c, const char *path, const struct model_node *node)
{
	uint8_t *found = xcalloc(1, node->size + 1);
	size_t size = read_bytes(path, S_ISLNK(node->mode), found, node->size + 1), i;

	if (size == SIZE_MAX) {
		differ(c, path, "cannot read: %s", strerror(errno));
	} else if (size != node->size) {
		differ(c, path, "has %zu%s bytes, not %zu", size,
		       size > node->size ? " or more" : "", node->size);
	} else if (size > 0 && memcmp(found, node->bytes, size) != 0) {
		for (i = 0; found[i] == node->bytes[i]; i++)
			;
		differ(c, path, "object %u: bytes differ, first at %zu of %zu: %02x, not %02x",
		       node->id, i, size, found[i], node->bytes[i]);
	}
	free(found);
}

static void compare_xattrs(struct comparison *c, const char *path, const struct model_node *node)
{
	uint8_t value[MODEL_XATTR_BYTES_MAX + 1];
	const struct model_xattr *xattr;
	ssize_t size;
	unsigned i;

	for (i = 0; node->xattr && i < MODEL_XATTRS; i++) {
		xattr = &node->xattr[i];
		size = lgetxattr(path, model_xattr_names[i], value, sizeof(value));
		if (size < 0 && errno == EOPNOTSUPP && !xattr->is_set)
			continue;
		if (size < 0 && (errno != ENODATA || xattr->is_set))
			differ(c, path, "xattr %s: %s", model_xattr_names[i], strerror(errno));
		else if (size >= 0 && !xattr->is_set)
			differ(c, path, "xattr %s was removed", model_xattr_names[i]);
		else if (size >= 0 && ((size_t)size != xattr->size ||
				       memcmp(value, xattr->value, xattr->size) != 0))
			differ(c, path, "xattr %s has another value", model_xattr_names[i]);
	}
}

/* ---- attributes -------------------------------------------------------------- */

static void compare_attributes(struct comparison *c, const char *path, struct model_node *node)
{
	bool is_dir = S_ISDIR(node->mode);
	struct stat st;

	if (lstat(path, &st) < 0) {
		differ(c, path, "cannot stat: %s", strerror(errno));
		return;
	}
	if (S_ISLNK(node->mode) ? !S_ISLNK(st.st_mode) : st.st_mode != node->mode)
		differ(c, path, "mode %o, not %o", st.st_mode, node->mode);
	if ((st.st_mode & S_IFMT) != (node->mode & S_IFMT))
		return;
	if (st.st_uid != node->uid || st.st_gid != node->gid)
		differ(c, path, "owner %u:%u, not %u:%u", st.st_uid, st.st_gid, node->uid,
		       node->gid);
	if (!is_dir && st.st_nlink != node->nlink)
		differ(c, path, "%u links, not %u", (unsigned)st.st_nlink, node->nlink);
	if (!is_dir && node->seen_ino && node->seen_ino != st.st_ino)
		differ(c, path, "is not one inode with its other names");
	node->seen_ino = st.st_ino;
	if (node->has_mtime && !(c->options->no_symlink_times && S_ISLNK(node->mode)) &&
	    (st.st_mtim.tv_sec != node->mtime.tv_sec || st.st_mtim.tv_nsec != node->mtime.tv_nsec))
		differ(c, path, "mtime %lld.%09ld, not %lld.%09ld (mode %o)",
		       (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec,
		       (long long)node->mtime.tv_sec, node->mtime.tv_nsec, st.st_mode);
	if (S_ISREG(node->mode) || S_ISLNK(node->mode))
		compare_bytes(c, path, node);
	if (!c->options->no_xattr)
		compare_xattrs(c, path, node);
}

/* ---- the tree ---------------------------------------------------------------- */

static bool node_path(struct comparison *c, const struct model_node *dir, const char *name,
		      char path[static PATH_MAX])
{
	char below[PATH_MAX];

	return model_path(c->model, dir, name, c->own, c->options->shared, below, sizeof(below)) &&
	       snprintf(path, PATH_MAX, "%s/%s", c->options->dir, below) < PATH_MAX;
}

/* No name may be there that the model does not have. */
static void compare_listing(struct comparison *c, const struct model_node *node)
{
	char path[PATH_MAX];
	struct dirent *entry;
	size_t count = 0;
	DIR *dir;

	if (!node_path(c, node, /* name= */ NULL, path))
		return;
	dir = opendir(path);
	if (!dir) {
		differ(c, path, "cannot list: %s", strerror(errno));
		return;
	}
	for (errno = 0; (entry = readdir(dir)); errno = 0) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		count++;
		if (!model_find(node, entry->d_name))
			differ(c, path, "has '%s', which is not its own", escaped(entry->d_name));
	}
	if (errno)
		differ(c, path, "cannot list: %s", strerror(errno));
	closedir(dir);
	if (count != node->entry_count)
		differ(c, path, "%zu names listed, not %zu", count, node->entry_count);
}

static void compare_dir(struct comparison *c, struct model_node *dir)
{
	char path[PATH_MAX];
	size_t i;

	if (!dir->is_partial)
		compare_listing(c, dir);
	for (i = 0; i < dir->entry_count; i++)
		if (node_path(c, dir, dir->entries[i].name, path))
			compare_attributes(c, path, dir->entries[i].node);
}

uint64_t model_compare(struct model *model, const struct writer_options *options, FILE *out)
{
	struct comparison c = { .model = model, .options = options, .out = out };
	struct model_node *node;
	uint32_t i;

	snprintf(c.own, sizeof(c.own), "w%u", options->id);
	for (i = 0; i < model->node_count; i++)
		model->nodes[i]->seen_ino = 0;
	for (i = 0; i < model->node_count; i++) {
		node = model->nodes[i];
		if (S_ISDIR(node->mode) &&
		    (i == MODEL_OWN || node->nlink > 0 || (i == MODEL_SHARED && options->shared)))
			compare_dir(&c, node);
	}
	if (c.differences > REPORTS_MAX && out)
		fprintf(out, "writer %u: ... %llu differences in all\n", options->id,
			(unsigned long long)c.differences);
	return c.differences;
}

/* ---- an operation under way -------------------------------------------------- */

static bool changes_bytes(enum op_kind kind)
{
	return kind == OP_WRITE || kind == OP_TRUNCATE || kind == OP_ZERO || kind == OP_EXTEND ||
	       kind == OP_COLLAPSE || kind == OP_INSERT || kind == OP_COPY;
}

static const struct model_node *named_dir(const struct model *model, const struct model_node *node,
					  const char **ret_name)
{
	const struct model_node *dir;
	uint32_t i;
	size_t k;

	for (i = 0; i < model->node_count; i++) {
		dir = model->nodes[i];
		for (k = 0; k < dir->entry_count; k++)
			if (dir->entries[k].node == node) {
				*ret_name = dir->entries[k].name;
				return dir;
			}
	}
	return NULL;
}

static uint8_t byte_at(const struct model_node *node, size_t i)
{
	return i < node->size ? node->bytes[i] : 0;
}

/* If the bytes found are a mixture of @before and @after, lets @before have them. */
static bool take_mixture(struct comparison *c, struct model_node *before,
			 const struct model_node *after, struct op *ret_fact)
{
	size_t most = before->size > after->size ? before->size : after->size;
	size_t least = before->size < after->size ? before->size : after->size, size, i;
	const struct model_node *dir;
	char path[PATH_MAX];
	const char *name;
	uint8_t *found;

	dir = named_dir(c->model, before, &name);
	if (!dir || !node_path(c, dir, name, path))
		return false;
	found = xcalloc(1, most + 1);
	size = read_bytes(path, /* is_link= */ false, found, most + 1);
	for (i = 0; i < size && size <= most; i++)
		if (found[i] != byte_at(before, i) && found[i] != byte_at(after, i))
			break;
	if (size > most || size < least || i < size) {
		free(found);
		return false;
	}
	*ret_fact = (struct op){ .kind = OP_SETBYTES, .node = before->id, .length = size };
	model_apply(c->model, ret_fact, 0, found);
	free(found);
	return true;
}

static void settle(const struct writer_options *options, bool is_check, int64_t result,
		   const struct op *fact, const struct model_node *node)
{
	struct record *record;

	if (is_check)
		return;
	record = record_open(options->record);
	record_end(record, result);
	if (fact)
		record_fact(record, fact, node->bytes);
	record_close(record);
}

uint64_t ops_resume(const struct writer_options *options, struct model *model, bool is_check)
{
	struct comparison c = { .model = model, .options = options };
	struct op pending, fact;
	struct model after;
	bool has_pending;

	snprintf(c.own, sizeof(c.own), "w%u", options->id);
	(void)record_replay(options->record, model, &has_pending, &pending);
	if (!has_pending)
		return model_compare(model, options, stdout);
	if (model_compare(model, options, /* out= */ NULL) == 0) {
		settle(options, is_check, -EINTR, /* fact= */ NULL, /* node= */ NULL);
		return 0;
	}
	model_init(&after);
	(void)record_replay(options->record, &after, &has_pending, &pending);
	model_apply(&after, &pending, (int64_t)pending.length, /* bytes= */ NULL);
	if (model_compare(&after, options, /* out= */ NULL) == 0) {
		settle(options, is_check, (int64_t)pending.length, /* fact= */ NULL,
		       /* node= */ NULL);
		model_done(model);
		*model = after;
		return 0;
	}
	if (changes_bytes(pending.kind) &&
	    take_mixture(&c, model->nodes[pending.node], after.nodes[pending.node], &fact))
		settle(options, is_check, -EINTR, &fact, model->nodes[pending.node]);
	printf("writer %u: %s was under way at the end\n", options->id, op_names[pending.kind]);
	model_done(&after);
	return model_compare(model, options, stdout);
}

uint64_t ops_check(const struct writer_options *options)
{
	struct model model;
	uint64_t differences;

	model_init(&model);
	differences = ops_resume(options, &model, /* is_check= */ true);
	model_done(&model);
	return differences;
}
