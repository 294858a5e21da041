/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/service.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>

#include "tools/about.h"
#include "tools/holders.h"
#include "tools/process.h"
#include "tools/wire.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/log.h"

enum {
	/* Marks in memory. What is beyond them waits in the journal, so they bound memory
	 * (some 100 MiB at worst) and nothing else. */
	MARKS_OBJECTS_MAX = 100000,
	MARKS_NAMES_MAX = 100000,
	MARKS_SCANS_MAX = 50000,
	MARKS_GROUPS_MAX = 4096, /* per object: 4 GiB of scattered writes, then all of it */

	MARKS_COOL_MS = 1000, /* a hot block is copied once in a while, not once a write */

	PARKED_BYTES_MAX = 64 * 1024 * 1024, /* of held writes: beyond it a freeze is given up */
};

/* ---- opening ------------------------------------------------------------- */

static int open_target(struct service *service)
{
	const struct plan *plan = service->plan;

	if (plan->is_url)
		return store_nfs_open(plan->target, service->options->connections,
				      /* reports_unknown= */ true, &service->store[SIDE_B]);
	return store_posix_open(plan->target, &service->store[SIDE_B]);
}

/* A target with something in it could be anything, also somebody's only copy. */
static int check_target_empty(struct service *service)
{
	struct store *target = service->store[SIDE_B];
	struct store_dir *dir = NULL;
	_cleanup_free_ char *name = NULL;
	struct store_entry entry;
	struct locator root;
	int r;

	store_root(target, &root);
	r = store_dir_open(target, &root, &dir);
	if (r < 0)
		return log_error_errno(r, "cannot list TARGET '%s'", service->plan->target);
	do
		r = store_dir_next(dir, &entry);
	while (r == 0 && strcmp(entry.name, "lost+found") == 0);
	if (r == 0)
		name = text_escape(entry.name);
	dir = store_dir_close(dir);
	if (r < 0)
		return log_error_errno(r, "cannot list TARGET '%s'", service->plan->target);
	if (r == STORE_E_END)
		return 0;
	log_error("TARGET '%s' is not empty, it holds '%s': give an empty one",
		  service->plan->target, name ? name : "");
	return -ENOTEMPTY;
}

static int open_stores(struct service *service)
{
	int r;

	r = store_posix_open(service->plan->source, &service->store[SIDE_A]);
	if (r < 0)
		return r; /* logged */
	r = open_target(service);
	if (r < 0)
		return r; /* logged */
	if (!service->plan->state.is_new)
		return 0;
	/* Of a pair that is not known yet all is found out before anything is written. */
	r = check_target_empty(service);
	if (r < 0)
		return r;
	return store_probe_target(service->store[SIDE_B]);
}

/* Writes down that the mount is going to serve. Until a start can prove that it missed
 * nothing, each but the first has a gap: the bare directory could be changed. */
static int begin_run(struct service *service, struct phase_record *record)
{
	int r;

	if (!service->is_new && record->active == SIDE_A) {
		r = store_probe_target(service->store[SIDE_B]);
		if (r < 0)
			return r; /* logged */
	}
	service->was_killed = record->is_running;
	record->is_running = true;
	record->has_gap |= !service->is_new;
	if (service->is_new) /* perhaps after the loss of a journal: all begins again */
		record->phase = PHASE_BASELINE;
	r = phase_file_write(service->phase_file, record);
	if (r < 0)
		return log_error_errno(r, "cannot write the phase record in '%s'",
				       service->plan->state.path);
	return 0;
}

/* Nobody but the phase record knows which side counts. */
static int without_phase(const struct plan *plan, int r)
{
	if (r == -ENOENT || r == -EBADMSG)
		log_error(
			"the phase record in '%s' is %s, which says whether SOURCE '%s' or TARGET '%s' is "
			"up to date: put it back, or look which one is, and use that directly; to begin "
			"again from SOURCE, empty TARGET and remove '%s'",
			plan->state.path, r == -ENOENT ? "gone" : "damaged", plan->source,
			plan->target, plan->state.path);
	else
		log_error_errno(r, "cannot read the phase record in '%s'", plan->state.path);
	return r;
}

static int open_journal(struct service *service, struct phase_record *ret_record)
{
	const struct plan *plan = service->plan;
	const struct journal_pair pair = {
		.source = plan->source,
		.target = plan->target,
		.source_identity = store_identity(service->store[SIDE_A]),
		.target_identity = store_identity(service->store[SIDE_B]),
	};
	const struct phase_record initial = { .active = SIDE_A, .phase = PHASE_BASELINE };
	int r;

	r = journal_open(plan->state.path, &pair, &service->is_new, &service->journal);
	if (r < 0)
		return r; /* logged */
	/* Never made anew: the source would serve, and be copied over what was written since. */
	if (!service->is_new && !plan->state.has_phase)
		return without_phase(plan, -ENOENT);
	r = phase_file_open(plan->state.path, &initial, ret_record, &service->phase_file);
	if (r < 0)
		return without_phase(plan, r);
	if (service->is_new && ret_record->active != SIDE_A) {
		log_error(
			"the journal in '%s' is lost, and TARGET '%s' is the side that is up to date: use "
			"it directly",
			plan->state.path, plan->target);
		return -EIO;
	}
	return begin_run(service, ret_record);
}

