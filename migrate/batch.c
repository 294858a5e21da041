/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many new names at once: what a baseline is made of. The protocol is that of
 * reconcile.c and step.c; only the journal's writes are shared. A name is eligible if
 * nothing stands there on the target and its object has no pair and no other name (so
 * nobody else has a reason to place it). The eligible ones go through together: place
 * locks in ascending order; their intents in one flush; the creations; their records in
 * one flush; then the data of each by the worker that made it. The others are worked off
 * singly, after.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "migrate/migrate_internal.h"
#include "util/cleanup.h"

struct batch_name {
	struct marks_task task;	  /* the name's claim */
	struct marks_task object; /* the new object's, MARKS_KIND_MAX: not claimed */
	struct object dir;
	struct look x;
	struct object paired;
	struct intent *intent; /* if it is eligible */
	struct locator created;
	struct store_file *file; /* of what was created, or NULL */
	uint64_t seq; /* of x.object's record, when it was seen for the first time; 0 */
	bool is_eligible;
	int result;
};

struct batch {
	struct batch_name names[MIGRATE_BATCH_MAX];
	unsigned count;
	struct batch_name *creates[MIGRATE_BATCH_MAX]; /* by ascending object id */
	struct intent intents[MIGRATE_BATCH_MAX];      /* of creates, in one record */
	unsigned create_count;
};

struct batch *batch_new(void)
{
	return malloc(sizeof(struct batch));
}

/* As many as leave enough for the other workers. */
static void claim_names(struct worker *worker, struct batch *b, struct marks_task *first)
{
	struct marks *marks = worker->migrate->config.marks;
	struct marks_stats stats;
	unsigned limit;

	marks_get_stats(marks, &stats);
	limit = 1 + (unsigned)(stats.names / worker->migrate->worker_count);
	if (limit > MIGRATE_BATCH_MAX)
		limit = MIGRATE_BATCH_MAX;
	b->names[0].task = *first;
	b->count = 1;
	while (b->count < limit && marks_next(marks, 1u << MARKS_NAME, 0, &b->names[b->count].task) > 0)
		b->count++;
}

/* Looks, as reconcile.c does. What fails here is looked at again there, and told there. */
static bool look_eligible(struct worker *worker, struct batch_name *n)
{
	struct migrate *m = worker->migrate;
	struct locator locator;
	uint64_t shadow;

	if (n->task.object == JOURNAL_LIMBO_ID || step_is_shared_name(n->task.object, n->task.name))
		return false;
	if (look_dir(worker, n->task.object, &n->dir) != 0 ||
	    locator_is_null(&n->dir.locator[m->from]) || locator_is_null(&n->dir.locator[m->to]))
		return false;
	if (journal_shadow_get(m->config.journal, n->task.object, n->task.name, &shadow) != JOURNAL_E_NONE)
		return false;
	if (store_lookup(m->source, &n->dir.locator[m->from], n->task.name, &locator, &n->x.attr) != 0)
		return false;
	if (!S_ISDIR(n->x.attr.mode) && n->x.attr.nlink != 1)
		return false;
	if (journal_object_intern_early(m->config.journal, m->from, &locator, n->x.attr.mode & S_IFMT,
					n->x.attr.ino, &n->x.object, &n->seq) != 0)
		return false;
	n->x.id = n->x.object.id;
	return locator_is_null(&n->x.object.locator[m->to]);
}

static int compare_ids(const void *a, const void *b)
{
	const struct batch_name *const *x = a, *const *y = b;

	return (*x)->x.id < (*y)->x.id ? -1 : (*x)->x.id > (*y)->x.id;
}

/* A record that is not flushed yet is one that nobody else can have paired; any other that is
 * not there was of an object that has died. */
static bool is_unpaired_still(struct migrate *m, const struct batch_name *n)
{
	struct object object;

	if (journal_flushed(m->config.journal) < n->seq)
		return true;
	return journal_object_get(m->config.journal, n->x.id, &object) == 0 &&
	       locator_is_null(&object.locator[m->to]);
}

static void lock_eligible(struct migrate *m, struct batch *b)
{
	unsigned count = 0;

	qsort(b->creates, b->create_count, sizeof(b->creates[0]), compare_ids);
	for (unsigned i = 0; i < b->create_count; i++) {
		struct batch_name *n = b->creates[i];

		/* The same object twice: it was renamed while we looked. */
		n->is_eligible = count == 0 || b->creates[count - 1]->x.id != n->x.id;
		if (!n->is_eligible)
			continue;
		placelock_lock(&m->placelock, n->x.id, 0);
		n->is_eligible = !m->is_stopping && is_unpaired_still(m, n);
		if (n->is_eligible)
			b->creates[count++] = n;
		else
			placelock_unlock(&m->placelock, n->x.id, 0);
	}
	b->create_count = count;
}

static uint64_t intent_number(const struct worker *worker, unsigned i)
{
	return (uint64_t)worker->index * MIGRATE_BATCH_MAX + i;
}

