/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Works off name(d, n): X = what the source has there now, Y = what the shadow has.
 *
 * Both objects are locked for placing, lower id first, and the shadow is looked at again
 * under the locks; also "X = Y, done" holds only there. Then Y leaves the name (removed if
 * it is dead or stands elsewhere too, else moved to limbo), and X comes to it (created,
 * taken from where it stands, or linked). Each is one step (step.c). What cannot be done
 * yet keeps its mark, which rests until the target has changed. model/names.pml and
 * model/dirs.pml prove it.
 *
 * Limbo is a directory like any other here: what "the source has there" is an object
 * without a name that is still held (orphans.h).
 */
#include <errno.h>
#include <string.h>

#include "migrate/migrate_internal.h"

struct name_work {
	struct worker *worker;
	struct migrate *m;
	struct place place;
	struct look x; /* id 0: none */
	uint64_t y;    /* 0: none */
	uint32_t attempts;
};

static void place_set(struct place *place, uint64_t dir, const char *name)
{
	size_t length = strlen(name);

	assert(length <= JOURNAL_NAME_MAX);
	place->dir = dir;
	memcpy(place->name, name, length + 1);
}

static struct place limbo_place(uint64_t id)
{
	struct place place;
	char name[ORPHAN_NAME_BYTES];

	orphan_name(id, name);
	place_set(&place, JOURNAL_LIMBO_ID, name);
	return place;
}

static int shadow_now(struct name_work *w, uint64_t *ret_y)
{
	uint64_t y = 0;
	int r = journal_shadow_get(w->m->config.journal, w->place.dir, w->place.name, &y);

	if (r < 0)
		return r;
	*ret_y = r == JOURNAL_E_NONE ? 0 : y;
	return 0;
}

/* Looks at X, and at Y until what is locked is what stands there. On success both are locked. */
static int lock_both(struct name_work *w)
{
	struct placelock *locks = &w->m->placelock;
	uint64_t y;
	int r;

	r = look_source(w->worker, w->place.dir, w->place.name, &w->x);
	if (r < 0)
		return r;
	r = shadow_now(w, &w->y);
	if (r < 0)
		return r;
	for (;;) {
		placelock_lock(locks, w->x.id, w->y);
		r = shadow_now(w, &y);
		if (r == 0 && y == w->y)
			break;
		placelock_unlock(locks, w->x.id, w->y);
		if (r < 0)
			return r;
		w->y = y;
	}
	if (!w->x.id)
		return 0;
	/* X may have got its pair while we waited. */
	r = journal_object_get(w->m->config.journal, w->x.id, &w->x.object);
	if (r == JOURNAL_E_NONE)
		r = MIGRATE_E_AGAIN;
	if (r != 0)
		placelock_unlock(locks, w->x.id, w->y);
	return r;
}

/* ---- Y leaves ------------------------------------------------------------------ */

static int move_to_limbo(struct name_work *w, uint64_t id, const struct place *from)
{
	struct intent intent = { .op = INTENT_RENAME, .object = id, .place = limbo_place(id), .from = *from };

	return step_run(w->worker, &intent, NULL);
}

/* The names in a directory that is gone become marks, so that what moved out of it is moved. */
static int mark_children(struct migrate *m, uint64_t dir)
{
	marks_lock(m->config.marks);
	marks_put_scan_locked(m->config.marks, dir, false);
	return journal_flush(m->config.journal, marks_unlock(m->config.marks));
}

static int remove_y(struct name_work *w, const struct object *y, bool is_alive)
{
	struct intent intent = { .op = INTENT_REMOVE, .object = w->y, .place = w->place };
	int r;

	r = step_run(w->worker, &intent, NULL);
	if (r != -ENOTEMPTY && r != -EEXIST)
		return r;
	if (!S_ISDIR(y->type) || is_alive)
		return r;

	/* A dead directory with names in it: nothing is removed recursively. The name is
	 * freed at once; the directory goes when its names have gone. */
	if (w->attempts % 16 == 0) {
		r = mark_children(w->m, w->y);
		if (r < 0)
			return r;
	}
	if (w->place.dir == JOURNAL_LIMBO_ID)
		return MIGRATE_E_REST;
	return move_to_limbo(w, w->y, &w->place);
}

