/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One operation on the target: the intent, the operation onto a free name, one
 * batch that says what the target is now. A crash leaves an intent; since nothing is
 * ever replaced, whether it was done can be told from what is there: the new name
 * exists, or, of a removal, the name is gone.
 *
 * The caller holds the claim of the name and the place locks of the objects.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "migrate/migrate_internal.h"
#include "util/clock.h"

static bool is_limbo(uint64_t dir)
{
	return dir == JOURNAL_LIMBO_ID;
}

/* The target's locator of a directory; MIGRATE_E_REST when it has no pair yet. */
static int target_dir(struct migrate *m, uint64_t dir, struct locator *ret_locator)
{
	struct object object;
	int r;

	if (is_limbo(dir))
		return look_limbo(m, ret_locator);
	r = journal_object_get(m->config.journal, dir, &object);
	if (r < 0)
		return r;
	if (r == JOURNAL_E_NONE || locator_is_null(&object.locator[m->to]))
		return MIGRATE_E_REST;
	*ret_locator = object.locator[m->to];
	return 0;
}

/* By this run: the step ends its intent's record. By one before, which may have announced
 * several in one record: that ends when all are settled, and what is settled already may be
 * settled again. */
enum announced { ANNOUNCED_NOW, ANNOUNCED_BEFORE };

/* ---- record ------------------------------------------------------------------ */

void step_touched_dir_locked(struct migrate *m, uint64_t dir)
{
	if (!is_limbo(dir))
		marks_put_attr_locked(m->config.marks, dir);
}

void step_record_create_locked(struct migrate *m, const struct intent *intent, const struct object *object,
			       const struct locator *created, const struct store_attr *attr)
{
	struct marks *marks = m->config.marks;
	struct object paired = *object;

	paired.locator[m->to] = *created;
	journal_put_object(m->config.journal, &paired, object);
	journal_put_shadow(m->config.journal, intent->place.dir, intent->place.name, intent->object);
	if (S_ISREG(object->type))
		marks_put_whole_locked(marks, intent->object, attr ? attr->size : 0, attr != NULL);
	else
		marks_put_attr_locked(marks, intent->object);
	if (S_ISDIR(object->type))
		marks_put_scan_locked(marks, intent->object, false);
	marks_set_paired_locked(marks, intent->object);
}

void step_record_owner_locked(struct migrate *m, uint64_t object, const struct store_attr *attr)
{
	struct synced synced = { .mode = 0, .uid = attr->uid, .gid = attr->gid };

	journal_put_synced(m->config.journal, object, &synced);
}

static void record_rename_locked(struct migrate *m, const struct intent *intent)
{
	journal_delete_shadow(m->config.journal, intent->from.dir, intent->from.name, intent->object);
	journal_put_shadow(m->config.journal, intent->place.dir, intent->place.name, intent->object);
	step_touched_dir_locked(m, intent->from.dir);
	marks_put_attr_locked(m->config.marks, intent->object);
	/* What is in limbo has to get out of it again. */
	if (is_limbo(intent->place.dir))
		marks_put_name_locked(m->config.marks, intent->place.dir, intent->place.name);
}

static void record_remove_locked(struct migrate *m, const struct intent *intent, const struct object *object,
				 bool is_last)
{
	journal_delete_shadow(m->config.journal, intent->place.dir, intent->place.name, intent->object);
	if (!is_last) {
		marks_put_attr_locked(m->config.marks, intent->object);
		return;
	}
	marks_drop_object_locked(m->config.marks, intent->object);
	journal_delete_object(m->config.journal, object);
}

/* The batch after the operation. @created: the locator of what a CREATE made; @attr: the
 * source's, as it was created after just now, or NULL when that is not known. */
static int record(struct migrate *m, const struct intent *intent, const struct object *object,
		  const struct locator *created, const struct store_attr *attr, enum announced announced)
{
	struct place other;
	bool is_last = false;
	int r;

	if (intent->op == INTENT_REMOVE) {
		r = journal_place_get(m->config.journal, intent->object, 0, &intent->place, &other);
		if (r < 0)
			return r;
		is_last = r == JOURNAL_E_NONE;
	}

	marks_lock(m->config.marks);
	switch (intent->op) {
	case INTENT_CREATE:
		step_record_create_locked(m, intent, object, created, attr);
		if (attr)
			step_record_owner_locked(m, intent->object, attr);
		break;
	case INTENT_LINK:
		journal_put_shadow(m->config.journal, intent->place.dir, intent->place.name, intent->object);
		marks_put_attr_locked(m->config.marks, intent->object);
		break;
	case INTENT_RENAME:
		record_rename_locked(m, intent);
		break;
	case INTENT_REMOVE:
		record_remove_locked(m, intent, object, is_last);
		break;
	case INTENT_OP_MAX:
		assert(false);
	}
	step_touched_dir_locked(m, intent->place.dir);
	marks_count_target_change_locked(m->config.marks);
	if (announced == ANNOUNCED_NOW)
		journal_delete_intents(m->config.journal, intent->number);
	return journal_flush(m->config.journal, marks_unlock(m->config.marks));
}

