/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/model/client.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <string.h>

#include "tests/model/sched.h"

/* Few names, so that what happens collides. */
static const char *const names[] = { "a", "b", "c", "d", "e" };

enum { SOURCE_OBJECTS_MAX = 28, BULK_BYTES = 6 << 20, SMALL_CELLS = 40 };

struct choice {
	struct tree_ref dir, object;
	mode_t mode;
	char name[TREE_NAME_BYTES];
};

static struct tree *source(void)
{
	return &world->tree[SIDE_A];
}

static const char *pick_name(void)
{
	return names[sched_random(ARRAY_SIZE(names))];
}

/* A living directory. */
static struct tree_ref pick_dir(void)
{
	struct tree_ref dirs[TREE_INODES_MAX], dir;
	unsigned count = 0;

	sched_guard();
	for (uint32_t i = 1; i < TREE_INODES_MAX; i++)
		if (source()->inodes[i].is_used && S_ISDIR(source()->inodes[i].mode))
			dirs[count++] = tree_ref_of(source(), i);
	dir = dirs[sched_random(count)];
	sched_unguard();
	return dir;
}

/* A name that stands for something of @type (0: anything). */
static bool pick_entry(mode_t type, struct choice *ret_choice)
{
	const struct tree_entry *found[TREE_ENTRIES_MAX], *entry;
	unsigned count = 0;

	sched_guard();
	for (unsigned i = 0; i < source()->entry_count; i++) {
		entry = &source()->entries[i];
		if (entry->dir && (!type || (source()->inodes[entry->ino].mode & S_IFMT) == type))
			found[count++] = entry;
	}
	if (count > 0) {
		entry = found[sched_random(count)];
		ret_choice->dir = tree_ref_of(source(), entry->dir);
		ret_choice->object = tree_ref_of(source(), entry->ino);
		ret_choice->mode = source()->inodes[entry->ino].mode;
		memcpy(ret_choice->name, entry->name, TREE_NAME_BYTES);
	}
	sched_unguard();
	return count > 0;
}

static uint64_t size_of(struct tree_ref ref)
{
	const struct tree_inode *inode;
	uint64_t size = 0;

	sched_guard();
	inode = tree_find(source(), ref);
	if (inode)
		size = inode->size;
	sched_unguard();
	return size;
}

static bool is_full(void)
{
	unsigned count = 0;

	sched_guard();
	for (unsigned i = 1; i < TREE_INODES_MAX; i++)
		count += source()->inodes[i].is_used;
	sched_unguard();
	return count >= SOURCE_OBJECTS_MAX;
}

static mode_t pick_type(void)
{
	if (sched_chance(world->plan.swap_of_1000))
		return S_IFDIR | 0755;
	switch (sched_random(10)) {
	case 0:
		return S_IFLNK | 0777;
	case 1:
		return S_IFIFO | 0644;
	case 2:
	case 3:
	case 4:
		return S_IFDIR | 0755;
	default:
		return S_IFREG | 0644;
	}
}

/* ---- ranges -------------------------------------------------------------- */

/* [offset, end) of a small file, or anywhere in a large one. */
static void pick_range(uint64_t size, uint64_t *ret_offset, uint64_t *ret_end)
{
	uint64_t length = (1 + sched_random(12)) * CELL_BYTES;
	uint64_t at = sched_random(SMALL_CELLS);

	if (size >= 1 << 20 || (world->plan.bulk_of_1000 && sched_random(4) == 0))
		at = sched_random(BULK_BYTES / CELL_BYTES * 5 / 4);
	*ret_offset = at * CELL_BYTES;
	*ret_end = *ret_offset + length;
}

static uint64_t pick_size(uint64_t size)
{
	if (size >= 1 << 20 || (world->plan.bulk_of_1000 && sched_random(8) == 0))
		return sched_random(BULK_BYTES / CELL_BYTES * 5 / 4) * CELL_BYTES;
	return sched_random(SMALL_CELLS + 8) * CELL_BYTES;
}

static int pick_fallocate_mode(uint64_t *offset, uint64_t *end)
{
	switch (sched_random(6)) {
	case 0:
		return 0;
	case 1:
		/* All of a large file is marked at once. */
		if (world->plan.bulk_of_1000 && sched_random(2)) {
			*offset = 0;
			*end = sched_random(BULK_BYTES / BLOCK_BYTES) * BLOCK_BYTES + BLOCK_BYTES;
		}
		return FALLOC_FL_ZERO_RANGE;
	case 2:
		*offset = *offset / BLOCK_BYTES * BLOCK_BYTES;
		*end = *offset + BLOCK_BYTES;
		return sched_random(2) ? FALLOC_FL_COLLAPSE_RANGE : FALLOC_FL_INSERT_RANGE;
	default:
		return FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	}
}

