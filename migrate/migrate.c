/* SPDX-License-Identifier: Apache-2.0 */
#include "migrate/migrate.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "migrate/migrate_internal.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/log.h"

enum {
	WORKER_WAIT_MS = 500,
	WORKER_STACK_BYTES = 256 << 10,
	ERROR_REPEAT_MS = 10000, /* the same error is logged again after that */
	DEGRADED_MS = 15000,	 /* an error older than that, with no newer, is over */
};

void migrate_limbo_name(const struct journal *journal, char ret_name[static MIGRATE_LIMBO_NAME_BYTES])
{
	(void)snprintf(ret_name, MIGRATE_LIMBO_NAME_BYTES, ".ferryfs-limbo-%016llx",
		       (unsigned long long)journal_uuid(journal)); /* always fits */
}

/* ---- waiting, errors ------------------------------------------------------- */

bool migrate_sleep(struct migrate *m, uint64_t deadline_ms)
{
	struct timespec until = clock_timespec(deadline_ms);

	pthread_mutex_lock(&m->sleep_lock);
	while (!m->is_stopping && clock_ms() < deadline_ms)
		if (pthread_cond_timedwait(&m->sleep_ended, &m->sleep_lock, &until))
			break;
	pthread_mutex_unlock(&m->sleep_lock);
	return m->is_stopping;
}

static const char *remedy(int error)
{
	switch (-error) {
	case ENOSPC:
		return "; make room on the target, it goes on by itself";
	case EDQUOT:
		return "; raise the quota on the target, it goes on by itself";
	case EROFS:
		return "; make the target writable, it goes on by itself";
	case EACCES:
	case EPERM:
		return "; the target must let root change owners and modes (no root squash)";
	case ETIMEDOUT:
	case EHOSTDOWN:
	case EHOSTUNREACH:
	case ECONNREFUSED:
		return "; it goes on by itself when the target answers again";
	case EEXIST:
		return "; somebody else made that name on the target: remove or rename it there";
	default:
		return "";
	}
}

void migrate_report(struct migrate *m, int error, const char *what, uint64_t dir, const char *name)
{
	char path[PATH_MAX + 256] = "", text[512], errno_text[128];
	uint64_t now = clock_ms();
	bool is_new;

	if (dir && migrate_path(m, dir, path, sizeof(path)) < 0)
		(void)snprintf(path, sizeof(path), "object %llu", (unsigned long long)dir); /* fits */
	(void)snprintf(text, sizeof(text), "cannot %s%s%.300s%s%.100s%s: %s%s", what, dir ? " '" : "", path,
		       name ? "/" : "", name ? name : "", dir ? "'" : "",
		       strerror_r(-error, errno_text, sizeof(errno_text)), remedy(error)); /* cut if long */

	m->error_count++;
	pthread_mutex_lock(&m->status_lock);
	is_new = strcmp(text, m->error_last) != 0 || now - m->last_error_ms > ERROR_REPEAT_MS;
	memcpy(m->error_last, text, sizeof(text));
	m->last_error_ms = now;
	pthread_mutex_unlock(&m->status_lock);
	if (is_new)
		log_warning("%s, retrying", text);
}

void migrate_succeeded(struct migrate *m)
{
	m->last_success_ms = clock_ms();
}

uint64_t migrate_suspects_until(struct migrate *m)
{
	uint64_t now = clock_ms(), loss = store_last_loss_ms(m->target), until = m->killed_until_ms;

	if (loss && loss + m->config.hold_down_ms > until)
		until = loss + m->config.hold_down_ms;
	return until > now ? until : 0;
}

static uint64_t retry_ms(uint32_t attempts)
{
	uint64_t ms = (uint64_t)MIGRATE_RETRY_MS << (attempts < 10 ? attempts : 10);

	return ms < MIGRATE_RETRY_MS_MAX ? ms : MIGRATE_RETRY_MS_MAX;
}

void migrate_keep(struct migrate *m, struct marks_task *task, int r)
{
	enum marks_why why = MARKS_LATER;
	uint64_t value = 0;

	if (r == MIGRATE_E_AGAIN) {
		why = MARKS_AGAIN;
	} else if (r == MIGRATE_E_REST) {
		why = MARKS_REST;
	} else if (r == STORE_E_UNKNOWN) {
		uint64_t until = migrate_suspects_until(m), now = clock_ms();

		value = until > now ? until - now : 1;
	} else {
		value = retry_ms(task->attempts);
	}
	marks_lock(m->config.marks);
	marks_keep_locked(m->config.marks, task, why, value);
	(void)marks_unlock(m->config.marks); /* nothing was composed */
}