static int open_marks(struct service *service)
{
	const struct marks_limits limits = {
		.objects_max = MARKS_OBJECTS_MAX,
		.names_max = MARKS_NAMES_MAX,
		.scans_max = MARKS_SCANS_MAX,
		.groups_per_object_max = MARKS_GROUPS_MAX,
		.cool_ms = MARKS_COOL_MS,
		.cool_ms_max = SERVICE_COOL_MS_MAX,
	};
	int r;

	r = marks_open(service->journal, &limits, &service->marks);
	if (r < 0)
		return log_error_errno(r, "cannot load the marks from '%s'",
				       service->plan->state.path);
	service->orphans = orphans_new();
	if (!service->orphans)
		return log_error_errno(ENOMEM, "cannot start");
	return 0;
}

static int open_migrate(struct service *service, const struct phase_record *record)
{
	migrate_limbo_name(service->journal, service->limbo_name);
	service->migrate_config = (struct migrate_config){
		.store = { service->store[SIDE_A], service->store[SIDE_B] },
		.journal = service->journal,
		.marks = service->marks,
		.orphans = service->orphans,
		.active = record->active,
		.limbo_name = service->limbo_name,
		.workers = service->options->workers,
		.hold_down_ms = service->options->hold_down_s * 1000,
		.was_killed = service->was_killed,
	};
	return migrate_open(&service->migrate_config, service->is_new, record->has_gap,
			    &service->migrate);
}

static int open_overlay(struct service *service, const struct phase_record *record)
{
	const struct overlay_config config = {
		.mountpoint = service->plan->mount,
		.fsname = service->plan->name,
		.store = { service->store[SIDE_A], service->store[SIDE_B] },
		.journal = service->journal,
		.marks = service->marks,
		.orphans = service->orphans,
		.active = record->active,
		.limbo_name = service->limbo_name,
		.threads = service->options->threads,
		.parked_bytes_max = PARKED_BYTES_MAX,
		.opens = service->options->opens,
		.is_writeback = service->options->is_writeback,
		.is_debug = service->options->is_debug,
	};

	return overlay_open(&config, &service->overlay);
}

static int gate_freeze(void *context, uint64_t deadline_ms)
{
	return overlay_freeze(context, deadline_ms);
}

static bool gate_is_overfull(void *context)
{
	return overlay_is_overfull(context);
}

static void gate_thaw(void *context)
{
	overlay_thaw(context);
}

static int gate_hold_reads(void *context, uint64_t deadline_ms)
{
	return overlay_hold_reads(context, deadline_ms);
}

static void gate_switch(void *context, enum side side)
{
	overlay_switch(context, side);
}

static int open_cutover(struct service *service, const struct phase_record *record)
{
	const struct cutover_gate gate = {
		.context = service->overlay,
		.freeze = gate_freeze,
		.is_overfull = gate_is_overfull,
		.thaw = gate_thaw,
		.hold_reads = gate_hold_reads,
		.switch_side = gate_switch,
	};
	int r;

	r = cutover_open(&service->migrate_config, service->migrate, service->phase_file, record,
			 &gate, &service->cutover);
	if (r < 0)
		return log_error_errno(r, "cannot prepare for a failover");
	return 0;
}

/* For people and `ferry list`; nothing is lost without it. */
static void write_about(const struct service *service)
{
	const struct plan *plan = service->plan;
	_cleanup_json_ json_t *about =
		json_pack("{s:s, s:o, s:o, s:o}", "name", plan->name, "source",
			  wire_text(plan->source), "target", wire_text(plan->target), "mount",
			  wire_text(plan->mount));
	int r = about ? about_write(plan->state.path, about) : -ENOMEM;

	if (r < 0)
		(void)log_warning_errno(r, "cannot write '%s/%s', ignoring", plan->state.path,
					ABOUT_FILE);
}

static int start(struct service *service, const struct phase_record *record)
{
	int r;

	if (record->active == SIDE_B) {
		log_info(
			"'%s' was failed over: serving TARGET '%s'; what changes is marked for a way back, "
			"which is not in this version",
			service->plan->name, service->plan->target);
		return 0;
	}
	r = migrate_start(service->migrate);
	if (r < 0)
		return log_error_errno(r, "cannot start the migrator");
	service->is_migrating = true;
	return 0;
}

