/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ferryfs: the daemon. The main thread starts everything, then waits for the three
 * things that concern the whole: signals, the end of the mount, and the seconds.
 *
 * It stops when the mount has ended, whoever ended it: `ferry stop`, a signal, or a
 * umount(8). An unmount that fails because the mount is in use changes nothing.
 */

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "tools/control.h"
#include "tools/options.h"
#include "tools/plan.h"
#include "tools/process.h"
#include "tools/requests.h"
#include "tools/service.h"
#include "tools/wire.h"
#include "util/cleanup.h"
#include "util/log.h"

enum { EXIT_USAGE = 2 };

struct daemon {
	const struct options *options;
	struct plan plan;
	int signal_fd, timer_fd, ready_fd;
	struct control *control;
	struct service *service;
	bool is_stop_wanted; /* by a signal */
};

/* Unmounts for a signal. When it cannot be done now (a failover is under way) the next
 * second's tick tries again; when somebody uses the mount, that was it. */
static void stop(struct daemon *daemon)
{
	_cleanup_free_ char *holders = NULL;
	int r;

	if (control_is_busy(daemon->control))
		return;
	daemon->is_stop_wanted = false;
	r = service_unmount(daemon->service, &holders);
	if (r == -EBUSY)
		log_warning("asked to end, but '%s' is in use by %s: going on", daemon->plan.mount,
			    holders && holders[0] ? holders : "somebody");
	else if (r < 0)
		(void)log_warning_errno(r, "asked to end, but cannot unmount '%s', going on",
					daemon->plan.mount);
}

static void take_signals(struct daemon *daemon)
{
	struct signalfd_siginfo info;

	while (read(daemon->signal_fd, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGHUP) {
			if (daemon->plan.log[0])
				process_log_to(daemon->plan.log);
			continue;
		}
		log_info("asked to end by signal %u from process %u", info.ssi_signo, info.ssi_pid);
		daemon->is_stop_wanted = true;
	}
}

static int start_timer(struct daemon *daemon)
{
	const struct itimerspec second = { .it_interval.tv_sec = 1, .it_value.tv_sec = 1 };

	daemon->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (daemon->timer_fd < 0 || timerfd_settime(daemon->timer_fd, 0, &second, NULL) < 0)
		return log_error_errno(errno, "cannot make a timer");
	return 0;
}

/* Serves until the mount has ended. */
static void serve(struct daemon *daemon)
{
	struct overlay *overlay = daemon->service->overlay;

	while (!overlay_is_ended(overlay)) {
		struct pollfd fds[] = {
			{ .fd = daemon->signal_fd, .events = POLLIN },
			{ .fd = daemon->timer_fd, .events = POLLIN },
			{ .fd = overlay_ended_fd(overlay), .events = POLLIN },
		};
		uint64_t seconds;

		if (poll(fds, ARRAY_SIZE(fds), -1) < 0)
			continue; /* interrupted */
		take_signals(daemon);
		if (read(daemon->timer_fd, &seconds, sizeof(seconds)) > 0)
			service_tick(daemon->service);
		if (daemon->is_stop_wanted)
			stop(daemon);
	}
	log_info("the mount at '%s' has ended", daemon->plan.mount);
}

static int start(struct daemon *daemon)
{
	int r;

	r = process_prepare(&daemon->signal_fd);
	if (r < 0)
		return r;
	r = start_timer(daemon);
	if (r < 0)
		return r;
	/* Taken early: a second start with this name must fail before it writes. */
	r = control_open(daemon->plan.name, &daemon->control);
	if (r < 0)
		return r;
	r = service_open(daemon->options, &daemon->plan, &daemon->service);
	if (r < 0)
		return r;
	if (daemon->plan.log[0])
		process_log_to(daemon->plan.log);
	service_tick(daemon->service);
	r = control_start(daemon->control, requests_commands, daemon->service);
	if (r < 0)
		return r;
	log_info("'%s' serves '%s', state in '%s'", daemon->plan.name, daemon->plan.mount,
		 daemon->plan.state.path);
	if (daemon->ready_fd < 0)
		return 0;
	r = process_ready(daemon->ready_fd);
	daemon->is_stop_wanted = r == -EPIPE; /* whoever started us changed their mind */
	if (r < 0)
		(void)log_warning_errno(r, "cannot tell whoever started us that the mount serves");
	daemon->ready_fd = fd_close(daemon->ready_fd);
	return 0;
}

/* Says good-bye to whoever asked for the stop, with what they should know. */
static void finish(struct daemon *daemon)
{
	_cleanup_json_ json_t *farewell = NULL;
	bool is_failed_over = false,
	     is_over_source = strcmp(daemon->plan.mount, daemon->plan.source) == 0;

	control_stop(daemon->control);
	if (daemon->service) {
		is_failed_over = service_is_failed_over(daemon->service);
		if (is_failed_over && is_over_source)
			log_warning(
				"what stands at '%s' now is the old source, as it was at the failover: "
				"start ferryfs again, or use '%s'",
				daemon->plan.source, daemon->plan.target);
		daemon->service = service_close(daemon->service);
		log_info("'%s' has ended", daemon->plan.name);
	}
	farewell =
		json_pack("{s:b, s:s, s:b, s:o, s:o}", "ok", 1, "name", daemon->plan.name,
			  "is_source_stale", is_failed_over && is_over_source, "source",
			  wire_text(daemon->plan.source), "target", wire_text(daemon->plan.target));
	daemon->control = control_close(daemon->control, farewell);
	daemon->signal_fd = fd_close(daemon->signal_fd);
	daemon->timer_fd = fd_close(daemon->timer_fd);
}

static int run(const struct options *options, int ready_fd)
{
	struct daemon daemon = {
		.options = options, .signal_fd = -1, .timer_fd = -1, .ready_fd = ready_fd
	};
	int r;

	r = plan_make(options, &daemon.plan);
	if (r < 0)
		return r;
	r = start(&daemon);
	if (r == 0)
		serve(&daemon);
	else if (daemon.service)
		service_force_unmount(daemon.service);
	finish(&daemon);
	return r;
}

int main(int argc, char *argv[])
{
	struct options options;
	int ready_fd = -1, code, r;

	r = options_parse(argc, argv, &options);
	if (r != 0)
		return r == OPTIONS_E_DONE ? EXIT_SUCCESS : EXIT_USAGE;
	if (options.is_debug)
		log_set_level(LOG_LEVEL_DEBUG);
	if (!options.is_foreground) {
		r = process_detach(&ready_fd, &code);
		if (r != 0)
			return r > 0 ? code : EXIT_FAILURE;
	}
	r = run(&options, ready_fd);
	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
