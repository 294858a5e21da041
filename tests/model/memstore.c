/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/model/memstore.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/store/store_ops.h"
#include "tests/model/check.h"
#include "tests/model/sched.h"
#include "tests/model/world.h"
#include "util/cleanup.h"
#include "util/clock.h"

struct memstore {
	struct store store;
	enum side side;
	struct tree *tree;
};

struct memfile {
	struct store_file file;
	struct memstore *ms;
	struct tree_ref ref;
};

struct memdir {
	struct store_dir dir;
	struct memstore *ms;
	struct tree_ref ref;
	unsigned count, next;
	struct tree_entry *entries; /* as they were at the opening: a stale listing */
};

static bool has_faults(const struct memstore *ms)
{
	return ms->side == SIDE_B && !world->is_target_steady;
}

/* What a thread is about to do; a crash finds it. */
struct pending {
	struct memstore *ms;
	const struct op *op;
};

static const char *side_name(enum side side)
{
	return side == SIDE_A ? "source" : "target";
}

/* ---- locators and attributes --------------------------------------------- */

struct tree_ref memstore_ref(const struct locator *locator)
{
	struct tree_ref ref;

	assert(locator->length == 1 + sizeof(ref));
	memcpy(&ref, locator->bytes + 1, sizeof(ref));
	return ref;
}

void memstore_locator(enum side side, struct tree_ref ref, struct locator *ret_locator)
{
	*ret_locator = LOCATOR_NULL;
	ret_locator->length = 1 + sizeof(ref);
	ret_locator->bytes[0] = side == SIDE_A ? 'A' : 'B';
	memcpy(ret_locator->bytes + 1, &ref, sizeof(ref));
}

static struct tree_ref ref_of(const struct memstore *ms, const struct locator *locator)
{
	assert(locator->bytes[0] == (ms->side == SIDE_A ? 'A' : 'B'));
	return memstore_ref(locator);
}

static int fill_attr(struct memstore *ms, struct tree_ref ref, struct store_attr *ret_attr)
{
	const struct tree_inode *inode = tree_find(ms->tree, ref);

	if (!inode)
		return -ESTALE;
	*ret_attr = (struct store_attr){
		.mode = inode->mode,
		.nlink = inode->nlink,
		.uid = inode->uid,
		.gid = inode->gid,
		.ino = ref.ino,
		.size = S_ISDIR(inode->mode) ? 4096 : inode->size,
		.blocks = (uint64_t)inode->block_count * BLOCK_BYTES / 512,
		.block_size = BLOCK_BYTES,
		.rdev = inode->rdev,
		.atime = tree_time(inode->atime),
		.mtime = tree_time(inode->mtime),
		.ctime = tree_time(inode->ctime),
	};
	return 0;
}

/* ---- what comes late ----------------------------------------------------- */

static void land(struct late *late)
{
	struct tree_ref created;
	char text[160];
	int r;

	late->op.cells = late->cells;
	r = tree_apply(&world->tree[SIDE_B], &late->op, &created);
	late->is_used = false;
	sched_trace("LANDS LATE: %s: %d", tree_op_text(&late->op, text), r);
}

void memstore_land(void)
{
	for (unsigned i = 0; i < WORLD_LATE_MAX; i++)
		if (world->late[i].is_used && world->late[i].lands_ns <= world->clock_ns)
			land(&world->late[i]);
}

void memstore_land_all(void)
{
	for (unsigned i = 0; i < WORLD_LATE_MAX; i++)
		if (world->late[i].is_used)
			land(&world->late[i]);
}

/* Within the hold-down from now on. False: no room. */
static bool come_late(const struct op *op)
{
	uint64_t within_ns = (uint64_t)world->plan.hold_down_ms * 1000000;
	uint64_t now_ns = world->clock_ns / 1000000 * 1000000;

	for (unsigned i = 0; i < WORLD_LATE_MAX; i++) {
		struct late *late = &world->late[i];
		uint64_t lands_ns = now_ns + sched_random(within_ns);

		if (late->is_used)
			continue;
		late->is_used = true;
		late->lands_ns = lands_ns > world->clock_ns ? lands_ns : world->clock_ns;
		late->op = *op;
		if (op->kind == OP_WRITE)
			memcpy(late->cells, op->cells,
			       (op->end - op->offset) / CELL_BYTES * sizeof(uint64_t));
		return true;
	}
	return false;
}

