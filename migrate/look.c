/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the active side has now, and what we know of it. Everything here is looked
 * at under the claim of the name that asks; a change that comes later redirties it.
 */
#include <errno.h>

#include "migrate/migrate_internal.h"

static bool is_gone(int r)
{
	return r == -ENOENT || r == -ESTALE || r == -ENOTDIR;
}

int look_dir(struct worker *worker, uint64_t dir, struct object *ret_object)
{
	struct migrate *m = worker->migrate;
	struct object object = { .id = JOURNAL_LIMBO_ID, .type = S_IFDIR };
	int r;

	if (dir == JOURNAL_LIMBO_ID) {
		r = look_limbo(m, &object.locator[m->to]);
		if (r < 0)
			return r;
		*ret_object = object;
		return 0;
	}
	if (worker->dir.id != dir) {
		r = journal_object_get(m->config.journal, dir, &object);
		if (r != 0)
			return r;
		/* Only what is paired stays so long enough to be worth keeping. */
		if (locator_is_null(&object.locator[m->to])) {
			*ret_object = object;
			return 0;
		}
		worker->dir = object;
	}
	*ret_object = worker->dir;
	return 0;
}

static int look_orphan(struct migrate *m, const char *name, struct look *ret_look)
{
	struct look look = { .id = orphan_id(name) };
	int r;

	if (!look.id || !orphans_has(m->config.orphans, look.id)) {
		ret_look->id = 0;
		return 0;
	}
	r = journal_object_get(m->config.journal, look.id, &look.object);
	if (r < 0)
		return r;
	if (r == JOURNAL_E_NONE) {
		ret_look->id = 0;
		return 0;
	}
	r = store_getattr(m->source, &look.object.locator[m->from], &look.attr);
	if (is_gone(r)) {
		ret_look->id = 0;
		return 0;
	}
	if (r < 0)
		return r;
	*ret_look = look;
	return 0;
}

int look_source(struct worker *worker, uint64_t dir, const char *name, struct look *ret_look)
{
	struct migrate *m = worker->migrate;
	struct look look = { .id = 0 };
	struct object parent;
	struct locator locator;
	int r;

	if (dir == JOURNAL_LIMBO_ID)
		return look_orphan(m, name, ret_look);

	r = look_dir(worker, dir, &parent);
	if (r < 0)
		return r;
	if (r == JOURNAL_E_NONE || locator_is_null(&parent.locator[m->from])) {
		ret_look->id = 0;
		return 0;
	}
	r = store_lookup(m->source, &parent.locator[m->from], name, &locator, &look.attr);
	if (is_gone(r)) {
		ret_look->id = 0;
		return 0;
	}
	if (r < 0)
		return r;
	r = journal_object_intern(m->config.journal, m->from, &locator, look.attr.mode & S_IFMT,
				  look.attr.ino, &look.id);
	if (r < 0)
		return r;
	r = journal_object_get(m->config.journal, look.id, &look.object);
	if (r < 0)
		return r;
	if (r == JOURNAL_E_NONE)
		return -EIO; /* interned just now, and gone: the journal is broken */
	*ret_look = look;
	return 0;
}

int look_is_alive(struct migrate *migrate, const struct object *object)
{
	struct store_attr attr;
	int r;

	if (locator_is_null(&object->locator[migrate->from]))
		return 0;
	r = store_getattr(migrate->source, &object->locator[migrate->from], &attr);
	if (is_gone(r))
		return 0;
	if (r < 0)
		return r;
	return attr.nlink > 0 || orphans_has(migrate->config.orphans, object->id);
}

/* Makes limbo, or finds the one that is there. A reply that is lost is waited for: what
 * lands later would spoil the root's times. */
static int make_limbo(struct migrate *m, struct locator *ret_locator)
{
	struct store_new new = { .mode = S_IFDIR | 0700 };
	struct store_attr attr;
	int r, found;

	for (;;) {
		r = store_create(m->target, &m->root[m->to], m->config.limbo_name, &new, ret_locator, &attr);
		if (r != -EEXIST && r != STORE_E_UNKNOWN)
			return r;
		while (r == STORE_E_UNKNOWN && migrate_suspects_until(m))
			if (migrate_sleep(m, migrate_suspects_until(m)))
				return -EINTR;
		found = store_lookup(m->target, &m->root[m->to], m->config.limbo_name, ret_locator, &attr);
		if (found != -ENOENT || r == -EEXIST)
			return found;
	}
}

int look_limbo(struct migrate *migrate, struct locator *ret_locator)
{
	struct object limbo = { .id = JOURNAL_LIMBO_ID, .type = S_IFDIR };
	int r = 0;

	pthread_mutex_lock(&migrate->limbo_lock);
	if (!locator_is_null(&migrate->limbo))
		goto out;
	r = make_limbo(migrate, &limbo.locator[migrate->to]);
	if (r < 0)
		goto out;
	migrate->limbo = limbo.locator[migrate->to];

	/* The root's times have changed by it; a crash before this is seen to by every start. */
	marks_lock(migrate->config.marks);
	journal_put_object(migrate->config.journal, &limbo, NULL);
	marks_put_attr_locked(migrate->config.marks, JOURNAL_ROOT_ID);
	r = journal_flush(migrate->config.journal, marks_unlock(migrate->config.marks));
out:
	if (r == 0)
		*ret_locator = migrate->limbo;
	pthread_mutex_unlock(&migrate->limbo_lock);
	return r;
}