static int clear_place(struct name_work *w)
{
	struct place other;
	struct object y;
	bool has_other, is_alive;
	int r;

	r = journal_object_get(w->m->config.journal, w->y, &y);
	if (r != 0)
		return r < 0 ? r : -EIO; /* the shadow names an object that is not there */
	r = journal_place_get(w->m->config.journal, w->y, 0, &w->place, &other);
	if (r < 0)
		return r;
	has_other = r == 0;
	r = look_is_alive(w->m, &y);
	if (r < 0)
		return r;
	is_alive = r > 0;

	if (has_other || !is_alive)
		return remove_y(w, &y, is_alive);
	/* Alive, and this was its only place: whoever works off its new name takes it. Nobody else
	 * comes to this one: that may save the way over limbo. */
	if (w->place.dir == JOURNAL_LIMBO_ID)
		return MIGRATE_E_REST;
	if (!w->x.id && w->attempts == 0)
		return MIGRATE_E_AGAIN;
	return move_to_limbo(w, w->y, &w->place);
}

/* ---- X comes ------------------------------------------------------------------- */

/* X cannot go below itself: if it stands above @dir on the target, the child of X on
 * that way goes to limbo first. MIGRATE_E_AGAIN when it did, 0 when X is not above. */
static int break_chain(struct name_work *w, uint64_t dir)
{
	struct migrate *m = w->m;
	struct place place;
	uint64_t child = dir, y;
	unsigned depth = 0;
	int r;

	for (;;) {
		if (child == w->x.id)
			return MIGRATE_E_REST; /* directly below itself: its own name comes first */
		if (child == JOURNAL_ROOT_ID || child == JOURNAL_LIMBO_ID || ++depth > MIGRATE_DEPTH_MAX)
			return 0;
		r = journal_place_get(m->config.journal, child, 0, NULL, &place);
		if (r != 0)
			return r < 0 ? r : 0;
		if (place.dir == w->x.id)
			break;
		child = place.dir;
	}

	placelock_unlock(&m->placelock, w->x.id, w->y);
	placelock_lock(&m->placelock, child, 0);
	r = journal_shadow_get(m->config.journal, place.dir, place.name, &y);
	if (r == 0 && y == child) {
		/* It leaves a place that the source may still have it at. Who comes for that
		 * name waits for our lock. */
		marks_lock(m->config.marks);
		marks_put_name_locked(m->config.marks, place.dir, place.name);
		r = journal_flush(m->config.journal, marks_unlock(m->config.marks));
		if (r == 0)
			r = move_to_limbo(w, child, &place);
	} else {
		r = r < 0 ? r : 0;
	}
	placelock_unlock(&m->placelock, child, 0);
	placelock_lock(&m->placelock, w->x.id, w->y);
	return r == 0 ? MIGRATE_E_AGAIN : r;
}

static int create_x(struct name_work *w)
{
	struct intent intent = { .op = INTENT_CREATE, .object = w->x.id, .place = w->place };
	int r;

	r = step_run(w->worker, &intent, &w->x);
	if (r == 0) {
		w->m->objects_seen++;
		w->m->bytes_seen += S_ISREG(w->x.attr.mode) ? w->x.attr.size : 0;
	}
	return r;
}

static int bring_x(struct name_work *w)
{
	struct intent intent = { .op = INTENT_RENAME, .object = w->x.id, .place = w->place };
	struct look there;
	int r;

	if (locator_is_null(&w->x.object.locator[w->m->to]))
		return create_x(w);

	r = journal_place_get(w->m->config.journal, w->x.id, 0, NULL, &intent.from);
	if (r != 0)
		return r < 0 ? r : -EIO; /* paired, but nowhere */
	if (intent.from.dir != JOURNAL_LIMBO_ID) {
		r = look_source(w->worker, intent.from.dir, intent.from.name, &there);
		if (r < 0)
			return r;
		/* A directory has one name: it went back there after we looked, and its name
		 * there may be done already. Ours is marked again. */
		if (there.id == w->x.id && S_ISDIR(w->x.object.type))
			return MIGRATE_E_AGAIN;
		if (there.id == w->x.id)
			intent.op = INTENT_LINK;
	}
	r = step_run(w->worker, &intent, &w->x);
	if (r == -EINVAL && S_ISDIR(w->x.object.type)) {
		int broken = break_chain(w, w->place.dir);

		/* Not above any more: somebody else has broken it, and nothing is done yet. */
		r = broken == 0 ? r : broken;
	}
	return r;
}