int migrate_path(struct migrate *m, uint64_t id, char *ret_path, size_t size)
{
	_cleanup_free_ char *path = malloc(size);
	size_t at = size;
	struct place place;
	unsigned depth = 0;
	int r;

	if (!path || size == 0)
		return -ENOMEM;
	path[--at] = '\0';
	while (id != JOURNAL_ROOT_ID && id != JOURNAL_LIMBO_ID) {
		size_t length;

		r = journal_place_get(m->config.journal, id, 0, NULL, &place);
		if (r != 0)
			return r < 0 ? r : -ENOENT;
		length = strlen(place.name);
		if (length + 1 > at || ++depth > MIGRATE_DEPTH_MAX)
			return -ENAMETOOLONG;
		at -= length;
		memcpy(path + at, place.name, length);
		path[--at] = '/';
		id = place.dir;
	}
	memmove(ret_path, path[at] ? path + at + 1 : ".", path[at] ? size - at - 1 : 2);
	return 0;
}

static void update_baseline(struct migrate *m);

/* ---- threads ----------------------------------------------------------------- */

static bool is_held_down(const struct migrate *m)
{
	return m->killed_until_ms && clock_ms() < m->killed_until_ms;
}

static bool is_idle(struct migrate *m)
{
	return m->is_paused || m->is_flipped || !m->is_settled || is_held_down(m);
}

static int settle_one(void *context, const struct intent *intent)
{
	return step_settle(context, intent);
}

static int settle(struct migrate *m)
{
	int r = journal_settle_intents(m->config.journal, settle_one, m);

	if (r == 0)
		m->is_settled = true;
	return r;
}

/* What a killed run had under way may land until the end of the hold-down: only then can
 * be seen what became of its intents. By one worker, while the others wait. */
static void settle_late(struct migrate *m)
{
	int r;

	if (is_held_down(m))
		return;
	r = settle(m);
	if (r < 0) {
		migrate_report(m, r, "settle what the run before had begun", 0, NULL);
		(void)migrate_sleep(m, clock_ms() + MIGRATE_RETRY_MS); /* tried again, or stopped */
	}
}

static void work(struct worker *worker, struct marks_task *task)
{
	struct migrate *m = worker->migrate;
	uint64_t begun = clock_ns();

	worker->losses = m->commit.losses;
	switch (task->kind) {
	case MARKS_NAME:
		batch_work(worker, task);
		break;
	case MARKS_OBJECT:
		object_work(worker, task);
		break;
	case MARKS_DATA:
		object_work_data(worker, task);
		break;
	case MARKS_SCAN:
		scan_work(worker, task);
		break;
	case MARKS_KIND_MAX:
		assert(false);
	}
	m->busy_ns += clock_ns() - begun;
	m->tasks++;
}

static void *worker_thread(void *context)
{
	struct worker *worker = context;
	struct migrate *m = worker->migrate;
	unsigned kinds = worker->scan ? 1u << MARKS_SCAN : 1u << MARKS_NAME | 1u << MARKS_OBJECT | 1u << MARKS_DATA;
	struct marks_task task;
	int r;

	while (!m->is_stopping) {
		if (worker->index == 0 && !m->is_settled)
			settle_late(m);
		if (is_idle(m)) {
			(void)migrate_sleep(m, clock_ms() + 20); /* looked at again above */
			continue;
		}
		m->active++;
		task = MARKS_TASK_NULL;
		/* Looked at again after `active` is seen: migrate_end_direction() waits for it. */
		r = is_idle(m) ? 0 : marks_next(m->config.marks, kinds, clock_ms() + WORKER_WAIT_MS, &task);
		if (r > 0 && is_idle(m))
			migrate_keep(m, &task, MIGRATE_E_AGAIN);
		else if (r > 0)
			work(worker, &task);
		else if (worker->index == 0)
			update_baseline(m);
		m->active--;
		if (r < 0) {
			log_warning_errno(r, "cannot take a task, retrying");
			(void)migrate_sleep(m, clock_ms() + MIGRATE_RETRY_MS); /* looked at above */
		}
	}
	return NULL;
}

