/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clear after commit. What the workers have made equal stays claimed until the target
 * has it on stable storage: one commit (syncfs, or COMMIT by file) for all that came
 * before it, then the clears in one batch. Changes meanwhile redirty the claims as ever.
 *
 * A target in memory has no stable storage: there the clear follows at once.
 */
#include <errno.h>
#include <stdlib.h>

#include "migrate/migrate_internal.h"
#include "util/clock.h"
#include "util/log.h"

enum {
	COMMIT_ITEMS_MAX = 8192,   /* uncommitted; workers wait beyond it */
	COMMIT_INTERVAL_MS = 100,  /* between commits, or twice as long as the last one took */
	COMMIT_INTERVAL_MS_MAX = 2000,
	COMMIT_BATCH = 256, /* items cleared under the marks' lock at a time */
};

int commit_init(struct commit *commit)
{
	pthread_condattr_t attr;
	int r;

	r = pthread_condattr_init(&attr);
	if (r)
		return -r;
	r = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	if (!r)
		r = pthread_cond_init(&commit->changed, &attr);
	pthread_condattr_destroy(&attr);
	if (r)
		return -r;
	pthread_mutex_init(&commit->lock, NULL);
	commit->last = &commit->first;
	return 0;
}

void commit_done(struct commit *commit)
{
	assert(!commit->first);
	pthread_cond_destroy(&commit->changed);
	pthread_mutex_destroy(&commit->lock);
}

static void clear_locked(struct migrate *m, struct marks_task *task, uint64_t source_end,
			 const struct synced *synced)
{
	if (synced)
		journal_put_synced(m->config.journal, task->object, synced);
	(void)marks_clear_locked(m->config.marks, task, source_end); /* what is redirtied stays marked */
}

void commit_add(struct worker *worker, struct marks_task *task, uint64_t source_end,
		const struct synced *synced)
{
	struct migrate *m = worker->migrate;
	struct commit *commit = &m->commit;
	struct commit_item *item;

	item = store_caps(m->target)->is_volatile ? NULL : malloc(sizeof(*item));
	if (!item) {
		/* In memory nothing waits for a commit; out of memory the work is done again. */
		marks_lock(m->config.marks);
		if (store_caps(m->target)->is_volatile)
			clear_locked(m, task, source_end, synced);
		else
			marks_keep_locked(m->config.marks, task, MARKS_AGAIN, 0);
		(void)marks_unlock(m->config.marks); /* a clear need not be flushed */
		return;
	}
	*item = (struct commit_item){
		.task = *task,
		.losses = worker->losses,
		.source_end = source_end,
		.has_synced = synced != NULL,
	};
	if (synced)
		item->synced = *synced;

	pthread_mutex_lock(&commit->lock);
	while (commit->count >= COMMIT_ITEMS_MAX && !commit->is_stopping)
		pthread_cond_wait(&commit->changed, &commit->lock);
	*commit->last = item;
	commit->last = &item->next;
	if (commit->count++ == 0)
		pthread_cond_broadcast(&commit->changed);
	pthread_mutex_unlock(&commit->lock);
}

static struct commit_item *take_all_locked(struct commit *commit)
{
	struct commit_item *items = commit->first;

	commit->first = NULL;
	commit->last = &commit->first;
	commit->count = 0;
	return items;
}

static void end_items(struct migrate *m, struct commit_item *item, bool is_committed)
{
	while (item) {
		marks_lock(m->config.marks);
		for (unsigned i = 0; item && i < COMMIT_BATCH; i++) {
			struct commit_item *next = item->next;

			if (is_committed && item->losses == m->commit.losses)
				clear_locked(m, &item->task, item->source_end,
					     item->has_synced ? &item->synced : NULL);
			else
				marks_keep_locked(m->config.marks, &item->task, MARKS_LATER, MIGRATE_RETRY_MS);
			free(item);
			item = next;
		}
		(void)marks_unlock(m->config.marks); /* a clear need not be flushed */
	}
}

static void commit_items(struct migrate *m, struct commit_item *items)
{
	uint64_t begun = clock_ms();
	int r;

	r = store_commit(m->target);
	m->commit.last_ms = (uint32_t)(clock_ms() - begun);
	/* It speaks for all who wrote before it, also for those whose task has not come yet. */
	if (r != 0 && r != -EHOSTDOWN && r != -EAGAIN)
		m->commit.losses++;
	if (r == STORE_E_LOST)
		log_warning("the target has restarted: what it had not committed is copied again");
	else if (r != 0)
		migrate_report(m, r < 0 ? r : -EIO, "commit the target", 0, NULL);
	end_items(m, items, r == 0);
}

/* How long to gather before the next commit: none while somebody waits for a drain. */
static uint64_t interval_ms(const struct migrate *m)
{
	uint64_t ms = 2 * (uint64_t)m->commit.last_ms;

	if (m->is_draining)
		return 0;
	if (ms < COMMIT_INTERVAL_MS)
		ms = COMMIT_INTERVAL_MS;
	return ms < COMMIT_INTERVAL_MS_MAX ? ms : COMMIT_INTERVAL_MS_MAX;
}

void *commit_thread(void *context)
{
	struct migrate *m = context;
	struct commit *commit = &m->commit;
	uint64_t due = 0;

	pthread_mutex_lock(&commit->lock);
	while (!commit->is_stopping || commit->first) {
		uint64_t now = clock_ms();

		if (!commit->first) {
			pthread_cond_wait(&commit->changed, &commit->lock);
			due = clock_ms() + interval_ms(m);
			continue;
		}
		if (now < due && !commit->is_stopping && !m->is_draining &&
		    commit->count < COMMIT_ITEMS_MAX) {
			struct timespec until = clock_timespec(due);

			pthread_cond_timedwait(&commit->changed, &commit->lock, &until);
			continue;
		}
		struct commit_item *items = take_all_locked(commit);

		pthread_cond_broadcast(&commit->changed); /* there is room again */
		pthread_mutex_unlock(&commit->lock);
		commit_items(m, items);
		pthread_mutex_lock(&commit->lock);
		due = clock_ms() + interval_ms(m);
	}
	pthread_mutex_unlock(&commit->lock);
	return NULL;
}

void commit_wake(struct commit *commit)
{
	pthread_mutex_lock(&commit->lock);
	pthread_cond_broadcast(&commit->changed);
	pthread_mutex_unlock(&commit->lock);
}

void commit_stop(struct commit *commit)
{
	pthread_mutex_lock(&commit->lock);
	commit->is_stopping = true;
	pthread_cond_broadcast(&commit->changed);
	pthread_mutex_unlock(&commit->lock);
}
