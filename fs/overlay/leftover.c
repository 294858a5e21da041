/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects whose last name is gone while the kernel still knows them.
 *
 * A regular file on a local store is opened before its name goes, and stays open: its
 * handle works as long as one descriptor is open. On any other store the file gets a
 * second name, in limbo, before its own goes; so has every leftover after a flip, when
 * the migrator has put it there. What is no regular file keeps nothing but its last
 * attributes: there is no more to it.
 *
 * To the migrator a leftover is the name of its id in limbo (migrate/orphans.h): each
 * change of the set stands within a change of that name.
 */
#include "fs/overlay/overlay_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "util/cleanup.h"
#include "util/log.h"

enum { BUCKETS = 1024 };

struct leftover {
	struct leftover *next;
	uint64_t id;
	bool is_file;
	bool is_in_limbo;	 /* of the active side */
	bool was_unpaired;	 /* when its name went */
	struct cached_file *pin; /* owned, or NULL */
	struct store_attr attr;	 /* when it is no file */
};

/* The table itself is made and freed with the overlay. */
static struct leftover **find_locked(struct overlay *overlay, uint64_t id)
{
	struct leftover **link = &overlay->leftovers[id % BUCKETS];

	while (*link && (*link)->id != id)
		link = &(*link)->next;
	return link;
}

struct leftover **leftovers_new(void)
{
	return calloc(BUCKETS, sizeof(struct leftover *));
}

static void publish(struct overlay *overlay, struct leftover *leftover)
{
	pthread_mutex_lock(&overlay->leftover_lock);
	leftover->next = overlay->leftovers[leftover->id % BUCKETS];
	overlay->leftovers[leftover->id % BUCKETS] = leftover;
	pthread_mutex_unlock(&overlay->leftover_lock);
	nodes_set_flags(overlay->nodes, leftover->id,
			leftover->is_file ? NODE_ORPHAN : NODE_ORPHAN | NODE_ENDED, 0);
}

static struct leftover *take(struct overlay *overlay, uint64_t id)
{
	struct leftover **link, *leftover;

	pthread_mutex_lock(&overlay->leftover_lock);
	link = find_locked(overlay, id);
	leftover = *link;
	if (leftover)
		*link = leftover->next;
	pthread_mutex_unlock(&overlay->leftover_lock);
	return leftover;
}

static void unpin(struct overlay *overlay, struct leftover *leftover)
{
	if (!leftover->pin)
		return;
	fdcache_put(overlay->files, TAKE_PTR(leftover->pin));
	atomic_fetch_sub(&overlay->pins, 1);
}

static struct leftover *leftover_free(struct overlay *overlay, struct leftover *leftover)
{
	if (!leftover)
		return NULL;
	if (leftover->pin)
		fdcache_drop(overlay->files, leftover->id);
	unpin(overlay, leftover);
	free(leftover);
	return NULL;
}

/* ---- limbo --------------------------------------------------------------- */

/* Limbo comes and goes without a trace in the times of the root, which others see. */
static void restore_times(struct store *store, const struct locator *root, const struct store_attr *before)
{
	const struct store_setattr set = {
		.valid = STORE_SET_ATIME | STORE_SET_MTIME,
		.atime = before->atime,
		.mtime = before->mtime,
	};
	int r = fs_outcome(store_setattr(store, root, &set, NULL));

	if (r < 0)
		log_warning_errno(r, "cannot keep the times of the root directory");
}

static int make_limbo(struct overlay *overlay, const struct locator *root, struct locator *ret_limbo)
{
	struct store_new new = { .mode = S_IFDIR | 0700 };
	struct store *store = overlay_store(overlay);
	struct store_attr before, attr;
	int r;

	r = fs_outcome(store_getattr(store, root, &before));
	if (r < 0)
		return r;
	r = store_create(store, root, overlay->limbo_name, &new, ret_limbo, &attr);
	if (r == -EEXIST)
		return fs_outcome(store_lookup(store, root, overlay->limbo_name, ret_limbo, &attr));
	if (r == 0)
		restore_times(store, root, &before);
	return fs_outcome(r);
}

static void remove_limbo(struct overlay *overlay)
{
	struct store *store = overlay_store(overlay);
	struct store_attr before;
	struct locator root;

	store_root(store, &root);
	if (store_getattr(store, &root, &before) != 0)
		return; /* it stays, hidden */
	/* If others have something there, it stays. */
	if (store_rmdir(store, &root, overlay->limbo_name) == 0)
		restore_times(store, &root, &before);
}

