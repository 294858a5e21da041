/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/model/mount.h"

#include <errno.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/model/memstore.h"
#include "tests/model/sched.h"
#include "tests/model/world.h"
#include "util/cleanup.h"

/* Names and sizes are looked at before the change, as in the overlay; the locks keep
 * them so. A lock is by the source's inode number. */

void mount_init(struct mount *m)
{
	for (unsigned i = 0; i < TREE_INODES_MAX; i++)
		pthread_mutex_init(&m->inode_locks[i], NULL);
	pthread_mutex_init(&m->rename_lock, NULL);
	pthread_mutex_init(&m->lock, NULL);
	m->leftover_count = 0;
}

void mount_done(struct mount *m)
{
	assert(m->leftover_count == 0);
	for (unsigned i = 0; i < TREE_INODES_MAX; i++)
		pthread_mutex_destroy(&m->inode_locks[i]);
	pthread_mutex_destroy(&m->rename_lock);
	pthread_mutex_destroy(&m->lock);
}

static void lock_inode(struct mount *m, struct tree_ref ref)
{
	pthread_mutex_lock(&m->inode_locks[ref.ino]);
}

static void unlock_inode(struct mount *m, struct tree_ref ref)
{
	pthread_mutex_unlock(&m->inode_locks[ref.ino]);
}

static struct locator locator_of(struct tree_ref ref)
{
	struct locator locator;

	memstore_locator(SIDE_A, ref, &locator);
	return locator;
}

static uint64_t next_stamp(void)
{
	uint64_t stamp;

	sched_guard();
	stamp = world->stamp;
	world->stamp += 1 << 16;
	sched_unguard();
	return stamp;
}

/* The kernel has looked @ref up before: it has an id. 0: it is gone. */
static uint64_t id_of(struct mount *m, struct tree_ref ref)
{
	struct locator locator = locator_of(ref);
	struct store_attr attr;
	uint64_t id;
	int r;

	r = store_getattr(m->source, &locator, &attr);
	if (r < 0)
		return 0;
	r = journal_object_intern(m->journal, SIDE_A, &locator, attr.mode & S_IFMT, attr.ino, &id);
	return r < 0 ? 0 : id;
}

/* ---- leftovers ----------------------------------------------------------- */

bool mount_leftover(struct mount *m, uint64_t number, struct tree_ref *ret_ref)
{
	bool is_there;

	pthread_mutex_lock(&m->lock);
	is_there = m->leftover_count > 0;
	if (is_there)
		*ret_ref = m->leftovers[number % m->leftover_count].ref;
	pthread_mutex_unlock(&m->lock);
	return is_there;
}

static bool take_leftover(struct mount *m, struct tree_ref ref, struct leftover *ret_leftover)
{
	bool is_there = false;

	pthread_mutex_lock(&m->lock);
	for (unsigned i = 0; i < m->leftover_count && !is_there; i++) {
		if (m->leftovers[i].ref.ino != ref.ino ||
		    m->leftovers[i].ref.generation != ref.generation)
			continue;
		*ret_leftover = m->leftovers[i];
		m->leftovers[i] = m->leftovers[--m->leftover_count];
		is_there = true;
	}
	pthread_mutex_unlock(&m->lock);
	return is_there;
}

static void publish(struct mount *m, const struct leftover *leftover)
{
	pthread_mutex_lock(&m->lock);
	assert(m->leftover_count < MOUNT_LEFTOVERS_MAX);
	m->leftovers[m->leftover_count++] = *leftover;
	pthread_mutex_unlock(&m->lock);
}

static bool has_room(struct mount *m)
{
	bool has;

	pthread_mutex_lock(&m->lock);
	/* Each client may be about to add one. */
	has = m->leftover_count + 4 < MOUNT_LEFTOVERS_MAX;
	pthread_mutex_unlock(&m->lock);
	return has;
}