/* ---- operations ---------------------------------------------------------- */

static void change_data(struct mount *mount, struct tree_ref object)
{
	uint64_t size = size_of(object), offset, end;
	int mode;

	pick_range(size, &offset, &end);
	switch (sched_random(10)) {
	case 0:
	case 1:
		(void)mount_truncate(mount, object, pick_size(size)); /* may fail, as all here */
		break;
	case 2:
		mode = pick_fallocate_mode(&offset, &end);
		(void)mount_fallocate(mount, object, mode, offset, end);
		break;
	default:
		(void)mount_write(mount, object, offset, end);
	}
}

static void change_attr(struct mount *mount, struct tree_ref object)
{
	switch (sched_random(4)) {
	case 0:
		(void)mount_chmod(mount, object,
				  (mode_t)sched_random(07777 + 1)); /* may fail, as all here */
		break;
	case 1:
		(void)mount_chown(mount, object, (uint32_t)sched_random(3));
		break;
	case 2:
		(void)mount_utimens(mount, object, 1 + sched_random(1000000));
		break;
	case 3:
		(void)mount_setxattr(mount, object, sched_random(3));
		break;
	}
}

static void move(struct mount *mount, const struct choice *from)
{
	struct tree_ref to = sched_random(3) ? pick_dir() : from->dir;
	unsigned flags = 0;
	struct choice other;

	switch (sched_random(5)) {
	case 0:
		flags = RENAME_NOREPLACE;
		break;
	case 1:
		flags = RENAME_EXCHANGE;
		break;
	}
	/* Onto something that is there, or wherever it falls. */
	if (sched_random(2) && pick_entry(from->mode & S_IFMT, &other))
		(void)mount_rename(mount, from->dir, from->name, other.dir, other.name,
				   flags); /* may fail */
	else
		(void)mount_rename(mount, from->dir, from->name, to, pick_name(), flags);
}

/* a/b becomes b/a: parent and child change places. */
static void swap_with_child(struct mount *mount)
{
	struct choice child;
	struct tree_ref parent, grand;
	char name[TREE_NAME_BYTES] = "";

	if (!pick_entry(S_IFDIR, &child))
		return;
	sched_guard();
	parent = child.dir;
	grand = tree_ref_of(source(), source()->inodes[parent.ino].parent);
	for (unsigned i = 0; i < source()->entry_count; i++)
		if (source()->entries[i].dir == grand.ino && source()->entries[i].ino == parent.ino)
			memcpy(name, source()->entries[i].name, TREE_NAME_BYTES);
	sched_unguard();
	if (!name[0])
		return; /* the root is nobody's child */
	if (mount_rename(mount, parent, child.name, grand, "swap", 0) < 0)
		return;
	(void)mount_rename(mount, grand, name, child.object, child.name,
			   0); /* others may be faster */
	(void)mount_rename(mount, grand, "swap", grand, name, 0);
}

static void change_leftover(struct mount *mount)
{
	struct tree_ref ref;

	if (!mount_leftover(mount, sched_random(8), &ref)) {
		if (sched_chance(world->plan.tmpfile_of_1000) && !is_full())
			(void)mount_tmpfile(mount, pick_dir()); /* may fail */
		return;
	}
	switch (sched_random(4)) {
	case 0:
		mount_forget(mount, ref);
		break;
	case 1:
		(void)mount_link(mount, ref, pick_dir(), pick_name()); /* may fail */
		break;
	default:
		change_data(mount, ref);
	}
}

static void change_names(struct mount *mount)
{
	struct choice it;

	if (sched_chance(world->plan.swap_of_1000)) {
		swap_with_child(mount);
		return;
	}
	switch (sched_random(11)) {
	case 0:
	case 1:
	case 2:
		if (!is_full())
			(void)mount_create(mount, pick_dir(), pick_name(),
					   pick_type()); /* may fail, as all here */
		break;
	case 3:
		if (pick_entry(S_IFREG, &it))
			(void)mount_link(mount, it.object, pick_dir(), pick_name());
		break;
	case 4:
	case 5:
		if (pick_entry(0, &it))
			(void)mount_remove(mount, it.dir, it.name, S_ISDIR(it.mode));
		break;
	case 6:
		change_leftover(mount);
		break;
	default:
		if (pick_entry(0, &it))
			move(mount, &it);
	}
}

static void do_operation(struct mount *mount)
{
	struct choice it;

	if (!sched_chance(world->plan.data_of_1000))
		change_names(mount);
	else if (sched_random(4) == 0 && pick_entry(0, &it))
		change_attr(mount, it.object);
	else if (pick_entry(S_IFREG, &it))
		change_data(mount, it.object);
}