static int find_limbo(struct overlay *overlay, bool is_needed, struct locator *ret_limbo)
{
	struct store *store = overlay_store(overlay);
	struct store_attr attr;
	struct locator root;
	int r;

	store_root(store, &root);
	r = store_lookup(store, &root, overlay->limbo_name, ret_limbo, &attr);
	if (r != -ENOENT || !is_needed)
		return fs_outcome(r);
	return make_limbo(overlay, &root, ret_limbo);
}

bool limbo_exists(struct overlay *overlay)
{
	struct locator limbo;

	return find_limbo(overlay, /* is_needed= */ false, &limbo) == 0;
}

static int limbo_link(struct overlay *overlay, const struct locator *object, const char *name)
{
	struct store *store = overlay_store(overlay);
	struct locator limbo;
	int r;

	r = find_limbo(overlay, /* is_needed= */ true, &limbo);
	if (r < 0)
		return r;
	r = store_link(store, object, &limbo, name);
	if (r == -EEXIST) {
		/* Ids are never used again: what stands there was left by a crash. */
		r = store_unlink(store, &limbo, name);
		if (r == 0 || r == -ENOENT)
			r = store_link(store, object, &limbo, name);
	}
	return fs_outcome(r);
}

static void limbo_unlink(struct overlay *overlay, uint64_t id)
{
	char name[ORPHAN_NAME_BYTES];
	struct locator limbo;
	int r;

	orphan_name(id, name);
	r = find_limbo(overlay, /* is_needed= */ false, &limbo);
	if (r == 0)
		r = fs_outcome(store_unlink(overlay_store(overlay), &limbo, name));
	if (r < 0 && r != -ENOENT)
		log_warning_errno(r, "cannot remove unlinked file %s, it stays until 'finish'",
				  name);
}

/* ---- a name goes --------------------------------------------------------- */

static int look_at_record(struct overlay *overlay, struct victim *victim)
{
	enum side passive = overlay_active(overlay) == SIDE_A ? SIDE_B : SIDE_A;
	struct object object;
	int r;

	orphan_name(victim->node.id, victim->limbo);
	r = journal_object_get(overlay->journal, victim->node.id, &object);
	if (r < 0)
		return r;
	victim->is_unpaired = r == 0 && locator_is_null(&object.locator[passive]);
	return 0;
}

int victim_look(struct overlay *overlay, const struct node *dir, const char *name,
		struct victim *ret_victim)
{
	enum side side = overlay_active(overlay);
	struct victim victim = { .is_there = false };
	int r;

	r = store_lookup(overlay->store[side], &dir->locator, name, &victim.node.locator,
			 &victim.attr);
	if (r == -ENOENT) {
		*ret_victim = victim;
		return 0;
	}
	if (r != 0)
		return fs_outcome(r);
	victim.is_there = true;
	victim.is_last = S_ISDIR(victim.attr.mode) || victim.attr.nlink == 1;
	victim.node.side = side;

	r = journal_object_find(overlay->journal, side, &victim.node.locator, &victim.node.id);
	if (r < 0)
		return r;
	victim.is_known = r == 0;
	if (victim.is_known)
		r = look_at_record(overlay, &victim);
	if (r < 0)
		return r;
	*ret_victim = victim;
	return 0;
}

void victim_mark(struct victim *victim, struct marks_change *change)
{
	/* What the journal does not know has no copy that could become wrong. */
	if (!victim->is_known)
		return;
	/* The marks of one without a pair wait for the pair: they have to learn that there
	 * will be none. Of one that has a pair, its names tell. */
	if (!victim->is_last || victim->is_unpaired)
		marks_change_add_attr(change, victim->node.id);
	/* Whatever it is: on its way to a new name it may stand in limbo, and rest there. */
	if (victim->is_last)
		marks_change_add_name(change, JOURNAL_LIMBO_ID, victim->limbo);
}

/* Keeps the file of @leftover open: 0, or an error with it as it was. */
static int pin(struct overlay *overlay, struct leftover *leftover, const struct victim *victim)
{
	int r;

	if (atomic_fetch_add(&overlay->pins, 1) < overlay->pins_max)
		r = fs_outcome(fdcache_get(overlay->files, leftover->id,
					   STORE_OPEN_READ | STORE_OPEN_REGULAR,
					   overlay_store(overlay), &victim->node.locator,
					   &leftover->pin));
	else
		r = -EMFILE;
	if (r < 0)
		atomic_fetch_sub(&overlay->pins, 1);
	return r;
}