static void announce(struct worker *worker, struct batch *b)
{
	struct journal *journal = worker->migrate->config.journal;
	int r;

	for (unsigned i = 0; i < b->create_count; i++) {
		struct batch_name *n = b->creates[i];

		n->intent = &b->intents[i];
		n->intent->number = intent_number(worker, 0);
		n->intent->op = INTENT_CREATE;
		n->intent->object = n->x.id;
		n->intent->place.dir = n->task.object;
		memcpy(n->intent->place.name, n->task.name, sizeof(n->intent->place.name));
		n->intent->from = n->intent->place; /* not used by a CREATE */
	}
	journal_compose(journal);
	journal_put_intents(journal, b->intents, b->create_count);
	r = journal_flush(journal, journal_submit(journal));
	for (unsigned i = 0; i < b->create_count; i++) {
		b->creates[i]->result = r;
		b->creates[i]->file = NULL;
	}
}

static void create(struct migrate *m, struct batch *b)
{
	for (unsigned i = 0; i < b->create_count; i++) {
		struct batch_name *n = b->creates[i];

		if (n->result == 0)
			n->result = step_perform_create(m, n->intent, &n->x, &n->dir.locator[m->to],
							&n->created, &n->file);
	}
}

static void record_locked(struct migrate *m, struct batch_name *n)
{
	n->object = MARKS_TASK_NULL;
	if (n->result != 0)
		return;
	n->paired = n->x.object;
	n->paired.locator[m->to] = n->created;
	step_record_create_locked(m, n->intent, &n->x.object, &n->created, &n->x.attr);
	step_touched_dir_locked(m, n->task.object);
	marks_count_target_change_locked(m->config.marks);
	/* Claimed as long as it is nobody else's: its data comes next. */
	if (S_ISDIR(n->x.attr.mode) || marks_take_object_locked(m->config.marks, n->x.id, &n->object) == 0) {
		n->object = MARKS_TASK_NULL;
		step_record_owner_locked(m, n->x.id, &n->x.attr);
	}
}

/* Ends the common record. What may still happen goes on in records of its own. */
static void end_intents_locked(struct worker *worker, struct batch *b)
{
	struct journal *journal = worker->migrate->config.journal;

	journal_delete_intents(journal, intent_number(worker, 0));
	for (unsigned i = 0; i < b->create_count; i++) {
		if (b->creates[i]->result != STORE_E_UNKNOWN)
			continue;
		b->intents[i].number = intent_number(worker, i);
		journal_put_intents(journal, &b->intents[i], 1);
	}
}

static void record(struct worker *worker, struct batch *b)
{
	struct migrate *m = worker->migrate;
	int r;

	marks_lock(m->config.marks);
	end_intents_locked(worker, b);
	for (unsigned i = 0; i < b->create_count; i++)
		record_locked(m, b->creates[i]);
	r = journal_flush(m->config.journal, marks_unlock(m->config.marks));
	for (unsigned i = 0; i < b->create_count; i++) {
		struct batch_name *n = b->creates[i];

		if (n->result == STORE_E_UNKNOWN)
			n->result = step_resolve(m, n->intent, &n->x.object);
		else if (n->result == 0)
			n->result = r;
		placelock_unlock(&m->placelock, n->x.id, 0);
	}
}

static void finish(struct worker *worker, struct batch_name *n)
{
	struct migrate *m = worker->migrate;

	if (n->result == 0) {
		m->objects_seen++;
		m->bytes_seen += S_ISREG(n->x.attr.mode) ? n->x.attr.size : 0;
	}
	if (n->object.kind == MARKS_OBJECT && n->result == 0)
		object_work_new(worker, &n->object, &n->paired, &n->x.attr, TAKE_PTR(n->file));
	else if (n->object.kind == MARKS_OBJECT)
		migrate_keep(m, &n->object, n->result);
	n->file = store_file_close(n->file);
	reconcile_end(worker, &n->task, n->result == -EEXIST ? MIGRATE_E_FOREIGN : n->result);
}

void batch_work(struct worker *worker, struct marks_task *first)
{
	struct migrate *m = worker->migrate;
	struct batch *b = worker->batch;

	claim_names(worker, b, first);
	b->create_count = 0;
	for (unsigned i = 0; i < b->count; i++) {
		b->names[i].is_eligible = look_eligible(worker, &b->names[i]);
		if (b->names[i].is_eligible)
			b->creates[b->create_count++] = &b->names[i];
	}
	lock_eligible(m, b);
	if (b->create_count > 0) {
		announce(worker, b);
		create(m, b);
		record(worker, b);
	}
	for (unsigned i = 0; i < b->create_count; i++)
		finish(worker, b->creates[i]);
	for (unsigned i = 0; i < b->count; i++) {
		if (b->names[i].is_eligible)
			continue;
		if (m->is_stopping)
			migrate_keep(m, &b->names[i].task, MIGRATE_E_STOPPING);
		else
			reconcile_name(worker, &b->names[i].task);
	}
	/* The first name is counted by who gave it out; each creation was an object's task too. */
	m->tasks += b->count - 1 + b->create_count;
}
