/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mount_overlay STATE-DIR SOURCE MOUNTPOINT
 *
 * The overlay alone: journal, marks and a source, no target and no migrator. Prints
 * "ready", then obeys the lines of its standard input: freeze MS, thaw, stats, unmount.
 * Each is answered by one line. OVERLAY_OPENS_FULL and OVERLAY_WRITEBACK in the environment
 * change how it is mounted. Ends with the mount, or unmounts at the end of input.
 */

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/overlay/overlay.h"
#include "util/clock.h"
#include "util/log.h"

enum {
	THREADS = 4,
	PARKED_BYTES_MAX = 64 << 20,
};

struct world {
	bool is_frozen;
	struct store *source;
	struct journal *journal;
	struct marks *marks;
	struct orphans *orphans;
	struct overlay *overlay;
};

static int add_root(struct world *world)
{
	struct object root = { .id = JOURNAL_ROOT_ID, .type = S_IFDIR };
	struct store_attr attr;
	int r;

	store_root(world->source, &root.locator[SIDE_A]);
	r = store_getattr(world->source, &root.locator[SIDE_A], &attr);
	if (r < 0)
		return r;
	root.ino = attr.ino;
	journal_compose(world->journal);
	journal_put_object(world->journal, &root, /* old= */ NULL);
	return journal_flush(world->journal, journal_submit(world->journal));
}

static int set_up(struct world *world, const char *state_dir, const char *source,
		  const char *mountpoint)
{
	struct journal_pair pair = { .source = source,
				     .target = "none",
				     .target_identity = "none" };
	struct marks_limits limits = {
		.objects_max = 100000,
		.names_max = 100000,
		.scans_max = 10000,
		.groups_per_object_max = 256,
		.cool_ms = 1000,
		.cool_ms_max = 10000,
	};
	struct overlay_config config = {
		.mountpoint = mountpoint,
		.fsname = source,
		.active = SIDE_A,
		.limbo_name = ".ferryfs-limbo-test",
		.threads = THREADS,
		.parked_bytes_max = PARKED_BYTES_MAX,
		.opens = getenv("OVERLAY_OPENS_FULL") ? OVERLAY_OPENS_FULL : OVERLAY_OPENS_ZERO,
		.is_writeback = getenv("OVERLAY_WRITEBACK"),
		.is_debug = getenv("OVERLAY_DEBUG"),
	};
	bool is_new;
	int r;

	r = store_posix_open(source, &world->source);
	if (r < 0)
		return r;
	pair.source_identity = store_identity(world->source);
	r = journal_open(state_dir, &pair, &is_new, &world->journal);
	if (r < 0)
		return r;
	r = add_root(world);
	if (r < 0)
		return r;
	r = marks_open(world->journal, &limits, &world->marks);
	if (r < 0)
		return r;
	world->orphans = orphans_new();
	if (!world->orphans)
		return -ENOMEM;

	config.store[SIDE_A] = world->source;
	config.journal = world->journal;
	config.marks = world->marks;
	config.orphans = world->orphans;
	return overlay_open(&config, &world->overlay);
}

static void tear_down(struct world *world)
{
	world->overlay = overlay_close(world->overlay);
	world->marks = marks_close(world->marks);
	world->orphans = orphans_free(world->orphans);
	world->journal = journal_close(world->journal);
	world->source = store_close(world->source);
}

static void print_stats(struct world *world)
{
	struct overlay_stats stats;
	unsigned orphan_count;
	uint64_t *orphans;

	overlay_get_stats(world->overlay, &stats);
	if (orphans_list(world->orphans, &orphans, &orphan_count) < 0)
		return;
	free(orphans);
	printf("requests %llu changes %llu nodes %llu parked %llu parked_ms %llu orphans %u\n",
	       (unsigned long long)stats.requests, (unsigned long long)stats.changes,
	       (unsigned long long)stats.nodes, (unsigned long long)stats.parked,
	       (unsigned long long)stats.last_parked_ms, orphan_count);
}

/* Obeys one line. */
static void obey(struct world *world, const char *line)
{
	unsigned ms;
	int r = 0;

	if (sscanf(line, "freeze %u", &ms) == 1 && !world->is_frozen) {
		r = overlay_freeze(world->overlay, clock_ms() + ms);
		world->is_frozen = r == 0;
	} else if (strcmp(line, "thaw") == 0 && world->is_frozen) {
		overlay_thaw(world->overlay);
		world->is_frozen = false;
	} else if (strcmp(line, "unmount") == 0)
		r = overlay_unmount(world->overlay);
	else if (strcmp(line, "stats") != 0)
		r = -EINVAL;
	if (strcmp(line, "stats") == 0)
		print_stats(world);
	else
		printf("%s\n", r == 0 ? "ok" : strerror(-r));
	fflush(stdout);
}

/* Until the mount has ended, or the input and then the mount. */
static void serve(struct world *world)
{
	struct pollfd fds[2] = {
		{ .fd = overlay_ended_fd(world->overlay), .events = POLLIN },
		{ .fd = STDIN_FILENO, .events = POLLIN },
	};
	char line[256];

	while (!overlay_is_ended(world->overlay)) {
		if (poll(fds, ARRAY_SIZE(fds), -1) < 0)
			continue;
		if (!fds[1].revents)
			continue;
		if (fgets(line, sizeof(line), stdin)) {
			line[strcspn(line, "\n")] = '\0';
			obey(world, line);
			continue;
		}
		if (world->is_frozen)
			obey(world, "thaw");
		if (overlay_unmount(world->overlay) < 0)
			usleep(100 * 1000); /* busy: files are open below it */
	}
}

int main(int argc, char **argv)
{
	struct world world = { 0 };
	int r;

	if (argc != 4) {
		fprintf(stderr, "usage: mount_overlay STATE-DIR SOURCE MOUNTPOINT\n");
		return 2;
	}
	setvbuf(stdin, NULL, _IONBF, 0); /* poll() must see what is left */
	r = set_up(&world, argv[1], argv[2], argv[3]);
	if (r == 0 && chdir("/") < 0)
		r = -errno;
	if (r == 0) {
		printf("ready\n");
		fflush(stdout);
		serve(&world);
	} else {
		(void)log_error_errno(r, "cannot mount");
	}
	tear_down(&world);
	return r == 0 ? 0 : 1;
}