static void settle_pending(void *context)
{
	struct pending *pending = context;
	struct tree_ref created;
	char text[160];

	switch (sched_random(pending->ms->side == SIDE_B && !world->plan.is_local ? 3 : 2)) {
	case 0:
		(void)tree_apply(pending->ms->tree, pending->op,
				 &created); /* nobody hears how it went */
		sched_trace("at the crash, done: %s", tree_op_text(pending->op, text));
		break;
	case 1:
		sched_trace("at the crash, not done: %s", tree_op_text(pending->op, text));
		break;
	case 2:
		(void)come_late(pending->op); /* else it is not done */
		sched_trace("at the crash, late: %s", tree_op_text(pending->op, text));
		break;
	}
}

void memstore_crash(void)
{
	sched_each_pending(settle_pending);
}

/* ---- changes ------------------------------------------------------------- */

/* The target's server starts anew, and has forgotten; the next commit says so. */
static void restart_maybe(struct memstore *ms)
{
	if (!has_faults(ms) || !world->plan.can_lose || !sched_chance(world->plan.lose_of_1000))
		return;
	tree_lose(ms->tree, sched_random);
	world->is_lost = true;
	sched_trace("RESTART of the target");
}

/* A part of a write may have been done when it fails. */
static void apply_part(struct memstore *ms, const struct op *op)
{
	struct op part = *op;
	struct tree_ref created;

	if (op->kind != OP_WRITE)
		return;
	part.end = op->offset + sched_random((op->end - op->offset) / CELL_BYTES + 1) * CELL_BYTES;
	if (part.end > part.offset)
		(void)tree_apply(ms->tree, &part, &created); /* it fails anyway */
}

static int fail(struct memstore *ms, const struct op *op)
{
	apply_part(ms, op);
	return sched_random(2) ? -ENOSPC : -EIO;
}

static int lose_reply(struct memstore *ms, const struct op *op)
{
	struct tree_ref created;

	switch (sched_random(3)) {
	case 0:
		(void)tree_apply(ms->tree, op, &created); /* nobody hears how it went */
		break;
	case 1:
		break;
	case 2:
		(void)come_late(op); /* else it is not done */
		break;
	}
	world->last_loss_ms = clock_ms();
	return STORE_E_UNKNOWN;
}

static int change(struct memstore *ms, const struct op *op, struct tree_ref *ret_ref)
{
	struct pending pending = { .ms = ms, .op = op };
	struct tree_ref ref;
	char text[160];
	int r;

	sched_set_pending(&pending);
	sched_point();
	sched_set_pending(NULL);
	sched_guard();
	restart_maybe(ms);
	if (has_faults(ms) && sched_chance(world->plan.fail_of_1000)) {
		r = fail(ms, op);
	} else if (has_faults(ms) && !world->plan.is_local &&
		   sched_chance(world->plan.unknown_of_1000)) {
		r = lose_reply(ms, op);
	} else {
		if (ms->side == SIDE_B)
			check_target_change(op);
		r = tree_apply(ms->tree, op, &ref);
		if (r == 0 && ret_ref)
			*ret_ref = ref;
	}
	if (sched_is_traced())
		sched_trace("%s: %s: %d", side_name(ms->side), tree_op_text(op, text), r);
	if (r == 0 && sched_chance(ms->side == SIDE_A ? 300 : 100))
		check_ask();
	sched_unguard();
	sched_point();
	return r;
}

/* Before a read; an error now and then. */
static int look(struct memstore *ms)
{
	sched_point();
	if (has_faults(ms) && sched_chance(world->plan.read_fail_of_1000))
		return -EIO;
	return 0;
}

static void set_name(char name[static TREE_NAME_BYTES], const char *from)
{
	assert(strlen(from) < TREE_NAME_BYTES);
	memset(name, 0, TREE_NAME_BYTES);
	memcpy(name, from, strlen(from));
}

/* ---- objects by locator -------------------------------------------------- */

static struct store *ms_close(struct store *store)
{
	free(store->identity);
	free(store);
	return NULL;
}