/* ---- perform ----------------------------------------------------------------- */

int step_perform_create(struct migrate *m, const struct intent *intent, const struct look *look,
			const struct locator *dir, struct locator *ret_created,
			struct store_file **ret_file)
{
	/* Permissions come last, with the ACL: copying must not widen access. */
	struct store_new new = {
		.mode = look->attr.mode & S_IFMT,
		.rdev = look->attr.rdev,
		.uid = look->attr.uid,
		.gid = look->attr.gid,
	};
	char link_target[PATH_MAX];
	struct store_attr attr;
	int r;

	if (S_ISLNK(new.mode)) {
		r = store_readlink(m->source, &look->object.locator[m->from], link_target,
				   sizeof(link_target));
		if (r < 0)
			return r == -ENOENT || r == -ESTALE ? MIGRATE_E_AGAIN : r;
		new.link_target = link_target;
	}
	return store_create_open(m->target, dir, intent->place.name, &new, ret_created, &attr, ret_file);
}

/* Not every target can refuse to replace: then look first. The name is claimed here, so
 * only a stranger on the target could come between. */
static int perform_rename(struct migrate *m, const struct intent *intent, const struct object *object,
			  const struct locator *dir)
{
	unsigned flags = store_caps(m->target)->has_rename_flags ? RENAME_NOREPLACE : 0;
	struct locator from, locator;
	struct store_attr attr;
	int r;

	r = target_dir(m, intent->from.dir, &from);
	if (r != 0)
		return r;
	r = store_lookup(m->target, &from, intent->from.name, &locator, &attr);
	if (r != 0)
		return r;
	if (!locator_equal(&locator, &object->locator[m->to]))
		return MIGRATE_E_FOREIGN;
	if (!flags) {
		r = store_lookup(m->target, dir, intent->place.name, &locator, &attr);
		if (r == 0)
			return MIGRATE_E_FOREIGN;
		if (r != -ENOENT)
			return r;
	}
	return store_rename(m->target, &from, intent->from.name, dir, intent->place.name, flags);
}

static int perform_remove(struct migrate *m, const struct intent *intent, const struct object *object,
			  const struct locator *dir)
{
	struct locator locator;
	struct store_attr attr;
	int r;

	/* What somebody else put there in the meantime is not ours to remove. */
	r = store_lookup(m->target, dir, intent->place.name, &locator, &attr);
	if (r == 0 && !locator_equal(&locator, &object->locator[m->to]))
		return MIGRATE_E_FOREIGN;
	if (r == 0)
		r = S_ISDIR(object->type) ? store_rmdir(m->target, dir, intent->place.name) :
					    store_unlink(m->target, dir, intent->place.name);
	return r == -ENOENT ? 0 : r;
}

bool step_is_shared_name(uint64_t dir, const char *name)
{
	return dir == JOURNAL_ROOT_ID && strcmp(name, "lost+found") == 0;
}

/* Takes the directory that stands there for what @intent was to create. */
static int adopt(struct migrate *m, const struct intent *intent, struct locator *ret_found)
{
	struct store_attr attr;
	struct locator dir;
	int r;

	r = target_dir(m, intent->place.dir, &dir);
	if (r != 0)
		return r;
	r = store_lookup(m->target, &dir, intent->place.name, ret_found, &attr);
	return r == 0 && !S_ISDIR(attr.mode) ? -EEXIST : r;
}

static int perform(struct migrate *m, const struct intent *intent, const struct object *object,
		   const struct look *look, struct locator *ret_created)
{
	struct store_file *file = NULL;
	struct locator dir;
	int r;

	r = target_dir(m, intent->place.dir, &dir);
	if (r != 0)
		return r;
	switch (intent->op) {
	case INTENT_CREATE:
		r = step_perform_create(m, intent, look, &dir, ret_created, &file);
		file = store_file_close(file);
		return r;
	case INTENT_LINK:
		return store_link(m->target, &object->locator[m->to], &dir, intent->place.name);
	case INTENT_RENAME:
		return perform_rename(m, intent, object, &dir);
	case INTENT_REMOVE:
		return perform_remove(m, intent, object, &dir);
	case INTENT_OP_MAX:
		break;
	}
	assert(false);
	return -EINVAL;
}

/* ---- settle ------------------------------------------------------------------ */

/* Whether what stands at the new name can be what the operation put there. A stranger that
 * was there before makes the operation fail, which a crash may have kept from being told.
 * A store that died half-way through a create has left no permissions yet, and what the
 * directory hands down (setgid). */