static int open_parts(struct service *service)
{
	struct phase_record record;
	int r;

	r = open_stores(service);
	if (r < 0)
		return r;
	r = open_journal(service, &record);
	if (r < 0)
		return r;
	r = open_marks(service);
	if (r < 0)
		return r;
	r = open_migrate(service, &record);
	if (r < 0)
		return r; /* logged */
	write_about(service);
	r = open_overlay(service, &record);
	if (r < 0)
		return r; /* logged */
	r = open_cutover(service, &record);
	if (r < 0)
		return r;
	return start(service, &record);
}

void service_force_unmount(struct service *service)
{
	const char *mount = service->plan->mount;

	if (service->overlay && overlay_unmount(service->overlay) < 0 &&
	    umount2(mount, MNT_FORCE | MNT_DETACH | UMOUNT_NOFOLLOW) < 0)
		(void)log_error_errno(errno, "cannot unmount '%s', do 'umount -l %s'", mount,
				      mount);
}

int service_open(const struct options *options, const struct plan *plan,
		 struct service **ret_service)
{
	struct service *service = calloc(1, sizeof(*service));
	bool is_discarding;
	int r;

	if (!service)
		return log_error_errno(ENOMEM, "cannot start");
	service->options = options;
	service->plan = plan;
	service->started_ms = clock_ms();
	pthread_mutex_init(&service->unmount_lock, NULL);
	pthread_mutex_init(&service->lock, NULL);

	r = open_parts(service);
	if (r == 0) {
		*ret_service = service;
		return 0;
	}
	is_discarding =
		service->journal && service->is_new && plan->state.is_new && !plan->state.has_phase;
	service_force_unmount(service);
	service = service_close(service);
	if (is_discarding)
		state_discard(&plan->state);
	return r;
}

/* ---- life ---------------------------------------------------------------- */

int service_unmount(struct service *service, char **ret_holders)
{
	int r;

	pthread_mutex_lock(&service->unmount_lock);
	r = overlay_is_ended(service->overlay) ? 0 : overlay_unmount(service->overlay);
	pthread_mutex_unlock(&service->unmount_lock);
	if (r == -EBUSY)
		*ret_holders = holders_of(service->plan->mount);
	return r;
}

int service_failover(struct service *service, uint32_t freeze_ms_max,
		     struct cutover_result *ret_result)
{
	struct cutover_result result = { 0 };
	int r;

	r = cutover_failover(service->cutover, freeze_ms_max, &result);
	pthread_mutex_lock(&service->lock);
	if (r == 0 || result.freeze_ms > 0) {
		service->has_frozen = true;
		service->last_freeze_ms = result.freeze_ms;
	}
	pthread_mutex_unlock(&service->lock);
	*ret_result = result;
	return r;
}

void service_tick(struct service *service)
{
	struct migrate_status migrate;
	struct marks_stats marks;
	struct rates_sample sample;
	int r;

	r = cutover_update(service->cutover);
	if (r < 0 && !service->has_update_failed)
		(void)log_warning_errno(r, "cannot record the phase in '%s', retrying",
					service->plan->state.path);
	service->has_update_failed = r < 0; /* said once, not every second */
	overlay_tidy(service->overlay);
	marks_get_stats(service->marks, &marks);
	migrate_get_status(service->migrate, &migrate);
	sample = (struct rates_sample){
		.at_ms = clock_ms(),
		.dirtied_bytes = marks.dirtied_bytes,
		.found_bytes = migrate.bytes_seen,
		.drained_bytes = marks.cleared_bytes,
		.done_objects = marks.cleared_objects + marks.cleared_names,
	};
	pthread_mutex_lock(&service->lock);
	rates_add(&service->rates, &sample);
	pthread_mutex_unlock(&service->lock);
}

bool service_is_failed_over(struct service *service)
{
	struct phase_record record;

	cutover_get_record(service->cutover, &record);
	return record.active == SIDE_B;
}

/* ---- closing ------------------------------------------------------------- */

struct service *service_close(struct service *service)
{
	int r;

	if (!service)
		return NULL;
	service->overlay = overlay_close(service->overlay);
	service->migrate = migrate_close(service->migrate);
	service->marks = marks_close(service->marks);
	if (service->journal) {
		r = journal_sync(service->journal);
		if (r < 0)
			(void)log_warning_errno(r, "cannot sync the journal, ignoring");
	}
	if (service->cutover) {
		/* Only now is the stop clean: until the migrator had ended, a kill would have left
		 * requests to the target under way, which the next start must wait for. */
		r = cutover_record_stop(service->cutover);
		if (r < 0)
			(void)log_warning_errno(r, "cannot record the stop, ignoring");
	}
	service->cutover = cutover_close(service->cutover);
	service->phase_file = phase_file_close(service->phase_file);
	service->journal = journal_close(service->journal);
	service->orphans = orphans_free(service->orphans);
	service->store[SIDE_B] = store_close(service->store[SIDE_B]);
	service->store[SIDE_A] = store_close(service->store[SIDE_A]);
	pthread_mutex_destroy(&service->lock);
	pthread_mutex_destroy(&service->unmount_lock);
	free(service);
	return NULL;
}