static void ms_set_reports_unknown(struct store *store, bool reports_unknown)
{
	(void)store;
	(void)reports_unknown;
}

static uint64_t ms_last_loss_ms(struct store *store)
{
	(void)store;
	return world->last_loss_ms;
}

static int ms_probe_target(struct store *store)
{
	(void)store;
	return 0;
}

static void ms_root(struct store *store, struct locator *ret_locator)
{
	struct memstore *ms = (struct memstore *)store;

	memstore_locator(ms->side, tree_ref_of(ms->tree, ms->tree->root), ret_locator);
}

static int ms_lookup(struct store *store, const struct locator *dir, const char *name,
		     struct locator *ret_locator, struct store_attr *ret_attr)
{
	struct memstore *ms = (struct memstore *)store;
	struct tree_ref ref;
	int r;

	r = look(ms);
	if (r < 0)
		return r;
	if (strlen(name) >= TREE_NAME_BYTES)
		return -ENOENT;
	sched_guard();
	r = tree_lookup(ms->tree, ref_of(ms, dir), name, &ref);
	if (r == 0)
		r = fill_attr(ms, ref, ret_attr);
	if (r == 0)
		memstore_locator(ms->side, ref, ret_locator);
	sched_unguard();
	return r;
}

static int getattr(struct memstore *ms, struct tree_ref ref, struct store_attr *ret_attr)
{
	int r = look(ms);

	if (r < 0)
		return r;
	sched_guard();
	r = fill_attr(ms, ref, ret_attr);
	sched_unguard();
	return r;
}

static int ms_getattr(struct store *store, const struct locator *object,
		      struct store_attr *ret_attr)
{
	struct memstore *ms = (struct memstore *)store;

	return getattr(ms, ref_of(ms, object), ret_attr);
}

static int setattr(struct memstore *ms, struct tree_ref ref, const struct store_setattr *set,
		   struct store_attr *ret_attr)
{
	struct op op = { .kind = OP_SETATTR, .object = ref, .set = *set };
	int r;

	r = change(ms, &op, NULL);
	if (r != 0 || !ret_attr)
		return r;
	/* In one piece with the change, but for what others do in between. */
	sched_guard();
	r = fill_attr(ms, ref, ret_attr);
	sched_unguard();
	return r;
}

static int ms_setattr(struct store *store, const struct locator *object,
		      const struct store_setattr *set, struct store_attr *ret_attr)
{
	struct memstore *ms = (struct memstore *)store;

	return setattr(ms, ref_of(ms, object), set, ret_attr);
}

static void set_new(struct op *op, const struct store_new *new)
{
	op->mode = new->mode;
	op->uid = new->uid;
	op->gid = new->gid;
	op->rdev = new->rdev;
	if (new->link_target) {
		assert(strlen(new->link_target) < TREE_LINK_BYTES);
		memcpy(op->link_target, new->link_target, strlen(new->link_target) + 1);
	}
}

static int ms_create(struct store *store, const struct locator *dir, const char *name,
		     const struct store_new *new, struct locator *ret_locator,
		     struct store_attr *ret_attr)
{
	struct memstore *ms = (struct memstore *)store;
	struct op op = { .kind = OP_CREATE, .dir = ref_of(ms, dir) };
	struct store_attr attr = { .mode = new->mode };
	struct tree_ref ref;
	int r;

	set_name(op.name, name);
	set_new(&op, new);
	r = change(ms, &op, &ref);
	if (r != 0)
		return r;
	memstore_locator(ms->side, ref, ret_locator);
	sched_guard();
	(void)fill_attr(ms, ref, &attr); /* gone again at once: then what it was made as */
	sched_unguard();
	*ret_attr = attr;
	return 0;
}

static int make_file(struct memstore *ms, struct tree_ref ref, struct store_file **ret_file);

static int ms_tmpfile(struct store *store, const struct locator *dir, const struct store_new *new,
		      bool is_linkable, struct locator *ret_locator, struct store_attr *ret_attr,
		      struct store_file **ret_file)
{
	struct memstore *ms = (struct memstore *)store;
	struct op op = { .kind = OP_TMPFILE };
	struct tree_ref ref;
	int r;