static unsigned choose_workers(const struct migrate_config *config, const struct store *target)
{
	unsigned workers = config->workers ? config->workers : store_caps(target)->parallel_max;

	if (workers < 1)
		workers = 1;
	return workers < MIGRATE_WORKERS_MAX - 1 ? workers : MIGRATE_WORKERS_MAX - 1;
}

static int start_thread(pthread_t *thread, void *(*run)(void *), void *context)
{
	pthread_attr_t attr;
	int r;

	r = pthread_attr_init(&attr);
	if (r)
		return -r;
	r = pthread_attr_setstacksize(&attr, WORKER_STACK_BYTES);
	if (!r)
		r = pthread_create(thread, &attr, run, context);
	pthread_attr_destroy(&attr);
	return -r;
}

int migrate_start(struct migrate *m)
{
	unsigned started = 0;
	int r;

	assert(!m->is_started);
	m->killed_until_ms = m->was_killed ? clock_ms() + m->config.hold_down_ms : 0;
	r = start_thread(&m->committer, commit_thread, m);
	if (r < 0)
		return log_error_errno(r, "cannot start the committer");
	for (; started <= m->worker_count; started++) {
		r = start_thread(&m->workers[started].thread, worker_thread, &m->workers[started]);
		if (r < 0)
			break;
	}
	m->started = started;
	m->is_started = true;
	if (r < 0)
		return log_error_errno(r, "cannot start the migrator's threads");
	return 0;
}

/* A clean stop, too, leaves behind what lost connections had under way. */
static void record_suspects(struct migrate *m)
{
	struct journal *journal = m->config.journal;
	int r;

	journal_compose(journal);
	journal_put_number(journal, "suspects", is_held_down(m) || migrate_suspects_until(m) ? 1 : 0);
	/* Before the stop is recorded as a clean one. */
	r = journal_flush(journal, journal_submit(journal));
	if (r < 0)
		log_warning_errno(r, "cannot record what may still land on the target, ignoring");
}

static void stop_threads(struct migrate *m)
{
	pthread_mutex_lock(&m->sleep_lock);
	m->is_stopping = true;
	pthread_cond_broadcast(&m->sleep_ended);
	pthread_mutex_unlock(&m->sleep_lock);
	if (!m->is_started)
		return;
	marks_wake(m->config.marks);
	for (unsigned i = 0; i < m->started; i++)
		pthread_join(m->workers[i].thread, NULL);
	commit_stop(&m->commit);
	pthread_join(m->committer, NULL);
	record_suspects(m);
}

/* ---- life --------------------------------------------------------------------- */

static int open_roots(struct migrate *m)
{
	int r;

	for (enum side side = SIDE_A; side < SIDE_MAX; side++) {
		struct store *store = m->config.store[side];
		struct store_attr attr;

		store_root(store, &m->root[side]);
		r = store_getattr(store, &m->root[side], &attr);
		if (r == 0)
			r = journal_set_root(m->config.journal, side, &m->root[side], S_IFDIR, attr.ino);
		if (r != 0)
			return log_error_errno(r < 0 ? r : -EIO, "cannot look at the root of the %s",
					       side == SIDE_A ? "source" : "target");
	}
	return 0;
}

/* What the journal says is to do at a start. */
static int resume(struct migrate *m, bool is_new, bool has_gap)
{
	struct journal *journal = m->config.journal;
	struct object limbo;
	uint64_t value = 0;
	bool has_limbo;
	int r;

	r = journal_object_get(journal, JOURNAL_LIMBO_ID, &limbo);
	if (r < 0)
		return r;
	has_limbo = r == 0;
	if (has_limbo)
		m->limbo = limbo.locator[m->to];
	r = journal_number_get(journal, "suspects", &value);
	if (r < 0)
		return r;
	m->was_killed = !store_caps(m->target)->is_local && (m->config.was_killed || value != 0);
	r = m->was_killed ? 0 : settle(m);
	if (r < 0)
		return log_error_errno(r, "cannot settle what the run before had begun on the target");
	value = 0;
	r = journal_number_get(journal, "baseline_done", &value);
	if (r < 0)
		return r;
	m->is_baseline_done = value != 0;

	marks_lock(m->config.marks);
	/* What the run before held without a name has died with it, unmarked. */
	if (has_limbo)
		marks_put_scan_locked(m->config.marks, JOURNAL_LIMBO_ID, false);
	if (is_new || has_gap) {
		m->is_gap_open = m->has_gap = !is_new;
		marks_put_scan_locked(m->config.marks, JOURNAL_ROOT_ID, /* is_compare= */ !is_new);
	}
	/* Also when limbo may have been made just before it died. */
	marks_put_attr_locked(m->config.marks, JOURNAL_ROOT_ID);
	marks_set_paired_locked(m->config.marks, JOURNAL_ROOT_ID);
	return journal_flush(journal, marks_unlock(m->config.marks));
}

