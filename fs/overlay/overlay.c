/* SPDX-License-Identifier: Apache-2.0 */
/* Life of the overlay: open, flip, unmount, end. */
#include "fs/overlay/overlay_internal.h"

#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mount.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/descriptors.h"
#include "util/log.h"

/* ---- life ---------------------------------------------------------------- */

static struct overlay *overlay_free(struct overlay *overlay)
{
	if (!overlay)
		return NULL;
	if (overlay->session)
		fuse_session_destroy(overlay->session);
	overlay->files = fdcache_free(overlay->files);
	overlay->nodes = nodes_free(overlay->nodes);
	overlay->notifier = notifier_free(overlay->notifier);
	overlay->crew = crew_free(overlay->crew);
	overlay->gate = gate_free(overlay->gate);
	fd_close(overlay->ended_fd);
	streams_free(overlay);
	pthread_mutex_destroy(&overlay->capability_lock);
	pthread_mutex_destroy(&overlay->stream_lock);
	pthread_mutex_destroy(&overlay->leftover_lock);
	free(overlay->leftovers);
	free(overlay->limbo_name);
	free(overlay->fsname);
	free(overlay->mountpoint);
	free(overlay);
	return NULL;
}

static struct overlay *overlay_new(const struct overlay_config *config)
{
	struct overlay *overlay = calloc(1, sizeof(*overlay));

	if (!overlay)
		return NULL;
	pthread_mutex_init(&overlay->leftover_lock, NULL);
	pthread_mutex_init(&overlay->stream_lock, NULL);
	pthread_mutex_init(&overlay->capability_lock, NULL);
	overlay->ended_fd = eventfd(0, EFD_CLOEXEC);
	overlay->device_fd = -1;
	overlay->mountpoint = strdup(config->mountpoint);
	overlay->fsname = strdup(config->fsname);
	overlay->limbo_name = strdup(config->limbo_name);
	memcpy(overlay->store, config->store, sizeof(overlay->store));
	overlay->journal = config->journal;
	overlay->marks = config->marks;
	overlay->orphans = config->orphans;
	overlay->is_debug = config->is_debug;
	overlay->is_writeback = config->is_writeback;
	overlay->opens = config->opens;
	atomic_init(&overlay->active, config->active);
	overlay->gate = gate_new(config->parked_bytes_max);
	overlay->crew = crew_new(config->threads);
	overlay->notifier = notifier_new();
	overlay->nodes = nodes_new();
	overlay->files = fdcache_new(descriptors_share(DESCRIPTORS_FILES, OVERLAY_FILES_MAX));
	overlay->leftovers = leftovers_new();
	overlay->pins_max = descriptors_share(DESCRIPTORS_UNLINKED, UINT_MAX);
	if (overlay->ended_fd < 0 || !overlay->mountpoint || !overlay->fsname ||
	    !overlay->limbo_name || !overlay->gate || !overlay->crew || !overlay->notifier ||
	    !overlay->nodes || !overlay->files || !overlay->leftovers)
		return overlay_free(overlay);
	return overlay;
}

static int load_flips(struct overlay *overlay)
{
	uint64_t flips = 0;
	int r;

	r = journal_number_get(overlay->journal, "overlay.flips", &flips);
	if (r < 0)
		return r;
	/* The record of the flip counts, not ours, which may have been lost. */
	if (overlay_active(overlay) == SIDE_B && flips == 0)
		flips = 1;
	atomic_store(&overlay->flips, flips);
	return 0;
}

/* The root is always known. */
static int add_root(struct overlay *overlay)
{
	struct node root = { .id = JOURNAL_ROOT_ID,
			     .type = S_IFDIR,
			     .side = overlay_active(overlay) };
	struct object object;
	struct store_attr attr;
	int r;

	store_root(overlay_store(overlay), &root.locator);
	r = fs_outcome(store_getattr(overlay_store(overlay), &root.locator, &attr));
	if (r < 0)
		return r;
	r = journal_object_get(overlay->journal, JOURNAL_ROOT_ID, &object);
	if (r < 0)
		return r;
	root.ino = r == 0 && object.ino ? object.ino : attr.ino;
	return nodes_add(overlay->nodes, &root, 1);
}

/* Ends a mount that never came to serve. */
static void abandon(struct overlay *overlay)
{
	(void)umount2(overlay->mountpoint,
		      MNT_FORCE | MNT_DETACH); /* aborts; there is nothing more to do */
	overlay_session_join(overlay);
}