	(void)dir;
	(void)is_linkable;
	set_new(&op, new);
	r = change(ms, &op, &ref);
	if (r != 0)
		return r;
	memstore_locator(ms->side, ref, ret_locator);
	sched_guard();
	r = fill_attr(ms, ref, ret_attr);
	sched_unguard();
	assert(r == 0);
	return make_file(ms, ref, ret_file);
}

static int ms_link(struct store *store, const struct locator *object, const struct locator *dir,
		   const char *name)
{
	struct memstore *ms = (struct memstore *)store;
	struct op op = { .kind = OP_LINK, .object = ref_of(ms, object), .dir = ref_of(ms, dir) };

	set_name(op.name, name);
	return change(ms, &op, NULL);
}

static int ms_rename(struct store *store, const struct locator *old_dir, const char *old_name,
		     const struct locator *new_dir, const char *new_name, unsigned flags)
{
	struct memstore *ms = (struct memstore *)store;
	struct op op = { .kind = OP_RENAME,
			 .dir = ref_of(ms, old_dir),
			 .dir2 = ref_of(ms, new_dir),
			 .flags = flags };

	if (flags && !ms->store.caps.has_rename_flags)
		return -EINVAL;
	set_name(op.name, old_name);
	set_name(op.name2, new_name);
	return change(ms, &op, NULL);
}

static int remove_name(struct store *store, enum op_kind kind, const struct locator *dir,
		       const char *name)
{
	struct memstore *ms = (struct memstore *)store;
	struct op op = { .kind = kind, .dir = ref_of(ms, dir) };

	set_name(op.name, name);
	return change(ms, &op, NULL);
}

static int ms_unlink(struct store *store, const struct locator *dir, const char *name)
{
	return remove_name(store, OP_UNLINK, dir, name);
}

static int ms_rmdir(struct store *store, const struct locator *dir, const char *name)
{
	return remove_name(store, OP_RMDIR, dir, name);
}

static int ms_readlink(struct store *store, const struct locator *object, char *buffer, size_t size)
{
	struct memstore *ms = (struct memstore *)store;
	const struct tree_inode *inode;
	int r;

	r = look(ms);
	if (r < 0)
		return r;
	sched_guard();
	inode = tree_find(ms->tree, ref_of(ms, object));
	if (!inode)
		r = -ESTALE;
	else if (!S_ISLNK(inode->mode))
		r = -EINVAL;
	else if (strlen(inode->link_target) >= size)
		r = -ERANGE;
	else
		memcpy(buffer, inode->link_target, strlen(inode->link_target) + 1);
	sched_unguard();
	return r;
}

/* ---- extended attributes: there is one ------------------------------------ */

static const char xattr_name[] = "user.x";

static int get_value(struct memstore *ms, const struct locator *object, uint64_t *ret_value)
{
	const struct tree_inode *inode;
	int r;

	r = look(ms);
	if (r < 0)
		return r;
	sched_guard();
	inode = tree_find(ms->tree, ref_of(ms, object));
	if (inode)
		*ret_value = inode->xattr;
	sched_unguard();
	return inode ? 0 : -ESTALE;
}

static ssize_t ms_getxattr(struct store *store, const struct locator *object, const char *name,
			   void *value, size_t size)
{
	uint64_t number;
	int r;

	r = get_value((struct memstore *)store, object, &number);
	if (r < 0)
		return r;
	if (number == 0 || strcmp(name, xattr_name) != 0)
		return -ENODATA;
	if (size == 0)
		return (ssize_t)sizeof(number);
	if (size < sizeof(number))
		return -ERANGE;
	memcpy(value, &number, sizeof(number));
	return (ssize_t)sizeof(number);
}

static ssize_t ms_listxattr(struct store *store, const struct locator *object, char *list,
			    size_t size)
{
	uint64_t number;
	int r;

	r = get_value((struct memstore *)store, object, &number);
	if (r < 0)
		return r;
	if (number == 0)
		return 0;
	if (size == 0)
		return (ssize_t)sizeof(xattr_name);
	if (size < sizeof(xattr_name))
		return -ERANGE;
	memcpy(list, xattr_name, sizeof(xattr_name));
	return (ssize_t)sizeof(xattr_name);
}