static void end_leftover(struct mount *m, struct leftover *leftover)
{
	struct marks_change change = MARKS_CHANGE_NULL;
	char name[ORPHAN_NAME_BYTES];

	orphan_name(leftover->id, name);
	if (m->broken != MOUNT_BREAK_ORPHAN)
		marks_change_add_name(&change, JOURNAL_LIMBO_ID, name);
	if (leftover->was_unpaired)
		marks_change_add_attr(&change, leftover->id);
	marks_change_begin(m->marks, &change);
	orphans_remove(m->orphans, leftover->id);
	marks_change_end(m->marks, &change);
	leftover->file = store_file_close(leftover->file);
}

void mount_forget(struct mount *m, struct tree_ref ref)
{
	struct leftover leftover;

	/* The last FORGET comes when nothing that concerns the object is under way. */
	lock_inode(m, ref);
	if (take_leftover(m, ref, &leftover))
		end_leftover(m, &leftover);
	unlock_inode(m, ref);
}

void mount_forget_all(struct mount *m)
{
	struct tree_ref ref;

	while (mount_leftover(m, 0, &ref))
		mount_forget(m, ref);
}

/* What stands at a name that is about to go. */
struct victim {
	bool is_there, is_known, is_last, is_dir, is_file, is_unpaired;
	struct tree_ref ref;
	uint64_t id;
	char limbo[ORPHAN_NAME_BYTES];
	struct store_file *file;
};

static int victim_look(struct mount *m, struct tree_ref dir, const char *name,
		       struct victim *ret_victim)
{
	struct locator dir_locator = locator_of(dir), locator;
	struct victim victim = { .is_there = false };
	struct object object;
	struct store_attr attr;
	int r;

	*ret_victim = victim;
	r = store_lookup(m->source, &dir_locator, name, &locator, &attr);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	victim.is_there = true;
	victim.is_dir = S_ISDIR(attr.mode);
	victim.is_file = S_ISREG(attr.mode);
	victim.is_last = victim.is_dir || attr.nlink == 1;
	victim.ref = memstore_ref(&locator);
	r = journal_object_find(m->journal, SIDE_A, &locator, &victim.id);
	if (r < 0)
		return r;
	victim.is_known = r == 0;
	if (victim.is_known) {
		orphan_name(victim.id, victim.limbo);
		r = journal_object_get(m->journal, victim.id, &object);
		if (r < 0)
			return r;
		victim.is_unpaired = r == 0 && locator_is_null(&object.locator[SIDE_B]);
	}
	*ret_victim = victim;
	return 0;
}

static void victim_mark(struct victim *victim, struct marks_change *change)
{
	if (!victim->is_known)
		return;
	if (!victim->is_last || victim->is_unpaired)
		marks_change_add_attr(change, victim->id);
	if (victim->is_last)
		marks_change_add_name(change, JOURNAL_LIMBO_ID, victim->limbo);
}

/* Whether the kernel knows it is left to chance. */
static int victim_begin(struct mount *m, struct victim *victim)
{
	struct locator locator = locator_of(victim->ref);
	int r;

	if (!victim->is_known || !victim->is_last || !victim->is_file || !has_room(m) ||
	    sched_chance(400))
		return 0;
	r = store_open(m->source, &locator, STORE_OPEN_READ, &victim->file);
	if (r == 0)
		r = orphans_add(m->orphans, victim->id);
	return r;
}

static void victim_end(struct mount *m, struct victim *victim, bool is_gone)
{
	struct leftover leftover = { .id = victim->id,
				     .ref = victim->ref,
				     .was_unpaired = victim->is_unpaired };

	if (!victim->file)
		return;
	leftover.file = TAKE_PTR(victim->file);
	if (is_gone) {
		publish(m, &leftover);
		return;
	}
	orphans_remove(m->orphans, victim->id);
	leftover.file = store_file_close(leftover.file);
}

/* ---- names --------------------------------------------------------------- */

static void add_dir(struct mount *m, struct marks_change *change, uint64_t dir)
{
	if (m->broken != MOUNT_BREAK_DIR)
		marks_change_add_attr(change, dir);
}