static bool is_ours(struct migrate *m, const struct intent *intent, const struct object *object,
		    const struct locator *found, const struct store_attr *attr)
{
	if (intent->op != INTENT_CREATE)
		return locator_equal(found, &object->locator[m->to]);
	if (S_ISLNK(object->type))
		return S_ISLNK(attr->mode);
	return (attr->mode & S_IFMT) == object->type && (attr->mode & 07777 & ~(mode_t)S_ISGID) == 0 &&
	       (!S_ISREG(object->type) || attr->size == 0);
}

/* Whether the operation happened, by what is there: 1, 0, or an error. */
static int happened(struct migrate *m, const struct intent *intent, const struct object *object,
		    struct locator *ret_found)
{
	struct locator dir;
	struct store_attr attr;
	int r;

	r = target_dir(m, intent->place.dir, &dir);
	if (r == MIGRATE_E_REST)
		return intent->op == INTENT_REMOVE; /* the directory could go, so the name has gone */
	if (r < 0)
		return r;
	r = store_lookup(m->target, &dir, intent->place.name, ret_found, &attr);
	if (r == -ENOENT || r == -ESTALE)
		return intent->op == INTENT_REMOVE;
	if (r < 0)
		return r;
	return intent->op != INTENT_REMOVE && is_ours(m, intent, object, ret_found, &attr);
}

static int take_back(struct migrate *m, const struct intent *intent)
{
	marks_lock(m->config.marks);
	journal_delete_intents(m->config.journal, intent->number);
	return journal_flush(m->config.journal, marks_unlock(m->config.marks));
}

static int settle(struct migrate *m, const struct intent *intent, const struct object *object,
		  enum announced announced)
{
	struct locator found = LOCATOR_NULL;
	int r;

	r = happened(m, intent, object, &found);
	if (r < 0)
		return r;
	if (r == 0 && announced == ANNOUNCED_NOW)
		r = take_back(m, intent);
	if (r <= 0)
		return r < 0 ? r : MIGRATE_E_AGAIN;
	return record(m, intent, object, &found, NULL, announced);
}

int step_settle(struct migrate *m, const struct intent *intent)
{
	struct object object;
	int r;

	r = journal_object_get(m->config.journal, intent->object, &object);
	if (r < 0)
		return r;
	if (r == JOURNAL_E_NONE)
		return 0;
	r = settle(m, intent, &object, ANNOUNCED_BEFORE);
	return r == MIGRATE_E_AGAIN ? 0 : r;
}

int step_resolve(struct migrate *m, const struct intent *intent, const struct object *object)
{
	int r;

	/* The intent's slot is not free before the outcome is known. */
	for (;;) {
		while (migrate_suspects_until(m))
			if (migrate_sleep(m, migrate_suspects_until(m)))
				return MIGRATE_E_STOPPING;
		r = settle(m, intent, object, ANNOUNCED_NOW);
		if (r >= 0 || journal_is_failed(m->config.journal))
			return r;
		migrate_report(m, r, "see what became of the name", intent->place.dir, intent->place.name);
		if (migrate_sleep(m, clock_ms() + MIGRATE_RETRY_MS))
			return MIGRATE_E_STOPPING;
	}
}

int step_run(struct worker *worker, struct intent *intent, const struct look *look)
{
	struct migrate *m = worker->migrate;
	struct locator created = LOCATOR_NULL;
	struct object object;
	int r;

	assert(worker->index < MIGRATE_WORKERS_MAX);
	/* Somebody's intent may be left unsettled now, on this object or in our slot. */
	if (m->is_stopping)
		return MIGRATE_E_STOPPING;
	intent->number = (uint64_t)worker->index * MIGRATE_BATCH_MAX;

	r = journal_object_get(m->config.journal, intent->object, &object);
	if (r != 0)
		return r < 0 ? r : MIGRATE_E_AGAIN;
	assert((intent->op == INTENT_CREATE) == locator_is_null(&object.locator[m->to]));

	journal_compose(m->config.journal);
	journal_put_intents(m->config.journal, intent, 1);
	r = journal_flush(m->config.journal, journal_submit(m->config.journal));
	if (r < 0)
		return r;

	r = perform(m, intent, &object, look, &created);
	if (r == STORE_E_UNKNOWN)
		return step_resolve(m, intent, &object);
	if (r == -EEXIST && intent->op == INTENT_CREATE && S_ISDIR(object.type) &&
	    step_is_shared_name(intent->place.dir, intent->place.name)) {
		look = NULL; /* it is not as it would have been created */
		r = adopt(m, intent, &created);
	}
	if (r != 0) {
		int back = take_back(m, intent);

		if (back < 0)
			return back;
		/* None of these operations replaces a name; only a removal says so of a directory. */
		return r == -EEXIST && intent->op != INTENT_REMOVE ? MIGRATE_E_FOREIGN : r;
	}
	return record(m, intent, &object, &created, look ? &look->attr : NULL, ANNOUNCED_NOW);
}