static int set_value(struct store *store, const struct locator *object, uint64_t value)
{
	struct memstore *ms = (struct memstore *)store;
	struct op op = { .kind = OP_XATTR, .object = ref_of(ms, object), .value = value };

	return change(ms, &op, NULL);
}

static int ms_setxattr(struct store *store, const struct locator *object, const char *name,
		       const void *value, size_t size, int flags)
{
	uint64_t number;

	(void)flags;
	assert(strcmp(name, xattr_name) == 0);
	assert(size == sizeof(number));
	memcpy(&number, value, sizeof(number));
	return set_value(store, object, number);
}

static int ms_removexattr(struct store *store, const struct locator *object, const char *name)
{
	assert(strcmp(name, xattr_name) == 0);
	return set_value(store, object, 0);
}

/* ---- directory streams --------------------------------------------------- */

static int ms_dir_open(struct store *store, const struct locator *dir, struct store_dir **ret_dir)
{
	struct memstore *ms = (struct memstore *)store;
	_cleanup_free_ struct memdir *stream = NULL;
	const struct tree_inode *inode;
	const struct tree_entry *entry;
	int r;

	r = look(ms);
	if (r < 0)
		return r;
	stream = calloc(1, sizeof(*stream));
	if (!stream)
		return -ENOMEM;
	stream->entries = calloc(TREE_ENTRIES_MAX, sizeof(stream->entries[0]));
	if (!stream->entries)
		return -ENOMEM;
	stream->dir.ops = ms->store.ops;
	stream->ms = ms;
	stream->ref = ref_of(ms, dir);
	sched_guard();
	inode = tree_find(ms->tree, stream->ref);
	if (!inode)
		r = -ESTALE;
	else if (!S_ISDIR(inode->mode))
		r = -ENOTDIR;
	entry = r == 0 ? tree_entry_next(ms->tree, stream->ref.ino, 0) : NULL;
	for (; entry; entry = tree_entry_next(ms->tree, stream->ref.ino,
					      (unsigned)(entry - ms->tree->entries) + 1))
		stream->entries[stream->count++] = *entry;
	sched_unguard();
	if (r < 0)
		free(stream->entries);
	else
		*ret_dir = &TAKE_PTR(stream)->dir;
	return r;
}

static int ms_dir_next(struct store_dir *dir, struct store_entry *ret_entry)
{
	struct memdir *stream = (struct memdir *)dir;
	const struct tree_entry *entry = &stream->entries[stream->next];
	int r;

	r = look(stream->ms);
	if (r < 0)
		return r;
	if (stream->next == stream->count)
		return STORE_E_END;
	stream->next++;
	*ret_entry = (struct store_entry){ .name = entry->name,
					   .ino = entry->ino,
					   .cookie = stream->next };
	return 0;
}

static int ms_dir_seek(struct store_dir *dir, uint64_t cookie)
{
	struct memdir *stream = (struct memdir *)dir;

	stream->next = (unsigned)cookie;
	return 0;
}

static int ms_dir_fsync(struct store_dir *dir)
{
	(void)dir;
	return 0;
}

static struct store_dir *ms_dir_close(struct store_dir *dir)
{
	free(((struct memdir *)dir)->entries);
	free(dir);
	return NULL;
}

/* ---- open files ---------------------------------------------------------- */

static int make_file(struct memstore *ms, struct tree_ref ref, struct store_file **ret_file)
{
	struct memfile *file = calloc(1, sizeof(*file));

	assert(file);
	file->file.ops = ms->store.ops;
	file->ms = ms;
	file->ref = ref;
	*ret_file = &file->file;
	return 0;
}

static int ms_open(struct store *store, const struct locator *object, unsigned flags,
		   struct store_file **ret_file)
{
	struct memstore *ms = (struct memstore *)store;
	struct tree_ref ref = ref_of(ms, object);
	const struct tree_inode *inode;
	int r;

	(void)flags;
	r = look(ms);
	if (r < 0)
		return r;
	sched_guard();
	inode = tree_find(ms->tree, ref);
	if (!inode)
		r = -ESTALE;
	else if (!S_ISREG(inode->mode))
		r = -EINVAL;
	else
		tree_hold(ms->tree, ref);
	sched_unguard();
	return r == 0 ? make_file(ms, ref, ret_file) : r;
}