/* Keeps the file of @leftover: open, or where that is not enough, by a name in limbo. */
static int keep(struct overlay *overlay, struct leftover *leftover, const struct victim *victim)
{
	int r;

	if (store_caps(overlay_store(overlay))->is_local) {
		r = pin(overlay, leftover, victim);
		if (r != -EMFILE && r != -ENFILE)
			return r;
	}
	/* An open descriptor would make a kernel's NFS client rename it to .nfs*. */
	fdcache_drop(overlay->files, leftover->id);
	r = limbo_link(overlay, &victim->node.locator, victim->limbo);
	if (r < 0)
		return r;
	leftover->is_in_limbo = true;
	return 0;
}

int victim_begin(struct overlay *overlay, struct victim *victim)
{
	struct leftover *leftover;
	struct node known;
	int r = 0;

	if (!victim->is_known || !victim->is_last ||
	    !nodes_get(overlay->nodes, victim->node.id, &known))
		return 0;
	leftover = calloc(1, sizeof(*leftover));
	if (!leftover)
		return -ENOMEM;
	leftover->id = victim->node.id;
	leftover->is_file = S_ISREG(victim->attr.mode);
	leftover->was_unpaired = victim->is_unpaired;
	if (leftover->is_file)
		r = keep(overlay, leftover, victim);
	if (r == 0 && leftover->is_file)
		r = orphans_add(overlay->orphans, leftover->id);
	if (r < 0) {
		if (leftover->is_in_limbo)
			limbo_unlink(overlay, leftover->id);
		leftover_free(overlay, leftover);
		/* Gone from under us: the operation itself will say so. */
		return r == -ESTALE || r == -ENOENT ? 0 : r;
	}
	victim->leftover = leftover;
	return 0;
}

void victim_end(struct overlay *overlay, struct victim *victim, bool is_gone)
{
	struct leftover *leftover = TAKE_PTR(victim->leftover);

	if (!leftover)
		return;
	if (is_gone) {
		leftover->attr = victim->attr;
		leftover->attr.nlink = 0;
		if (!leftover->is_file)
			clock_gettime(CLOCK_REALTIME, &leftover->attr.ctime);
		publish(overlay, leftover);
		return;
	}
	if (leftover->is_file)
		orphans_remove(overlay->orphans, leftover->id);
	if (leftover->is_in_limbo)
		limbo_unlink(overlay, leftover->id);
	leftover_free(overlay, leftover);
}

int leftover_add_tmpfile(struct overlay *overlay, uint64_t id, struct store_file *file)
{
	struct leftover *leftover = calloc(1, sizeof(*leftover));
	int r;

	if (!leftover) {
		store_file_close(file);
		return -ENOMEM;
	}
	leftover->id = id;
	leftover->is_file = true;
	leftover->was_unpaired = true;
	r = fdcache_insert(overlay->files, id, file, &leftover->pin);
	if (r == 0)
		atomic_fetch_add(&overlay->pins, 1); /* there is no other way to keep it */
	else
		store_file_close(file);
	if (r == 0)
		r = orphans_add(overlay->orphans, id);
	if (r < 0) {
		leftover_free(overlay, leftover);
		return r;
	}
	publish(overlay, leftover);
	return 0;
}

/* ---- its end ------------------------------------------------------------- */

void leftover_rescue(struct overlay *overlay, uint64_t id)
{
	struct leftover *leftover = take(overlay, id);

	if (!leftover)
		return;
	nodes_set_flags(overlay->nodes, id, 0, NODE_ORPHAN);
	orphans_remove(overlay->orphans, id);
	if (leftover->is_in_limbo)
		limbo_unlink(overlay, id);
	leftover_free(overlay, leftover);
}

void leftover_end(struct overlay *overlay, uint64_t id)
{
	struct leftover *leftover = take(overlay, id);
	struct marks_change change = MARKS_CHANGE_NULL;
	char name[ORPHAN_NAME_BYTES];

	if (!leftover)
		return;
	if (leftover->is_file) {
		orphan_name(id, name);
		marks_change_add_name(&change, JOURNAL_LIMBO_ID, name);
		if (leftover->was_unpaired)
			marks_change_add_attr(&change, id); /* as in victim_mark() */
		marks_change_begin(overlay->marks, &change);
		orphans_remove(overlay->orphans, id);
		if (leftover->is_in_limbo) {
			fdcache_drop(overlay->files, id);
			limbo_unlink(overlay, id);
		}
		marks_change_end(overlay->marks, &change);
	}
	leftover_free(overlay, leftover);
}