int overlay_open(const struct overlay_config *config, struct overlay **ret_overlay)
{
	struct overlay *overlay;
	int r;

	assert(config->threads > 0 && config->threads <= OVERLAY_THREADS_MAX);
	assert(config->store[config->active] && config->mountpoint[0] == '/');
	overlay = overlay_new(config);
	if (!overlay)
		return log_error_errno(ENOMEM, "cannot mount over '%s'", config->mountpoint);
	r = load_flips(overlay);
	if (r == 0)
		r = add_root(overlay);
	if (r < 0) {
		(void)log_error_errno(r, "cannot read the root below '%s'", config->mountpoint);
		overlay_free(overlay);
		return r;
	}
	if (config->active == SIDE_A)
		leftovers_clear(overlay);
	r = overlay_make_session(overlay);
	if (r == 0)
		r = overlay_mount_device(overlay);
	if (r < 0) {
		overlay_free(overlay);
		return r;
	}
	r = overlay_session_greet(overlay);
	if (r == 0)
		r = overlay_session_start(overlay, config->threads);
	if (r < 0) {
		(void)log_error_errno(r, "cannot serve '%s'", config->mountpoint);
		abandon(overlay);
		overlay_free(overlay);
		return r;
	}
	if (overlay->is_writeback)
		overlay_lift_writeback_limits(overlay);
	*ret_overlay = overlay;
	return 0;
}

int overlay_unmount(struct overlay *overlay)
{
	if (overlay_is_ended(overlay))
		return 0;
	return umount2(overlay->mountpoint, UMOUNT_NOFOLLOW) < 0 ? -errno : 0;
}

bool overlay_is_ended(const struct overlay *overlay)
{
	return atomic_load(&overlay->is_ended);
}

int overlay_ended_fd(const struct overlay *overlay)
{
	return overlay->ended_fd;
}

struct overlay *overlay_close(struct overlay *overlay)
{
	int r;

	if (!overlay)
		return NULL;
	overlay_session_join(overlay);
	r = gate_enter(overlay->gate, GATE_CHANGE);
	leftovers_end_all(overlay, /* is_frozen= */ r != 0);
	if (r == 0)
		gate_leave(overlay->gate, GATE_CHANGE);
	return overlay_free(overlay);
}

/* ---- the gate ------------------------------------------------------------ */

int overlay_freeze(struct overlay *overlay, uint64_t deadline_ms)
{
	return gate_freeze(overlay->gate, deadline_ms);
}

bool overlay_is_overfull(const struct overlay *overlay)
{
	return gate_is_overfull(overlay->gate);
}

void overlay_thaw(struct overlay *overlay)
{
	gate_open(overlay->gate);
}

/* For a restart; nothing hangs on it before. */
static void keep_flips(struct overlay *overlay, uint64_t flips)
{
	journal_compose(overlay->journal);
	journal_put_number(overlay->journal, "overlay.flips", flips);
	(void)journal_submit(overlay->journal); /* flushed with the next change */
}

int overlay_hold_reads(struct overlay *overlay, uint64_t deadline_ms)
{
	return gate_close_reads(overlay->gate, deadline_ms);
}

void overlay_switch(struct overlay *overlay, enum side side)
{
	assert(overlay->store[side]);
	assert(overlay_active(overlay) != side);
	leftovers_switch(overlay);
	fdcache_flush(overlay->files);
	atomic_store(&overlay->active, side);
	keep_flips(overlay, atomic_fetch_add(&overlay->flips, 1) + 1);
	gate_open(overlay->gate);
}

/* The allocator keeps what is freed amidst what is not, unless it is told. */
void overlay_tidy(struct overlay *overlay)
{
	uint64_t count = nodes_count(overlay->nodes);

	if (count > overlay->nodes_most)
		overlay->nodes_most = count;
	/* By halves: a tree that is dropped bit by bit is not worth a look each time. */
	if (overlay->nodes_most - count < OVERLAY_TIDY_NODES || count > overlay->nodes_most / 2)
		return;
	if (!gate_is_open(overlay->gate))
		return; /* whoever waits need not wait for this too */
	overlay->nodes_most = count;
	(void)malloc_trim(0); /* whether there was anything */
}

void overlay_get_stats(struct overlay *overlay, struct overlay_stats *ret_stats)
{
	*ret_stats = (struct overlay_stats){
		.requests = atomic_load(&overlay->requests),
		.changes = atomic_load(&overlay->changes),
		.read_bytes = atomic_load(&overlay->read_bytes),
		.written_bytes = atomic_load(&overlay->written_bytes),
		.nodes = nodes_count(overlay->nodes),
		.parked = gate_parked(overlay->gate),
		.last_parked_ms = gate_last_parked_ms(overlay->gate),
	};
}