static int create_locked(struct mount *m, struct tree_ref dir, const char *name,
			 const struct store_new *new)
{
	struct marks_change change = MARKS_CHANGE_NULL;
	struct locator dir_locator = locator_of(dir), locator;
	struct store_attr attr;
	uint64_t dir_id = id_of(m, dir), seq;
	struct object object;
	int r;

	if (!dir_id)
		return -ESTALE;
	marks_change_add_name(&change, dir_id, name);
	add_dir(m, &change, dir_id);
	marks_change_begin(m->marks, &change);
	r = store_create(m->source, &dir_locator, name, new, &locator, &attr);
	/* As the overlay does: the mark's write to the journal is the record's too. */
	if (r == 0)
		r = journal_object_intern_early(m->journal, SIDE_A, &locator, attr.mode & S_IFMT,
						attr.ino, &object, &seq);
	if (r == 0)
		marks_put_whole(m->marks, object.id, attr.size);
	marks_change_end(m->marks, &change);
	return r;
}

int mount_create(struct mount *m, struct tree_ref dir, const char *name, mode_t mode)
{
	struct store_new new = { .mode = mode, .uid = 1000, .gid = 1000 };
	char link_target[TREE_LINK_BYTES];
	int r;

	if (S_ISLNK(mode)) {
		(void)snprintf(link_target, sizeof(link_target), "to-%u",
			       (unsigned)sched_random(100));
		new.link_target = link_target;
	}
	lock_inode(m, dir);
	r = create_locked(m, dir, name, &new);
	unlock_inode(m, dir);
	return r;
}

int mount_tmpfile(struct mount *m, struct tree_ref dir)
{
	struct store_new new = { .mode = S_IFREG | 0600 };
	struct marks_change change = MARKS_CHANGE_NULL;
	struct leftover leftover = { .was_unpaired = true };
	struct locator dir_locator = locator_of(dir), locator;
	char limbo[ORPHAN_NAME_BYTES];
	struct store_attr attr;
	int r;

	if (!has_room(m))
		return -EBUSY;
	r = store_tmpfile(m->source, &dir_locator, &new, true, &locator, &attr, &leftover.file);
	if (r < 0)
		return r;
	leftover.ref = memstore_ref(&locator);
	r = journal_object_intern(m->journal, SIDE_A, &locator, S_IFREG, attr.ino, &leftover.id);
	assert(r == 0);
	orphan_name(leftover.id, limbo);
	marks_change_add_name(&change, JOURNAL_LIMBO_ID, limbo);
	marks_change_begin(m->marks, &change);
	r = orphans_add(m->orphans, leftover.id);
	assert(r == 0);
	publish(m, &leftover);
	marks_put_whole(m->marks, leftover.id, 0);
	marks_change_end(m->marks, &change);
	return 0;
}

static int link_locked(struct mount *m, struct tree_ref object, struct tree_ref dir,
		       const char *name)
{
	struct marks_change change = MARKS_CHANGE_NULL;
	struct locator dir_locator = locator_of(dir), locator = locator_of(object);
	uint64_t dir_id = id_of(m, dir), id = id_of(m, object);
	struct leftover leftover = { .file = NULL };
	char limbo[ORPHAN_NAME_BYTES];
	bool is_leftover;
	int r;

	if (!dir_id || !id)
		return -ESTALE;
	is_leftover = orphans_has(m->orphans, id);
	orphan_name(id, limbo);
	marks_change_add_name(&change, dir_id, name);
	add_dir(m, &change, dir_id);
	marks_change_add_attr(&change, id);
	if (is_leftover)
		marks_change_add_name(&change, JOURNAL_LIMBO_ID, limbo);
	marks_change_begin(m->marks, &change);
	r = store_link(m->source, &locator, &dir_locator, name);
	if (r == 0 && is_leftover && take_leftover(m, object, &leftover)) {
		orphans_remove(m->orphans, id);
		leftover.file = store_file_close(leftover.file);
	}
	marks_change_end(m->marks, &change);
	return r;
}

int mount_link(struct mount *m, struct tree_ref object, struct tree_ref dir, const char *name)
{
	int r;

	if (object.ino == dir.ino)
		return -EPERM;
	lock_inode(m, dir);
	lock_inode(m, object);
	r = link_locked(m, object, dir, name);
	unlock_inode(m, object);
	unlock_inode(m, dir);
	return r;
}

static int remove_locked(struct mount *m, struct tree_ref dir, const char *name,
			 struct victim *victim)
{
	struct marks_change change = MARKS_CHANGE_NULL;
	struct locator dir_locator = locator_of(dir);
	uint64_t dir_id = id_of(m, dir);
	int r;