void *client_thread(void *context)
{
	struct client *client = context;
	char name[16];

	(void)snprintf(name, sizeof(name), "client%u", client->index); /* fits */
	sched_set_name(name);
	for (unsigned i = 0; i < client->operations && !*client->is_stopping; i++) {
		if (sched_chance(world->plan.think_of_1000))
			sched_sleep_ms(sched_random(sched_random(4) ? 20 : 600));
		do_operation(client->mount);
	}
	return NULL;
}

/* ---- without a daemon ---------------------------------------------------- */

static void apply(const struct op *op)
{
	struct tree_ref ref;

	(void)tree_apply(source(), op, &ref); /* it may be impossible: then it is not done */
}

static void write_bare(struct tree_ref object, uint64_t offset, uint64_t end)
{
	uint64_t cells[16];
	struct op op = {
		.kind = OP_WRITE, .object = object, .offset = offset, .end = end, .cells = cells
	};

	assert((end - offset) / CELL_BYTES <= ARRAY_SIZE(cells));
	for (unsigned i = 0; i < ARRAY_SIZE(cells); i++)
		cells[i] = world->stamp++;
	apply(&op);
}

static void make_bulk(struct tree_ref object)
{
	struct op op = { .kind = OP_SETATTR, .object = object };

	op.set.valid = STORE_SET_SIZE;
	op.set.size = BULK_BYTES;
	apply(&op);
	for (unsigned i = 0; i < 8; i++) {
		uint64_t offset = sched_random(BULK_BYTES / CELL_BYTES) * CELL_BYTES;

		write_bare(object, offset, offset + CELL_BYTES);
	}
}

static void create_bare(void)
{
	struct op op = {
		.kind = OP_CREATE, .dir = pick_dir(), .mode = pick_type(), .uid = 1, .gid = 1
	};
	uint64_t offset, end;
	struct tree_ref ref;

	memcpy(op.name, pick_name(), 2);
	if (S_ISLNK(op.mode))
		memcpy(op.link_target, "target", 7);
	if (tree_apply(source(), &op, &ref) < 0 || !S_ISREG(op.mode))
		return;
	if (sched_chance(world->plan.bulk_of_1000)) {
		make_bulk(ref);
		return;
	}
	for (uint64_t n = sched_random(3); n > 0; n--) {
		pick_range(0, &offset, &end);
		write_bare(ref, offset, end);
	}
}

static void rename_bare(const struct choice *it)
{
	struct op op = { .kind = OP_RENAME, .dir = it->dir, .dir2 = pick_dir() };

	memcpy(op.name, it->name, TREE_NAME_BYTES);
	memcpy(op.name2, pick_name(), 2);
	if (sched_random(4) == 0)
		op.flags = RENAME_EXCHANGE;
	apply(&op);
}

static void link_bare(void)
{
	struct op op = { .kind = OP_LINK, .dir = pick_dir() };
	struct choice it;

	if (!pick_entry(S_IFREG, &it))
		return;
	op.object = it.object;
	memcpy(op.name, pick_name(), 2);
	apply(&op);
}

static void remove_bare(const struct choice *it)
{
	struct op op = { .kind = S_ISDIR(it->mode) ? OP_RMDIR : OP_UNLINK, .dir = it->dir };

	memcpy(op.name, it->name, TREE_NAME_BYTES);
	apply(&op);
}

static void change_bare(const struct choice *it)
{
	struct op op = { .kind = OP_SETATTR, .object = it->object };
	uint64_t offset, end;

	if (S_ISREG(it->mode) && sched_random(3)) {
		pick_range(size_of(it->object), &offset, &end);
		write_bare(it->object, offset, end);
		return;
	}
	op.set.valid = STORE_SET_MODE;
	op.set.mode = (mode_t)sched_random(07777 + 1);
	if (S_ISREG(it->mode) && sched_random(2)) {
		op.set.valid |= STORE_SET_SIZE;
		op.set.size = pick_size(size_of(it->object));
	}
	apply(&op);
}

void client_make_tree(void)
{
	for (unsigned i = 0; i < world->plan.objects; i++)
		create_bare();
	for (uint64_t n = sched_random(3); n > 0; n--)
		link_bare();
}

void client_change_bare(unsigned operations)
{
	struct choice it;

	for (unsigned i = 0; i < operations; i++) {
		bool is_there = pick_entry(0, &it);

		switch (sched_random(6)) {
		case 0:
			if (!is_full())
				create_bare();
			break;
		case 1:
			link_bare();
			break;
		case 2:
			if (is_there)
				remove_bare(&it);
			break;
		case 3:
			if (is_there)
				rename_bare(&it);
			break;
		default:
			if (is_there)
				change_bare(&it);
		}
	}
}