void leftover_forget(struct overlay *overlay, uint64_t id)
{
	int r;

	while (gate_enter(overlay->gate, GATE_CHANGE) == GATE_E_CLOSED) {
		r = overlay_park_forget(overlay, id);
		if (r < 0)
			log_warning_errno(
				r, "cannot end unlinked file %llu now, it stays until the unmount",
				(unsigned long long)id);
		if (r != GATE_E_OPEN)
			return;
	}
	leftover_end(overlay, id);
	gate_leave(overlay->gate, GATE_CHANGE);
}

/* ---- attributes ---------------------------------------------------------- */

int leftover_getattr(struct overlay *overlay, uint64_t id, struct store_attr *ret_attr)
{
	const struct leftover *leftover;
	int r = -ESTALE;

	pthread_mutex_lock(&overlay->leftover_lock);
	leftover = *find_locked(overlay, id);
	if (leftover && !leftover->is_file) {
		*ret_attr = leftover->attr;
		r = 0;
	}
	pthread_mutex_unlock(&overlay->leftover_lock);
	return r;
}

static void apply(const struct store_setattr *set, struct store_attr *attr)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	if (set->valid & STORE_SET_UID)
		attr->uid = set->uid;
	if (set->valid & STORE_SET_GID)
		attr->gid = set->gid;
	if (set->valid & STORE_SET_MODE)
		attr->mode = (attr->mode & S_IFMT) | (set->mode & 07777);
	if (set->valid & (STORE_SET_ATIME | STORE_SET_ATIME_NOW))
		attr->atime = set->valid & STORE_SET_ATIME_NOW ? now : set->atime;
	if (set->valid & (STORE_SET_MTIME | STORE_SET_MTIME_NOW))
		attr->mtime = set->valid & STORE_SET_MTIME_NOW ? now : set->mtime;
	attr->ctime = now;
}

int leftover_setattr(struct overlay *overlay, uint64_t id, const struct store_setattr *set,
		     struct store_attr *ret_attr)
{
	struct leftover *leftover;
	int r = -ESTALE;

	pthread_mutex_lock(&overlay->leftover_lock);
	leftover = *find_locked(overlay, id);
	if (leftover && !leftover->is_file) {
		apply(set, &leftover->attr);
		*ret_attr = leftover->attr;
		r = 0;
	}
	pthread_mutex_unlock(&overlay->leftover_lock);
	return r;
}

/* ---- all of them --------------------------------------------------------- */

void leftovers_switch(struct overlay *overlay)
{
	/* Nobody is inside the gate, so the table stands still without its lock, which
	 * could not be held while pins close their files. */
	for (unsigned i = 0; i < BUCKETS; i++) {
		for (struct leftover *leftover = overlay->leftovers[i]; leftover;
		     leftover = leftover->next) {
			leftover->is_in_limbo = leftover->is_file;
			unpin(overlay, leftover);
		}
	}
}

void leftovers_clear(struct overlay *overlay)
{
	struct store *store = overlay_store(overlay);
	struct store_entry entry;
	struct store_dir *dir;
	struct locator limbo;
	int r;

	r = find_limbo(overlay, /* is_needed= */ false, &limbo);
	if (r == -ENOENT)
		return;
	if (r == 0)
		r = fs_outcome(store_dir_open(store, &limbo, &dir));
	if (r == 0) {
		while (r == 0) {
			r = store_dir_next(dir, &entry);
			if (r == 0)
				r = fs_outcome(store_unlink(store, &limbo, entry.name));
		}
		store_dir_close(dir);
	}
	if (r != STORE_E_END)
		log_warning_errno(r, "cannot empty '%s', which a failover may wait for",
				  overlay->limbo_name);
	else
		remove_limbo(overlay);
}

void leftovers_end_all(struct overlay *overlay, bool is_frozen)
{
	for (unsigned i = 0; i < BUCKETS; i++) {
		while (overlay->leftovers[i]) {
			uint64_t id = overlay->leftovers[i]->id;

			/* Of a frozen side nothing may change: what is in limbo stays. */
			if (is_frozen)
				leftover_free(overlay, take(overlay, id));
			else
				leftover_end(overlay, id);
		}
	}
	if (!is_frozen && limbo_exists(overlay))
		remove_limbo(overlay);
}