	if (!dir_id)
		return -ESTALE;
	marks_change_add_name(&change, dir_id, name);
	add_dir(m, &change, dir_id);
	victim_mark(victim, &change);
	marks_change_begin(m->marks, &change);
	r = victim_begin(m, victim);
	if (r == 0) {
		if (victim->is_dir)
			r = store_rmdir(m->source, &dir_locator, name);
		else
			r = store_unlink(m->source, &dir_locator, name);
		victim_end(m, victim, r == 0);
	}
	marks_change_end(m->marks, &change);
	return r;
}

int mount_remove(struct mount *m, struct tree_ref dir, const char *name, bool is_dir)
{
	struct tree_ref locked = { 0 };
	struct victim victim;
	int r;

	lock_inode(m, dir);
	r = victim_look(m, dir, name, &victim);
	if (r == 0 && !victim.is_there)
		r = -ENOENT;
	if (r == 0 && victim.is_dir != is_dir)
		r = is_dir ? -ENOTDIR : -EISDIR;
	if (r == 0) {
		locked = victim.ref;
		lock_inode(m, locked);
		/* A link may have come before the lock was ours. */
		r = victim_look(m, dir, name, &victim);
	}
	if (r == 0)
		r = remove_locked(m, dir, name, &victim);
	if (locked.ino)
		unlock_inode(m, locked);
	unlock_inode(m, dir);
	return r;
}

/* ---- rename -------------------------------------------------------------- */

struct renaming {
	struct tree_ref old_dir, new_dir;
	const char *old_name, *new_name;
	unsigned flags;
	uint64_t old_id, new_id;
	struct victim moved, victim;
};

static void mark_rename(struct mount *m, struct renaming *r, struct marks_change *change)
{
	marks_change_add_name(change, r->old_id, r->old_name);
	if (m->broken != MOUNT_BREAK_RENAME)
		marks_change_add_name(change, r->new_id, r->new_name);
	add_dir(m, change, r->old_id);
	if (r->new_id != r->old_id)
		add_dir(m, change, r->new_id);
	if (r->moved.is_known)
		marks_change_add_attr(change, r->moved.id);
	if (r->flags & RENAME_EXCHANGE && r->victim.is_known)
		marks_change_add_attr(change, r->victim.id);
	else
		victim_mark(&r->victim, change);
}

static int rename_locked(struct mount *m, struct renaming *renaming)
{
	struct locator old_dir = locator_of(renaming->old_dir),
		       new_dir = locator_of(renaming->new_dir);
	struct marks_change change = MARKS_CHANGE_NULL;
	int r = 0;

	mark_rename(m, renaming, &change);
	marks_change_begin(m->marks, &change);
	if (renaming->flags == 0 && renaming->victim.is_there)
		r = victim_begin(m, &renaming->victim);
	if (r == 0) {
		r = store_rename(m->source, &old_dir, renaming->old_name, &new_dir,
				 renaming->new_name, renaming->flags);
		victim_end(m, &renaming->victim, r == 0);
	}
	marks_change_end(m->marks, &change);
	return r;
}

static int look_both(struct mount *m, struct renaming *renaming)
{
	int r;

	r = victim_look(m, renaming->old_dir, renaming->old_name, &renaming->moved);
	if (r == 0)
		r = victim_look(m, renaming->new_dir, renaming->new_name, &renaming->victim);
	if (r == 0 && !renaming->moved.is_there)
		r = -ENOENT;
	return r;
}

static bool is_below(struct tree_ref dir, struct tree_ref above)
{
	const struct tree *t = &world->tree[SIDE_A];
	bool is = false;

	sched_guard();
	for (uint32_t ino = dir.ino; !is && ino && ino != t->root; ino = t->inodes[ino].parent)
		is = ino == above.ino;
	sched_unguard();
	return is;
}

