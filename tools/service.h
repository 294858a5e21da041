/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * A migration at work: the parts, opened in their order and ended in the reverse one.
 * The struct is open to its neighbours (requests.c, status.c, explain.c), which read
 * what is set once by service_open().
 */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "fs/overlay/overlay.h"
#include "fs/store/store.h"
#include "journal/journal.h"
#include "journal/marks.h"
#include "journal/phase.h"
#include "migrate/cutover.h"
#include "migrate/migrate.h"
#include "migrate/orphans.h"
#include "tools/options.h"
#include "tools/plan.h"
#include "tools/rates.h"
#include "util/attr.h"

enum {
	SERVICE_COOL_MS_MAX = 5000
}; /* a mark is worked off so long after its first change at the latest */

struct service {
	const struct options *options; /* borrowed, as is plan */
	const struct plan *plan;
	uint64_t started_ms; /* clock_ms() */
	bool is_new;	     /* the first start of this pair */
	bool was_killed; /* the run before did not stop: its requests to the target may still land */
	bool is_migrating; /* the migrator runs; not after a failover */
	char limbo_name[MIGRATE_LIMBO_NAME_BYTES];

	struct store *store[SIDE_MAX];
	struct journal *journal;
	struct phase_file *phase_file;
	struct marks *marks;
	struct orphans *orphans;
	struct migrate_config migrate_config;
	struct migrate *migrate;
	struct overlay *overlay;
	struct cutover *cutover;
	bool has_update_failed; /* the ticking thread's alone */

	pthread_mutex_t unmount_lock; /* one attempt at a time */

	pthread_mutex_t lock; /* a leaf, for the fields below */
	struct rates rates;
	bool has_frozen; /* in this run, whether it came to a flip or not */
	uint32_t last_freeze_ms;
};

/* Opens everything and mounts: when this returns the mount serves. Errors are logged;
 * after one nothing is mounted, and nothing is left of a first start. */
int service_open(const struct options *options, const struct plan *plan,
		 struct service **ret_service) MUST_CHECK;

/* Unmounts: 0, or -EBUSY and the processes that hold the mount (the caller frees
 * *@ret_holders; may be NULL). Thread-safe. */
int service_unmount(struct service *service, char **ret_holders) MUST_CHECK;

/* Takes the mount away whoever uses it, for a start that failed after it. */
void service_force_unmount(struct service *service);

/* Fails over, and remembers how long that took. As cutover_failover(). Thread-safe. */
int service_failover(struct service *service, uint32_t freeze_ms_max,
		     struct cutover_result *ret_result) MUST_CHECK;

/* To be called once a second. */
void service_tick(struct service *service);

/* Ends everything; the mount has ended. Returns NULL. */
struct service *service_close(struct service *service);

/* Whether the target is what the mount shows. */
bool service_is_failed_over(struct service *service);