/* ---- the whole ------------------------------------------------------------------ */

/* A nameless object that nobody holds any more and that the target never got. */
static int drop_unpaired(struct name_work *w)
{
	struct object object = { .id = 0 };
	struct place place;
	uint64_t id = orphan_id(w->place.name), y = 0;
	int r;

	if (w->place.dir != JOURNAL_LIMBO_ID || !id)
		return 0;
	placelock_lock(&w->m->placelock, id, 0);
	r = w->m->is_stopping ? MIGRATE_E_STOPPING : shadow_now(w, &y);
	if (r == 0 && y)
		r = MIGRATE_E_AGAIN; /* it came here while nothing of ours locked it */
	if (r == 0)
		r = journal_object_get(w->m->config.journal, id, &object);
	if (r == 0)
		r = journal_place_get(w->m->config.journal, id, 0, NULL, &place);
	if (r == JOURNAL_E_NONE && object.id == id) {
		r = look_is_alive(w->m, &object);
		if (r > 0) {
			r = 0;
		} else if (r == 0) {
			marks_lock(w->m->config.marks);
			marks_drop_object_locked(w->m->config.marks, id);
			journal_delete_object(w->m->config.journal, &object);
			r = journal_flush(w->m->config.journal, marks_unlock(w->m->config.marks));
		}
	}
	placelock_unlock(&w->m->placelock, id, 0);
	return r == JOURNAL_E_NONE ? 0 : r;
}

/* No scan comes to an object without a name: after a gap its attributes are marked, so that
 * it is compared (object.c). */
static int compare_leftover(struct name_work *w)
{
	struct migrate *m = w->m;

	if (w->place.dir != JOURNAL_LIMBO_ID || !m->has_gap || compared_has(&m->compared, w->x.id))
		return 0;
	marks_lock(m->config.marks);
	marks_put_attr_locked(m->config.marks, w->x.id);
	return journal_flush(m->config.journal, marks_unlock(m->config.marks));
}

/* Makes the name stand for X. 0, MIGRATE_E_*, STORE_E_UNKNOWN never, or the error. */
static int make_equal(struct name_work *w)
{
	struct object dir;
	int r;

	if (w->x.id == w->y)
		return w->x.id ? compare_leftover(w) : drop_unpaired(w);
	/* A name of a directory without a pair waits for the pair; of one that is gone,
	 * X is none, and then there is no Y either. */
	r = look_dir(w->worker, w->place.dir, &dir);
	if (r < 0)
		return r;
	if (r == JOURNAL_E_NONE || locator_is_null(&dir.locator[w->m->to]))
		return MIGRATE_E_REST;
	if (w->y) {
		r = clear_place(w);
		if (r != 0)
			return r;
	}
	return w->x.id ? bring_x(w) : 0;
}

static bool is_parent_trouble(int r)
{
	return r == -ENOENT || r == -ESTALE || r == -EINVAL || r == -ENOTEMPTY || r == -ENOTDIR || r == -EBUSY;
}

void reconcile_end(struct worker *worker, struct marks_task *task, int r)
{
	struct migrate *m = worker->migrate;

	if (r == 0) {
		migrate_succeeded(m);
		commit_add(worker, task, 0, NULL);
		return;
	}
	if (r == MIGRATE_E_FOREIGN) {
		if (task->attempts == 0)
			m->extra_names++;
		r = -EEXIST;
	}
	if (is_parent_trouble(r)) {
		worker->dir.id = 0;
		/* The first tries are the normal course of things: others go first. */
		if (task->attempts < 100)
			r = MIGRATE_E_REST;
	}
	if (r < 0)
		migrate_report(m, r, "make the name equal", task->object, task->name);
	migrate_keep(m, task, r);
}

void reconcile_name(struct worker *worker, struct marks_task *task)
{
	struct name_work w = { .worker = worker, .m = worker->migrate, .attempts = task->attempts };
	int r;

	assert(task->kind == MARKS_NAME);
	place_set(&w.place, task->object, task->name);
	r = lock_both(&w);
	if (r == 0) {
		r = make_equal(&w);
		placelock_unlock(&w.m->placelock, w.x.id, w.y);
	}
	reconcile_end(worker, task, r);
}