/* With both directories locked: locks what stands at the names, too. */
static int rename_in_dirs(struct mount *m, struct renaming *renaming)
{
	struct tree_ref low = { 0 }, high = { 0 };
	int r;

	renaming->old_id = id_of(m, renaming->old_dir);
	renaming->new_id = id_of(m, renaming->new_dir);
	if (!renaming->old_id || !renaming->new_id)
		return -ESTALE;
	r = look_both(m, renaming);
	if (r < 0)
		return r;
	/* Checks that the VFS makes before it asks the file system. */
	if (renaming->victim.is_there && renaming->moved.ref.ino == renaming->victim.ref.ino)
		return 0;
	if (renaming->moved.is_dir && is_below(renaming->new_dir, renaming->moved.ref))
		return -EINVAL;
	if (renaming->victim.is_there && renaming->victim.is_dir &&
	    is_below(renaming->old_dir, renaming->victim.ref))
		return renaming->flags & RENAME_EXCHANGE ? -EINVAL : -ENOTEMPTY;
	if (!renaming->moved.is_dir)
		low = renaming->moved.ref;
	if (renaming->victim.is_there)
		high = renaming->victim.ref;
	/* Directories come first. */
	if (high.ino && (low.ino > high.ino || renaming->victim.is_dir)) {
		struct tree_ref ref = low;

		low = high;
		high = ref;
	}
	if (low.ino)
		lock_inode(m, low);
	if (high.ino)
		lock_inode(m, high);
	r = look_both(m, renaming);
	if (r == 0)
		r = rename_locked(m, renaming);
	if (high.ino)
		unlock_inode(m, high);
	if (low.ino)
		unlock_inode(m, low);
	return r;
}

int mount_rename(struct mount *m, struct tree_ref old_dir, const char *old_name,
		 struct tree_ref new_dir, const char *new_name, unsigned flags)
{
	struct renaming renaming = {
		.old_dir = old_dir,
		.new_dir = new_dir,
		.old_name = old_name,
		.new_name = new_name,
		.flags = flags,
	};
	struct tree_ref first = old_dir, second = new_dir;
	int r;

	if (old_dir.ino == new_dir.ino) {
		lock_inode(m, old_dir);
		r = rename_in_dirs(m, &renaming);
		unlock_inode(m, old_dir);
		return r;
	}
	pthread_mutex_lock(&m->rename_lock);
	if (is_below(old_dir, new_dir) ||
	    (!is_below(new_dir, old_dir) && old_dir.ino > new_dir.ino)) {
		first = new_dir;
		second = old_dir;
	}
	lock_inode(m, first);
	lock_inode(m, second);
	r = rename_in_dirs(m, &renaming);
	unlock_inode(m, second);
	unlock_inode(m, first);
	pthread_mutex_unlock(&m->rename_lock);
	return r;
}

/* ---- data ---------------------------------------------------------------- */

static int write_cells(struct store_file *file, uint64_t offset, uint64_t end)
{
	_cleanup_free_ uint64_t *words = malloc(end - offset);
	uint64_t stamp = next_stamp();

	assert(words);
	assert((end - offset) / CELL_BYTES <= 1 << 16);
	for (uint64_t i = 0; i < (end - offset) / sizeof(uint64_t); i++)
		words[i] = stamp + i / (CELL_BYTES / sizeof(uint64_t));
	return store_write(file, words, end - offset, offset, false);
}

int mount_write(struct mount *m, struct tree_ref object, uint64_t offset, uint64_t end)
{
	struct marks_change change = MARKS_CHANGE_NULL;
	struct locator locator = locator_of(object);
	uint64_t id = id_of(m, object);
	struct store_file *file;
	struct store_attr attr;
	bool is_locked;
	int r;

	r = id ? store_open(m->source, &locator, STORE_OPEN_WRITE, &file) : -ESTALE;
	if (r < 0)
		return r;
	r = store_file_getattr(file, &attr);
	/* A write beyond the end has the inode alone. */
	is_locked = r == 0 && end > attr.size;
	if (is_locked)
		lock_inode(m, object);
	marks_change_add_data(&change, id, offset, end);
	if (m->broken != MOUNT_BREAK_LATE)
		marks_change_begin(m->marks, &change);
	if (m->broken == MOUNT_BREAK_EARLY)
		marks_change_end(m->marks, &change);
	r = write_cells(file, offset, end);
	if (m->broken == MOUNT_BREAK_LATE)
		marks_change_begin(m->marks, &change);
	if (m->broken != MOUNT_BREAK_EARLY)
		marks_change_end(m->marks, &change);
	if (is_locked)
		unlock_inode(m, object);
	file = store_file_close(file);
	return r;
}

