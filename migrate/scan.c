/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Works off scan(d): a name mark for each listed name, and for each shadow name that
 * the listing lacks. It creates nothing, so a stale listing does no harm.
 *
 * In compare mode (after a gap) a name that is right gets no mark: same object by
 * handle, and the source's ctime is the one that was synced. What differs is marked
 * whole, and each directory is scanned in the same mode.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "migrate/migrate_internal.h"
#include "util/clock.h"

enum { SCAN_BATCH = 128, SCAN_WAIT_MS = 200 };

struct scan {
	struct worker *worker;
	struct migrate *m;
	struct marks_task *task;
	struct object dir;
	bool is_dead;  /* the source has it no more: nothing is listed */
	/* Made by this run and never equal yet: what is in its shadow, this scan has listed. */
	bool is_fresh;
	unsigned count;
	char names[SCAN_BATCH][JOURNAL_NAME_MAX + 1];
};

static bool is_gone(int r)
{
	return r == -ENOENT || r == -ESTALE || r == -ENOTDIR;
}

static int flush_names(struct scan *s)
{
	uint64_t changes;

	if (s->count == 0)
		return 0;
	/* All names there may rest for what this scan has not told yet: when nothing moves,
	 * it goes on, and what is over the limit is spilled. */
	do {
		changes = marks_target_changes(s->m->config.marks);
		if (marks_wait_names_room(s->m->config.marks, s->count, clock_ms() + SCAN_WAIT_MS))
			break;
		if (s->m->is_stopping || s->m->is_flipped)
			return MIGRATE_E_STOPPING;
	} while (changes != marks_target_changes(s->m->config.marks));
	marks_lock(s->m->config.marks);
	for (unsigned i = 0; i < s->count; i++)
		marks_put_scanned_name_locked(s->m->config.marks, s->task, s->names[i]);
	s->count = 0;
	(void)marks_unlock(s->m->config.marks); /* they are there before the scan's mark goes */
	return 0;
}

static int add_name(struct scan *s, const char *name)
{
	size_t length = strlen(name);

	assert(length <= JOURNAL_NAME_MAX);
	memcpy(s->names[s->count++], name, length + 1);
	return s->count == SCAN_BATCH ? flush_names(s) : 0;
}

/* Compares what stands at @name with what is known; marks the difference. */
static int compare_name(struct scan *s, const char *name)
{
	struct synced synced;
	struct look look;
	uint64_t shadow = 0;
	int r;

	r = look_source(s->worker, s->task->object, name, &look);
	if (r < 0)
		return r;
	r = journal_shadow_get(s->m->config.journal, s->task->object, name, &shadow);
	if (r < 0)
		return r;
	if (look.id != shadow) {
		r = add_name(s, name);
		if (r != 0)
			return r;
	}
	if (!look.id || locator_is_null(&look.object.locator[s->m->to]))
		return 0; /* its name mark brings all with it */
	if (compared_has(&s->m->compared, look.id))
		return 0; /* by another name, or by its own work (object.c) */

	r = journal_synced_get(s->m->config.journal, look.id, &synced);
	if (r < 0)
		return r;
	marks_lock(s->m->config.marks);
	if (r == JOURNAL_E_NONE || timespec_cmp(synced.ctime[s->m->from], look.attr.ctime) != 0 ||
	    synced.size != look.attr.size) {
		if (S_ISREG(look.attr.mode))
			marks_put_whole_locked(s->m->config.marks, look.id, look.attr.size, false);
		else
			marks_put_attr_locked(s->m->config.marks, look.id);
	}
	if (S_ISDIR(look.attr.mode))
		marks_put_scan_locked(s->m->config.marks, look.id, true);
	r = journal_flush(s->m->config.journal, marks_unlock(s->m->config.marks));
	if (r < 0)
		return r;
	compared_add(&s->m->compared, look.id);
	return 0;
}

static int list_source(struct scan *s)
{
	struct store_dir *stream;
	struct store_entry *entry = &(struct store_entry){ .name = NULL };
	int r;

	r = store_dir_open(s->m->source, &s->dir.locator[s->m->from], &stream);
	if (r != 0)
		return r;
	for (;;) {
		if (s->m->is_stopping || s->m->is_flipped) {
			r = MIGRATE_E_STOPPING;
			break;
		}
		r = store_dir_next(stream, entry);
		if (r != 0)
			break;
		if (s->task->object == JOURNAL_ROOT_ID && strcmp(entry->name, s->m->config.limbo_name) == 0)
			continue;
		r = s->task->is_compare ? compare_name(s, entry->name) : add_name(s, entry->name);
		if (r != 0)
			break;
	}
	stream = store_dir_close(stream);
	return r == STORE_E_END ? flush_names(s) : r;
}

/* Whether the source still has @name: 1, 0, or an error. */
static int is_listed(struct scan *s, const char *name)
{
	struct store_attr attr;
	struct locator locator;
	int r;

	if (s->is_dead)
		return 0;
	r = store_lookup(s->m->source, &s->dir.locator[s->m->from], name, &locator, &attr);
	if (is_gone(r))
		return 0;
	return r < 0 ? r : 1;
}

static int list_shadow(struct scan *s)
{
	struct journal_cursor *cursor;
	char name[JOURNAL_NAME_MAX + 1];
	uint64_t id;
	int r;

	r = journal_shadow_open(s->m->config.journal, s->task->object, &cursor);
	if (r < 0)
		return r;
	while ((r = journal_shadow_next(cursor, name, &id)) == 0) {
		r = is_listed(s, name);
		if (r == 0)
			r = add_name(s, name);
		else if (r == 1)
			r = 0;
		if (r != 0)
			break;
	}
	cursor = journal_cursor_close(cursor);
	return r == JOURNAL_E_END ? flush_names(s) : r;
}

static int scan_dir(struct scan *s)
{
	struct synced synced;
	int r;

	r = look_dir(s->worker, s->task->object, &s->dir);
	if (r == JOURNAL_E_NONE)
		return 0; /* it is gone from both sides */
	if (r < 0)
		return r;
	r = look_is_alive(s->m, &s->dir);
	if (r < 0)
		return r;
	s->is_dead = r == 0;
	r = journal_synced_get(s->m->config.journal, s->task->object, &synced);
	if (r < 0)
		return r;
	s->is_fresh = (r == JOURNAL_E_NONE || synced.mode == 0) && !s->task->is_of_before;

	if (!s->is_dead) {
		r = list_source(s);
		if (is_gone(r))
			s->is_dead = true;
		else if (r != 0)
			return r;
	}
	if (!s->is_dead && s->is_fresh && !s->task->is_compare)
		return 0;
	return list_shadow(s);
}

void scan_work(struct worker *worker, struct marks_task *task)
{
	struct scan *s = worker->scan;
	uint64_t dir = task->object;
	int r;

	assert(task->kind == MARKS_SCAN);
	*s = (struct scan){ .worker = worker, .m = worker->migrate, .task = task };
	r = scan_dir(s);
	if (r == 0) {
		marks_lock(s->m->config.marks);
		(void)marks_clear_locked(s->m->config.marks, task, 0); /* what is redirtied stays marked */
		(void)marks_unlock(s->m->config.marks);		       /* a clear need not be flushed */
		return;
	}
	if (r < 0)
		migrate_report(s->m, r, "list the directory", dir, NULL);
	migrate_keep(s->m, task, r);
}

struct scan *scan_new(void)
{
	return malloc(sizeof(struct scan));
}
