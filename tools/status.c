/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/status.h"

#include <unistd.h>

#include "tools/wire.h"
#include "util/clock.h"
#include "version.h"

/* Converged: a failover would be as quick as this, or what is marked waits no longer
 * than marks cool, so that the rest is done as soon as nothing cools. */
enum {
	CONVERGED_FREEZE_MS_MAX = 1000,
	CONVERGED_WAIT_MS_MAX = SERVICE_COOL_MS_MAX + 1000,
};

/* Everything that one answer is made of, read once. */
struct view {
	struct phase_record record;
	enum cutover_step step;
	struct marks_stats marks;
	struct migrate_status migrate;
	struct overlay_stats overlay;
	struct rates rates;
	uint32_t predicted_freeze_ms, last_freeze_ms;
	bool has_frozen, is_lost;
};

static void view_get(struct service *service, struct view *ret_view)
{
	cutover_get_record(service->cutover, &ret_view->record);
	ret_view->step = cutover_step(service->cutover);
	ret_view->is_lost = marks_is_lost(service->marks) || journal_is_failed(service->journal);
	marks_get_stats(service->marks, &ret_view->marks);
	migrate_get_status(service->migrate, &ret_view->migrate);
	overlay_get_stats(service->overlay, &ret_view->overlay);
	ret_view->predicted_freeze_ms = cutover_predict_ms(service->cutover);
	pthread_mutex_lock(&service->lock);
	ret_view->rates = service->rates;
	ret_view->has_frozen = service->has_frozen;
	ret_view->last_freeze_ms = service->last_freeze_ms;
	pthread_mutex_unlock(&service->lock);
	if (!ret_view->has_frozen && ret_view->record.active == SIDE_B) {
		ret_view->has_frozen = true;
		ret_view->last_freeze_ms = ret_view->record.last_freeze_ms;
	}
}

static const char *phase_name(const struct view *view)
{
	static const char *const names[] = { "baseline", "converge", "guard", "finished" };

	static_assert(ARRAY_SIZE(names) == PHASE_MAX, "a name for each phase");
	if (view->record.active == SIDE_A) {
		if (view->step == CUTOVER_FREEZE)
			return "freeze";
		if (view->step == CUTOVER_DRAIN)
			return "drain";
		if (view->migrate.is_degraded)
			return "degraded";
	}
	return names[view->record.phase];
}

static bool is_backlog_empty(const struct view *view)
{
	return view->marks.objects + view->marks.names + view->marks.scans == 0;
}

static struct rates_backlog backlog_of(const struct view *view)
{
	return (struct rates_backlog){
		.bytes = view->marks.bytes,
		.objects = view->marks.objects + view->marks.names + view->marks.scans,
	};
}

static bool is_converged(const struct view *view)
{
	const struct rates_backlog backlog = backlog_of(view);

	if (view->record.active != SIDE_A || !view->migrate.is_baseline_done ||
	    view->migrate.is_gap_open || view->migrate.is_degraded || view->migrate.is_paused ||
	    view->is_lost)
		return false;
	/* A failover asks the record, which is written a moment after the comparison's end. */
	if (view->record.has_gap)
		return false;
	return is_backlog_empty(view) || view->predicted_freeze_ms <= CONVERGED_FREEZE_MS_MAX ||
	       rates_wait_s(&view->rates, &backlog) * 1000 <= CONVERGED_WAIT_MS_MAX;
}

static const char *target_state(const struct service *service, const struct view *view)
{
	if (view->migrate.is_degraded)
		return "failing";
	if (!service->is_migrating)
		return "not copied to";
	if (view->migrate.suspects_until_ms > clock_ms())
		return "settling"; /* late writes of a lost connection are waited for */
	return "ok";
}

/* The time until a failover would be quick. Its end is not known while directories are
 * still to be listed, and nothing of it when the backlog does not shrink: null. */
static json_t *eta_json(const struct view *view)
{
	const struct rates_backlog backlog = backlog_of(view);
	double low_s = 0, high_s = 0;

	if (view->record.active != SIDE_A || view->migrate.is_paused)
		return json_null();
	if (!is_converged(view) && !rates_eta(&view->rates, &backlog, &low_s, &high_s))
		return json_null();
	if (view->marks.scans > 0)
		return json_pack("{s:f, s:n}", "low", low_s, "high");
	return json_pack("{s:f, s:f}", "low", low_s, "high", high_s);
}

static json_t *backlog_json(const struct view *view)
{
	return json_pack("{s:I, s:I, s:I, s:I}", "objects", (json_int_t)view->marks.objects,
			 "names", (json_int_t)view->marks.names, "bytes",
			 (json_int_t)view->marks.bytes, "scans", (json_int_t)view->marks.scans);
}