static struct store_file *ms_file_close(struct store_file *store_file)
{
	struct memfile *file = (struct memfile *)store_file;

	sched_guard();
	tree_release(file->ms->tree, file->ref);
	sched_unguard();
	free(file);
	return NULL;
}

static int ms_file_fd(const struct store_file *file)
{
	(void)file;
	return -1;
}

static ssize_t ms_read(struct store_file *store_file, void *buffer, size_t size, uint64_t offset)
{
	struct memfile *file = (struct memfile *)store_file;
	const struct tree_inode *inode;
	uint64_t *words = buffer;
	ssize_t n = 0;
	int r;

	assert(offset % CELL_BYTES == 0 && size % CELL_BYTES == 0);
	r = look(file->ms);
	if (r < 0)
		return r;
	sched_guard();
	inode = tree_find(file->ms->tree, file->ref);
	assert(inode); /* it is held */
	if (offset < inode->size)
		n = (ssize_t)(size < inode->size - offset ? size : inode->size - offset);
	for (uint64_t i = 0; i < (uint64_t)n / CELL_BYTES; i++) {
		uint64_t cell = tree_cell(inode, offset / CELL_BYTES + i);

		for (unsigned w = 0; w < CELL_BYTES / sizeof(uint64_t); w++)
			*words++ = cell;
	}
	sched_trace("%s: read %u [%llu, %llu) of %llu", side_name(file->ms->side), file->ref.ino,
		    (unsigned long long)offset, (unsigned long long)offset + (size_t)n,
		    (unsigned long long)inode->size);
	sched_unguard();
	return n;
}

static int ms_write(struct store_file *store_file, const void *buffer, size_t size, uint64_t offset,
		    bool is_stable)
{
	struct memfile *file = (struct memfile *)store_file;
	enum { WORDS = CELL_BYTES / sizeof(uint64_t) };
	const uint64_t *words = buffer;
	_cleanup_free_ uint64_t *cells = NULL;
	struct op op = {
		.kind = OP_WRITE,
		.object = file->ref,
		.offset = offset,
		.end = offset + size,
		.is_stable = is_stable,
	};

	assert(offset % CELL_BYTES == 0 && size % CELL_BYTES == 0 && size > 0);
	cells = malloc(size / WORDS);
	assert(cells);
	for (size_t i = 0; i < size / CELL_BYTES; i++) {
		cells[i] = words[i * WORDS];
		assert(words[i * WORDS + WORDS - 1] == cells[i]);
	}
	op.cells = cells;
	return change(file->ms, &op, NULL);
}

static int ms_file_getattr(struct store_file *store_file, struct store_attr *ret_attr)
{
	struct memfile *file = (struct memfile *)store_file;

	return getattr(file->ms, file->ref, ret_attr);
}

static int ms_file_setattr(struct store_file *store_file, const struct store_setattr *set,
			   struct store_attr *ret_attr)
{
	struct memfile *file = (struct memfile *)store_file;

	return setattr(file->ms, file->ref, set, ret_attr);
}

static int ms_fsync(struct store_file *file, bool is_datasync)
{
	(void)file;
	(void)is_datasync;
	sched_point();
	return 0;
}

static int ms_fallocate(struct store_file *store_file, int mode, uint64_t offset, uint64_t length)
{
	struct memfile *file = (struct memfile *)store_file;
	struct op op = {
		.kind = OP_FALLOCATE,
		.object = file->ref,
		.flags = (unsigned)mode,
		.offset = offset,
		.end = offset + length,
	};

	if (!file->ms->store.caps.has_punch_hole)
		return -EOPNOTSUPP;
	return change(file->ms, &op, NULL);
}

