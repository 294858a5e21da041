/* SPDX-License-Identifier: Apache-2.0 */
/* ferry status: one screen, or JSON for scripts. */

#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/client.h"

enum { WATCH_MS = 1000 };

/* Room for the numbers of one line. */
struct numbers {
	char text[8][TEXT_NUMBER_BYTES];
	unsigned next;
};

static const char *count(struct numbers *numbers, uint64_t value)
{
	return text_put_count(numbers->text[numbers->next++], value);
}

static const char *bytes(struct numbers *numbers, uint64_t value)
{
	return text_put_bytes(numbers->text[numbers->next++], value);
}

static const char *duration(struct numbers *numbers, double ms)
{
	return text_put_duration(numbers->text[numbers->next++], ms > 0 ? (uint64_t)ms : 0);
}

static void line(const char *label)
{
	printf("  %-10s ", label);
}

/* ---- the parts of the screen --------------------------------------------- */

static const char *phase_text(const char *phase)
{
	static const char *const texts[][2] = {
		{ "baseline", "copying everything once" },
		{ "converge", "copying what changes" },
		{ "freeze", "failing over: changes are held" },
		{ "drain", "failing over: changes are held, the last of them are copied" },
		{ "guard", "failed over" },
		{ "finished", "done with the source" },
		{ "degraded", "the target fails; changes are remembered until it is back" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		if (strcmp(phase, texts[i][0]) == 0)
			return texts[i][1];
	}
	return "";
}

static void print_who(json_t *status)
{
	const char *phase = client_string(status, "phase");
	bool is_over = strcmp(client_string(status, "active"), "target") == 0;
	struct numbers n = { 0 };

	printf("%s: %s, %s%s\n", client_string(status, "name"), phase, phase_text(phase),
	       client_bool(status, "paused") ? " (PAUSED: see 'ferry resume')" : "");
	line("source");
	client_print(client_string(status, "source"));
	puts(is_over ? "" : "  <- serves");
	line("target");
	client_print(client_string(status, "target"));
	puts(is_over ? "  <- serves" : "");
	line("mount");
	client_print(client_string(status, "mount"));
	printf("  (process %u, for %s)\n\n", (unsigned)client_number(status, "pid"),
	       duration(&n, client_real(status, "uptime_ms")));
}

static void print_baseline(json_t *status)
{
	uint64_t seen = client_number(status, "baseline.objects_seen");
	uint64_t done = client_number(status, "baseline.objects_done");
	struct numbers n = { 0 };

	line("baseline");
	if (client_bool(status, "baseline.done"))
		printf("done: %s objects, %s\n", count(&n, done),
		       bytes(&n, client_number(status, "baseline.bytes_done")));
	else
		printf("%s of %s objects found so far, %s of %s\n", count(&n, done),
		       count(&n, seen), bytes(&n, client_number(status, "baseline.bytes_done")),
		       bytes(&n, client_number(status, "baseline.bytes_seen")));
	if (client_bool(status, "gap_open")) {
		line("");
		puts("comparing both sides: changes may have been missed while it did not run");
	}
}

static void print_backlog(json_t *status)
{
	uint64_t objects = client_number(status, "backlog.objects"),
		 names = client_number(status, "backlog.names");
	uint64_t scans = client_number(status, "backlog.scans");
	struct numbers n = { 0 };

	line("backlog");
	if (objects + names + scans == 0)
		puts("empty");
	else
		printf("%s in %s objects, %s names, %s directories to list\n",
		       bytes(&n, client_number(status, "backlog.bytes")), count(&n, objects),
		       count(&n, names), count(&n, scans));
	n.next = 0;
	line("rates");
	printf("%s/s changed, %s/s copied, %.0f objects/s\n",
	       bytes(&n, client_number(status, "rates.dirty_bytes_s")),
	       bytes(&n, client_number(status, "rates.drain_bytes_s")),
	       client_real(status, "rates.objects_s"));
}

static void print_time_left(json_t *status)
{
	struct numbers n = { 0 };

	line("time left");
	if (!client_has(status, "eta_s"))
		puts(client_bool(status, "paused") ? "-"
						   : "cannot be told: the backlog does not shrink");
	else if (!client_has(status, "eta_s.high"))
		printf("more than %s: not all directories are listed\n",
		       duration(&n, 1000 * client_real(status, "eta_s.low")));
	else if (client_real(status, "eta_s.high") < 1)
		puts("none");
	else
		printf("%s to %s\n", duration(&n, 1000 * client_real(status, "eta_s.low")),
		       duration(&n, 1000 * client_real(status, "eta_s.high")));
}

static void print_failover(json_t *status)
{
	struct numbers n = { 0 };

	line("failover");
	if (strcmp(client_string(status, "active"), "target") == 0)
		fputs("done", stdout);
	else if (!client_bool(status, "baseline.done"))
		fputs("not before the baseline is done", stdout);
	else
		printf("would hold changes for about %s",
		       duration(&n, client_real(status, "predicted_freeze_ms")));
	if (client_has(status, "last_freeze_ms"))
		printf(" (the last freeze took %s)",
		       duration(&n, client_real(status, "last_freeze_ms")));
	putchar('\n');
}

static void print_journal(json_t *status)
{
	struct numbers n = { 0 };

	line("journal");
	printf("at %s, synced to disk at %s\n", count(&n, client_number(status, "seq.latest")),
	       count(&n, client_number(status, "seq.synced")));
	if (client_bool(status, "marks_lost")) {
		line("");
		puts("MARKS WERE LOST: no failover before a restart has compared everything");
	}
}

static void print_troubles(json_t *status)
{
	uint64_t xattrs = client_number(status, "not_carried.xattrs"),
		 acls = client_number(status, "not_carried.acls");
	struct numbers n = { 0 };

	line("errors");
	if (client_number(status, "errors.count") == 0) {
		puts("none");
	} else {
		printf("%s, the last: ", count(&n, client_number(status, "errors.count")));
		client_print(client_string(status, "errors.last"));
		putchar('\n');
	}
	if (xattrs + acls > 0) {
		line("left out");
		printf("xattrs of %s objects, ACLs of %s: the target cannot hold them\n",
		       count(&n, xattrs), count(&n, acls));
	}
	if (client_bool(status, "not_carried.symlink_times")) {
		line("left out");
		puts("times of symlinks: the target does not keep them");
	}
	if (client_number(status, "extra_names") > 0) {
		line("strangers");
		printf("%s names on the target that ferryfs did not make, left alone\n",
		       count(&n, client_number(status, "extra_names")));
	}
}

static void print_status(json_t *status)
{
	bool is_over = strcmp(client_string(status, "active"), "target") == 0;

	print_who(status);
	if (!is_over) {
		print_baseline(status);
		print_backlog(status);
		print_time_left(status);
	}
	print_failover(status);
	print_journal(status);
	print_troubles(status);
	if (is_over)
		puts("\n  The source stays as it was at the failover. Going back to it is not in this version.");
}

/* ---- the command --------------------------------------------------------- */

static int show(const char *name, bool is_json, bool is_redrawing)
{
	_cleanup_json_ json_t *status = NULL;
	int r;

	r = client_call(name, "status", NULL, &status);
	if (r != 0)
		return r;
	if (is_redrawing)
		fputs("\033[H\033[2J", stdout); /* home, clear */
	if (!is_json) {
		print_status(status);
		return 0;
	}
	json_object_del(status, "ok"); /* of the protocol, not of the status */
	return client_print_json(status);
}

static int watch(const char *name, bool is_json)
{
	bool is_terminal = isatty(STDOUT_FILENO);
	int r;

	for (;;) {
		r = show(name, is_json, is_terminal && !is_json);
		if (r != 0)
			return r;
		if (!is_terminal && !is_json)
			putchar('\n');
		if (fflush(stdout) != 0)
			return client_failed("cannot write the output: %s", strerror(errno));
		(void)poll(NULL, 0, WATCH_MS); /* a sleep */
	}
}

int ferry_status(int argc, char *argv[])
{
	static const struct option options[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "watch", no_argument, NULL, 'w' },
		{ 0 },
	};
	bool is_json = false, is_watching = false;
	char name[TEXT_NAME_MAX + 1];
	const char *wanted;
	int option, r;

	while ((option = client_option(argc, argv, options)) != -1) {
		if (option == '?')
			return EXIT_USAGE;
		is_json |= option == 'j';
		is_watching |= option == 'w';
	}
	r = client_operand(argc, argv, &wanted);
	if (r == 0)
		r = client_find(wanted, name);
	if (r != 0)
		return r;
	return is_watching ? watch(name, is_json) : show(name, is_json, /* is_redrawing= */ false);
}