int mount_truncate(struct mount *m, struct tree_ref object, uint64_t size)
{
	struct store_setattr set = { .valid = STORE_SET_SIZE, .size = size };
	struct marks_change change = MARKS_CHANGE_NULL;
	struct locator locator = locator_of(object);
	uint64_t id = id_of(m, object);
	struct store_attr attr;
	int r;

	if (!id)
		return -ESTALE;
	lock_inode(m, object);
	r = store_getattr(m->source, &locator, &attr);
	if (r == 0) {
		marks_change_add_attr(&change, id);
		if (size != attr.size && m->broken != MOUNT_BREAK_TRUNCATE)
			marks_change_add_data(&change, id, size < attr.size ? size : attr.size,
					      MARKS_INFINITY);
		marks_change_begin(m->marks, &change);
		r = store_setattr(m->source, &locator, &set, NULL);
		marks_change_end(m->marks, &change);
	}
	unlock_inode(m, object);
	return r;
}

int mount_fallocate(struct mount *m, struct tree_ref object, int mode, uint64_t offset,
		    uint64_t end)
{
	struct marks_change change = MARKS_CHANGE_NULL;
	struct locator locator = locator_of(object);
	uint64_t id = id_of(m, object);
	struct store_file *file;
	int r;

	r = id ? store_open(m->source, &locator, STORE_OPEN_WRITE, &file) : -ESTALE;
	if (r < 0)
		return r;
	lock_inode(m, object);
	marks_change_add_attr(&change, id);
	if (mode & (FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_INSERT_RANGE))
		marks_change_add_data(&change, id, offset, MARKS_INFINITY);
	else if (mode != FALLOC_FL_KEEP_SIZE)
		marks_change_add_data(&change, id, offset, end);
	marks_change_begin(m->marks, &change);
	r = store_fallocate(file, mode, offset, end - offset);
	marks_change_end(m->marks, &change);
	unlock_inode(m, object);
	file = store_file_close(file);
	return r;
}

/* ---- attributes ---------------------------------------------------------- */

static int set_attr(struct mount *m, struct tree_ref object, const struct store_setattr *set)
{
	struct marks_change change = MARKS_CHANGE_NULL;
	struct locator locator = locator_of(object);
	uint64_t id = id_of(m, object);
	int r;

	if (!id)
		return -ESTALE;
	lock_inode(m, object);
	marks_change_add_attr(&change, id);
	marks_change_begin(m->marks, &change);
	r = store_setattr(m->source, &locator, set, NULL);
	marks_change_end(m->marks, &change);
	unlock_inode(m, object);
	return r;
}

int mount_chmod(struct mount *m, struct tree_ref object, mode_t mode)
{
	return set_attr(m, object,
			&(struct store_setattr){ .valid = STORE_SET_MODE, .mode = mode });
}

int mount_chown(struct mount *m, struct tree_ref object, uint32_t uid)
{
	return set_attr(m, object, &(struct store_setattr){ .valid = STORE_SET_UID, .uid = uid });
}

int mount_utimens(struct mount *m, struct tree_ref object, uint64_t mtime_ns)
{
	return set_attr(m, object,
			&(struct store_setattr){ .valid = STORE_SET_MTIME,
						 .mtime = tree_time(mtime_ns) });
}

int mount_setxattr(struct mount *m, struct tree_ref object, uint64_t value)
{
	struct marks_change change = MARKS_CHANGE_NULL;
	struct locator locator = locator_of(object);
	uint64_t id = id_of(m, object);
	int r;

	if (!id)
		return -ESTALE;
	lock_inode(m, object);
	marks_change_add_attr(&change, id);
	marks_change_begin(m->marks, &change);
	if (value)
		r = store_setxattr(m->source, &locator, "user.x", &value, sizeof(value), 0);
	else
		r = store_removexattr(m->source, &locator, "user.x");
	marks_change_end(m->marks, &change);
	unlock_inode(m, object);
	return r;
}