static int make_workers(struct migrate *m)
{
	m->worker_count = choose_workers(&m->config, m->target);
	m->workers = calloc(m->worker_count + 1, sizeof(*m->workers));
	if (!m->workers)
		return -ENOMEM;
	for (unsigned i = 0; i <= m->worker_count; i++) {
		struct worker *worker = &m->workers[i];

		worker->migrate = m;
		worker->index = i;
		if (i == m->worker_count) {
			worker->scan = scan_new();
			if (!worker->scan)
				return -ENOMEM;
			continue;
		}
		worker->batch = batch_new();
		if (!worker->batch || posix_memalign((void **)&worker->buffer, 4096, MIGRATE_COPY_BYTES))
			return -ENOMEM;
	}
	return 0;
}

static int init_sleep(struct migrate *m)
{
	pthread_condattr_t attr;
	int r;

	pthread_mutex_init(&m->sleep_lock, NULL);
	r = pthread_condattr_init(&attr);
	if (r)
		return -r;
	r = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	if (!r)
		r = pthread_cond_init(&m->sleep_ended, &attr);
	pthread_condattr_destroy(&attr);
	return -r;
}

int migrate_open(const struct migrate_config *config, bool is_new, bool has_gap, struct migrate **ret_migrate)
{
	struct migrate *m = calloc(1, sizeof(*m));
	int r;

	if (!m)
		return log_error_errno(-ENOMEM, "cannot start the migrator");
	m->config = *config;
	m->from = config->active;
	m->to = config->active == SIDE_A ? SIDE_B : SIDE_A;
	m->source = config->store[m->from];
	m->target = config->store[m->to];
	pthread_mutex_init(&m->limbo_lock, NULL);
	pthread_mutex_init(&m->status_lock, NULL);
	placelock_init(&m->placelock);
	compared_init(&m->compared);
	r = init_sleep(m);
	if (r == 0)
		r = commit_init(&m->commit);
	if (r < 0) {
		/* The two are what migrate_close() could not end half-built. */
		free(m);
		return log_error_errno(r, "cannot start the migrator");
	}
	r = make_workers(m);
	if (r < 0)
		(void)log_error_errno(r, "cannot start the migrator");
	if (r == 0)
		r = open_roots(m);
	if (r == 0)
		r = resume(m, is_new, has_gap);
	if (r < 0) {
		m = migrate_close(m);
		return r;
	}
	*ret_migrate = m;
	return 0;
}

struct migrate *migrate_close(struct migrate *m)
{
	if (!m)
		return NULL;
	stop_threads(m);
	for (unsigned i = 0; m->workers && i <= m->worker_count; i++) {
		free(m->workers[i].buffer);
		free(m->workers[i].scan);
		free(m->workers[i].batch);
	}
	free(m->workers);
	commit_done(&m->commit);
	placelock_done(&m->placelock);
	compared_done(&m->compared);
	pthread_cond_destroy(&m->sleep_ended);
	pthread_mutex_destroy(&m->sleep_lock);
	pthread_mutex_destroy(&m->status_lock);
	pthread_mutex_destroy(&m->limbo_lock);
	free(m);
	return NULL;
}

/* ---- control and status --------------------------------------------------------- */

void migrate_set_paused(struct migrate *m, bool is_paused)
{
	m->is_paused = is_paused;
}

bool migrate_is_paused(const struct migrate *m)
{
	return m->is_paused;
}

void migrate_set_draining(struct migrate *m, bool is_draining)
{
	m->is_draining = is_draining;
	marks_set_draining(m->config.marks, is_draining);
	commit_wake(&m->commit);
}

void migrate_end_direction(struct migrate *m)
{
	m->is_flipped = true;
	while (m->active > 0) {
		/* In each round: one that looked just before may come to its wait only now. */
		marks_wake(m->config.marks);
		(void)migrate_sleep(m, clock_ms() + 1); /* a stop ends the sleep, not the wait */
	}
}