static int64_t ms_seek(struct store_file *store_file, uint64_t offset, int whence)
{
	struct memfile *file = (struct memfile *)store_file;
	const struct tree_inode *inode;
	int64_t found = -ENXIO;
	int r;

	r = look(file->ms);
	if (r < 0)
		return r;
	sched_guard();
	inode = tree_find(file->ms->tree, file->ref);
	assert(inode); /* it is held */
	for (uint64_t at = offset; at < inode->size; at = (at / BLOCK_BYTES + 1) * BLOCK_BYTES) {
		bool is_data = tree_block(inode, (uint32_t)(at / BLOCK_BYTES));

		if (is_data == (whence == SEEK_DATA)) {
			found = (int64_t)at;
			break;
		}
	}
	if (found < 0 && whence == SEEK_HOLE && offset < inode->size)
		found = (int64_t)inode->size;
	sched_unguard();
	return found;
}

static ssize_t ms_copy_range(struct store_file *in, uint64_t offset_in, struct store_file *out,
			     uint64_t offset_out, size_t size)
{
	(void)in;
	(void)offset_in;
	(void)out;
	(void)offset_out;
	(void)size;
	return -EOPNOTSUPP;
}

/* ---- the whole ----------------------------------------------------------- */

static int ms_commit(struct store *store)
{
	struct memstore *ms = (struct memstore *)store;
	int r = 0;

	sched_point();
	sched_guard();
	restart_maybe(ms);
	if (has_faults(ms) && sched_chance(world->plan.fail_of_1000)) {
		r = -EIO;
		/* As any error but two: what it covered is in doubt. */
		tree_lose(ms->tree, sched_random);
	} else if (ms->side == SIDE_B && world->is_lost) {
		r = STORE_E_LOST;
		world->is_lost = false;
	} else {
		tree_commit(ms->tree);
	}
	sched_trace("%s: commit: %d", side_name(ms->side), r);
	sched_unguard();
	sched_point();
	return r;
}

static int ms_statfs(struct store *store, struct statvfs *ret_statvfs)
{
	(void)store;
	(void)ret_statvfs;
	return -EOPNOTSUPP;
}

static const struct store_ops memstore_ops = {
	.close = ms_close,
	.set_reports_unknown = ms_set_reports_unknown,
	.last_loss_ms = ms_last_loss_ms,
	.probe_target = ms_probe_target,
	.root = ms_root,
	.lookup = ms_lookup,
	.getattr = ms_getattr,
	.setattr = ms_setattr,
	.create = ms_create,
	.tmpfile = ms_tmpfile,
	.link = ms_link,
	.rename = ms_rename,
	.unlink = ms_unlink,
	.rmdir = ms_rmdir,
	.readlink = ms_readlink,
	.getxattr = ms_getxattr,
	.listxattr = ms_listxattr,
	.setxattr = ms_setxattr,
	.removexattr = ms_removexattr,
	.dir_open = ms_dir_open,
	.dir_next = ms_dir_next,
	.dir_seek = ms_dir_seek,
	.dir_fsync = ms_dir_fsync,
	.dir_close = ms_dir_close,
	.open = ms_open,
	.file_close = ms_file_close,
	.file_fd = ms_file_fd,
	.read = ms_read,
	.write = ms_write,
	.file_getattr = ms_file_getattr,
	.file_setattr = ms_file_setattr,
	.fsync = ms_fsync,
	.fallocate = ms_fallocate,
	.seek = ms_seek,
	.copy_range = ms_copy_range,
	.commit = ms_commit,
	.statfs = ms_statfs,
};

int memstore_open(enum side side, struct store **ret_store)
{
	struct memstore *ms = calloc(1, sizeof(*ms));
	const struct plan *plan = &world->plan;

	if (!ms)
		return -ENOMEM;
	ms->side = side;
	ms->tree = &world->tree[side];
	ms->store = (struct store){
		.ops = &memstore_ops,
		.caps = {
			.type = "model",
			.is_local = side == SIDE_A || plan->is_local,
			.is_volatile = side == SIDE_B && plan->is_volatile,
			.has_handles = true,
			.has_xattr = true,
			.has_punch_hole = side == SIDE_A || plan->has_punch_hole,
			.has_tmpfile = true,
			.has_symlink_times = true,
			.has_rename_flags = side == SIDE_A || plan->has_rename_flags,
			.time_granularity_ns = 1,
			.parallel_max = plan->workers,
			.io_size_max = 1 << 20,
		},
		.identity = strdup(side == SIDE_A ? "model:source" : "model:target"),
	};
	assert(ms->store.identity);
	*ret_store = &ms->store;
	return 0;
}