static json_t *baseline_json(const struct view *view)
{
	const struct migrate_status *migrate = &view->migrate;

	return json_pack("{s:I, s:I, s:I, s:I, s:b}", "objects_seen",
			 (json_int_t)migrate->objects_seen, "objects_done",
			 (json_int_t)migrate->objects_done, "bytes_seen",
			 (json_int_t)migrate->bytes_seen, "bytes_done",
			 (json_int_t)migrate->bytes_done, "done", migrate->is_baseline_done);
}

static json_t *rates_json(const struct view *view)
{
	struct rates_speed speed = rates_get(&view->rates, RATES_WINDOW_S);

	return json_pack("{s:I, s:I, s:f}", "dirty_bytes_s", (json_int_t)speed.dirty_bytes_s,
			 "drain_bytes_s", (json_int_t)speed.drain_bytes_s, "objects_s",
			 speed.objects_s);
}

static json_t *served_json(const struct view *view)
{
	const struct overlay_stats *overlay = &view->overlay;

	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "requests",
			 (json_int_t)overlay->requests, "changes", (json_int_t)overlay->changes,
			 "read_bytes", (json_int_t)overlay->read_bytes, "written_bytes",
			 (json_int_t)overlay->written_bytes, "nodes", (json_int_t)overlay->nodes,
			 "parked", (json_int_t)overlay->parked);
}

static json_t *errors_json(const struct view *view)
{
	const struct migrate_status *migrate = &view->migrate;

	return json_pack("{s:I, s:o}", "count", (json_int_t)migrate->error_count, "last",
			 migrate->error_last[0] ? wire_text(migrate->error_last) : json_null());
}

static json_t *not_carried_json(const struct service *service, const struct view *view)
{
	const struct store_caps *caps = store_caps(service->store[SIDE_B]);

	return json_pack("{s:I, s:I, s:b}", "xattrs", (json_int_t)view->migrate.skipped_xattrs,
			 "acls", (json_int_t)view->migrate.skipped_acls, "symlink_times",
			 !caps->has_symlink_times);
}

static json_t *freeze_json(bool is_known, uint32_t ms)
{
	return is_known ? json_integer(ms) : json_null();
}

static json_t *who_json(struct service *service)
{
	const struct plan *plan = service->plan;

	return json_pack("{s:b, s:s, s:o, s:o, s:o, s:o, s:i, s:s, s:I}", "ok", 1, "name",
			 plan->name, "source", wire_text(plan->source), "target",
			 wire_text(plan->target), "mount", wire_text(plan->mount), "state",
			 wire_text(plan->state.path), "pid", (int)getpid(), "version",
			 FERRYFS_VERSION, "uptime_ms",
			 (json_int_t)(clock_ms() - service->started_ms));
}

static json_t *state_json(const struct service *service, const struct view *view)
{
	bool is_before = view->record.active == SIDE_A;

	return json_pack("{s:s, s:s, s:b, s:b, s:b, s:b, s:s}", "phase", phase_name(view), "active",
			 is_before ? "source" : "target", "converged", is_converged(view), "paused",
			 view->migrate.is_paused, "gap_open", view->migrate.is_gap_open,
			 "marks_lost", view->is_lost, "target_state", target_state(service, view));
}

static json_t *progress_json(const struct view *view)
{
	bool is_predictable = view->record.active == SIDE_A && view->migrate.is_baseline_done;

	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "backlog", backlog_json(view),
			 "baseline", baseline_json(view), "rates", rates_json(view), "eta_s",
			 eta_json(view), "predicted_freeze_ms",
			 freeze_json(is_predictable, view->predicted_freeze_ms), "last_freeze_ms",
			 freeze_json(view->has_frozen, view->last_freeze_ms));
}

static json_t *rest_json(const struct service *service, const struct view *view)
{
	return json_pack("{s:{s:I, s:I}, s:o, s:o, s:I, s:o}", "seq", "latest",
			 (json_int_t)journal_flushed(service->journal), "synced",
			 (json_int_t)journal_synced(service->journal), "errors", errors_json(view),
			 "not_carried", not_carried_json(service, view), "extra_names",
			 (json_int_t)view->migrate.extra_names, "served", served_json(view));
}

/* Adds the members of @part (taken) to @object. */
static bool add_members(json_t *object, json_t *part)
{
	_cleanup_json_ json_t *owned = part;

	return object && owned && json_object_update(object, owned) == 0;
}

json_t *status_json(struct service *service)
{
	_cleanup_json_ json_t *status = who_json(service);
	struct view view = { 0 };

	view_get(service, &view);
	if (!add_members(status, state_json(service, &view)) ||
	    !add_members(status, progress_json(&view)) ||
	    !add_members(status, rest_json(service, &view)))
		return NULL;
	return TAKE_PTR(status);
}
