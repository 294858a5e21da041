/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/requests.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/explain.h"
#include "tools/service.h"
#include "tools/status.h"
#include "tools/wire.h"
#include "util/cleanup.h"
#include "util/log.h"

enum { FREEZE_MS_DEFAULT = 2000, FREEZE_MS_MAX = 3600 * 1000 };

static int run_status(void *context, json_t *request UNUSED, json_t **ret_reply)
{
	*ret_reply = status_json(context);
	return 0;
}

static int set_paused(struct service *service, bool is_paused, json_t **ret_reply)
{
	if (service_is_failed_over(service)) {
		*ret_reply =
			wire_error("'%s' was failed over: nothing is copied that could be paused",
				   service->plan->name);
		return 0;
	}
	if (migrate_is_paused(service->migrate) != is_paused)
		log_info("'%s' is %s", service->plan->name, is_paused ? "paused" : "resumed");
	migrate_set_paused(service->migrate, is_paused);
	*ret_reply = json_pack("{s:b, s:s}", "ok", 1, "name", service->plan->name);
	return 0;
}

static int run_pause(void *context, json_t *request UNUSED, json_t **ret_reply)
{
	return set_paused(context, true, ret_reply);
}

static int run_resume(void *context, json_t *request UNUSED, json_t **ret_reply)
{
	return set_paused(context, false, ret_reply);
}

static int run_failover(void *context, json_t *request, json_t **ret_reply)
{
	struct service *service = context;
	json_t *bound = json_object_get(request, "max_freeze_ms");
	json_int_t freeze_ms_max = bound ? json_integer_value(bound) : FREEZE_MS_DEFAULT;
	struct cutover_result result = { 0 };
	int r;

	if (freeze_ms_max <= 0 || freeze_ms_max > FREEZE_MS_MAX) {
		*ret_reply = wire_error("a freeze takes from 1 ms to an hour");
		return 0;
	}
	r = service_failover(service, (uint32_t)freeze_ms_max, &result);
	if (r == 0 || r == -EALREADY)
		*ret_reply = json_pack("{s:b, s:s, s:b, s:I, s:o, s:o}", "ok", 1, "name",
				       service->plan->name, "was_done_before", r == -EALREADY,
				       "freeze_ms", (json_int_t)result.freeze_ms, "mount",
				       wire_text(service->plan->mount), "target",
				       wire_text(service->plan->target));
	else
		*ret_reply = wire_error("'%s' was not failed over, and goes on from the source: %s",
					service->plan->name,
					result.reason[0] ? result.reason : strerror(-r));
	return 0;
}

static int run_explain(void *context, json_t *request, json_t **ret_reply)
{
	const char *escaped = json_string_value(json_object_get(request, "path"));
	_cleanup_free_ char *path = escaped ? text_unescape(escaped) : NULL;

	*ret_reply = path && path[0] ? explain_json(context, path) : wire_error("not a path");
	return 0;
}

/* The client is answered when all has ended (control_close()). */
static int run_stop(void *context, json_t *request UNUSED, json_t **ret_reply)
{
	struct service *service = context;
	const char *mount = service->plan->mount;
	_cleanup_free_ char *holders = NULL;
	int r;

	r = service_unmount(service, &holders);
	if (r == 0)
		return CONTROL_E_LATER;
	if (r == -EBUSY && holders && holders[0])
		*ret_reply = wire_error("'%s' is in use by %s: end them, then stop again", mount,
					holders);
	else if (r == -EBUSY)
		*ret_reply = wire_error(
			"'%s' is in use: see 'findmnt -R %s' for mounts on it, and other mount "
			"namespaces",
			mount, mount);
	else
		*ret_reply = wire_error("cannot unmount '%s': %s", mount, strerror(-r));
	return 0;
}

const struct control_command requests_commands[] = {
	{ "status", false, run_status },
	{ "pause", false, run_pause },
	{ "resume", false, run_resume },
	{ "failover", true, run_failover },
	{ "explain", true, run_explain },
	{ "stop", true, run_stop },
	{ 0 },
};