void migrate_set_copying(struct migrate *m, bool is_copying)
{
	pthread_mutex_lock(&m->status_lock);
	if (is_copying && m->copiers++ == 0)
		m->copying_since_ns = clock_ns();
	if (!is_copying && --m->copiers == 0)
		m->copying_ns += clock_ns() - m->copying_since_ns;
	pthread_mutex_unlock(&m->status_lock);
}

void migrate_get_rates(struct migrate *m, struct migrate_rates *ret_rates)
{
	/* A remote target bears as many requests as there are workers, this machine does not. */
	unsigned workers = m->worker_count < 4 || !store_caps(m->target)->is_local ? m->worker_count : 4;
	uint64_t tasks = m->tasks, busy = m->busy_ns, copy = m->copy_ns, bytes = m->copied_bytes;
	uint64_t copying;

	pthread_mutex_lock(&m->status_lock);
	copying = m->copying_ns + (m->copiers > 0 ? clock_ns() - m->copying_since_ns : 0);
	pthread_mutex_unlock(&m->status_lock);

	/* Before anything is known: what a slow target does. */
	*ret_rates = (struct migrate_rates){ .task_ms = 0.5, .bytes_per_ms = 50e3, .workers = workers };
	if (tasks > 100)
		ret_rates->task_ms = (double)(busy - (copy < busy ? copy : busy)) / 1e6 / (double)tasks;
	if (bytes > 1 << 20 && copying > 0)
		ret_rates->bytes_per_ms = (double)bytes / ((double)copying / 1e6);
	ret_rates->commit_ms = m->commit.last_ms;
}

static void tell_baseline_done(struct migrate *m)
{
	journal_compose(m->config.journal);
	journal_put_number(m->config.journal, "baseline_done", 1);
	(void)journal_submit(m->config.journal); /* goes with the next flush; else it is found again */
	log_info("the baseline copy is done");
}

/* The baseline is done when there is no mark at all. Churn always leaves some: then at a moment
 * with no scan and no name that only a scan has marked, when since the first such moment as many
 * objects have been cleared as objects and names were marked in it. Whether it has become so now. */
static bool update_baseline_locked(struct migrate *m, const struct marks_stats *stats)
{
	if (stats->compares == 0)
		m->is_gap_open = false;
	if (m->is_baseline_done)
		return false;
	if (stats->is_spilled)
		return false; /* how much is an estimate */
	if (stats->names + stats->objects + stats->scans == 0) {
		m->is_baseline_done = true;
		return true;
	}
	if (stats->scans > 0 || stats->listed_names > 0)
		return false;
	if (!m->is_listed) {
		m->is_listed = true;
		/* Each name may bring an object. */
		m->listed_objects = stats->cleared_objects + stats->objects + stats->names;
		return false;
	}
	m->is_baseline_done = stats->cleared_objects >= m->listed_objects;
	return m->is_baseline_done;
}

static void update_baseline(struct migrate *m)
{
	struct marks_stats stats;
	bool is_done_now;

	marks_get_stats(m->config.marks, &stats);
	pthread_mutex_lock(&m->status_lock);
	is_done_now = update_baseline_locked(m, &stats);
	pthread_mutex_unlock(&m->status_lock);
	if (is_done_now)
		tell_baseline_done(m); /* the journal may write: not under a leaf */
}

void migrate_get_status(struct migrate *m, struct migrate_status *ret_status)
{
	uint64_t error_ms = m->last_error_ms;

	update_baseline(m);
	*ret_status = (struct migrate_status){
		.is_baseline_done = m->is_baseline_done,
		.is_gap_open = m->is_gap_open,
		.is_paused = m->is_paused,
		.is_degraded = error_ms && clock_ms() - error_ms < DEGRADED_MS && !m->is_flipped,
		.objects_seen = m->objects_seen,
		.objects_done = m->objects_done,
		.bytes_seen = m->bytes_seen,
		.bytes_done = m->bytes_done,
		.copied_bytes = m->copied_bytes,
		.copied_objects = m->copied_objects,
		.error_count = m->error_count,
		.skipped_xattrs = m->skipped_xattrs,
		.skipped_acls = m->skipped_acls,
		.suspects_until_ms = migrate_suspects_until(m),
		.extra_names = m->extra_names,
	};
	pthread_mutex_lock(&m->status_lock);
	memcpy(ret_status->error_last, m->error_last, sizeof(ret_status->error_last));
	pthread_mutex_unlock(&m->status_lock);
}
