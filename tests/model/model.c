/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model test: the journal, the marks and the migrator as they are, between two stores
 * in memory, under a workload, faults, crashes and a scheduler that a seed decides.
 *
 * A run is one seed. It makes a plan, a tree, and lets the daemon live once or more times,
 * each life a child process; a killed one leaves the world as it is at that step. Checked
 * is at random steps and at each crash that whatever differs has a mark in the journal,
 * and in the end that the target is the source (check.h).
 *
 *	model_random --seed 4711 --trace	shows what happened in a run that failed
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/model/check.h"
#include "tests/model/client.h"
#include "tests/model/life.h"
#include "tests/model/memrocks.h"
#include "tests/model/memstore.h"
#include "tests/model/rng.h"
#include "tests/model/sched.h"
#include "tests/model/world.h"
#include "util/log.h"

struct world *world;

/* Clients that have ended are not joined when a crash comes, and the locks of the mount
 * are taken in the order of the tree, which renames change. */
const char *__tsan_default_options(void);
const char *__tsan_default_suppressions(void);

const char *__tsan_default_options(void)
{
	return "report_thread_leaks=0";
}

const char *__tsan_default_suppressions(void)
{
	return "deadlock:lock_inode\n";
}

struct options {
	uint64_t seed, runs;
	unsigned seconds; /* 0: as long as it takes */
	bool is_seeded, is_traced, is_free, is_failure_expected, is_long;
	enum mount_break broken;
	const char *focus;
};

static const char *const break_names[MOUNT_BREAK_MAX] = {
	[MOUNT_BREAK_NONE] = "none",	 [MOUNT_BREAK_TRUNCATE] = "truncate",
	[MOUNT_BREAK_RENAME] = "rename", [MOUNT_BREAK_LATE] = "late",
	[MOUNT_BREAK_EARLY] = "early",	 [MOUNT_BREAK_ORPHAN] = "orphan",
	[MOUNT_BREAK_DIR] = "directory",
};

/* ---- the world ----------------------------------------------------------- */

int world_make(void)
{
	world = mmap(NULL, sizeof(*world), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	return world == MAP_FAILED ? -errno : 0;
}

void world_reset(void)
{
	world->clock_ns = UINT64_C(1000) * 1000000000;
	world->tree_clock = UINT64_C(1000000) * 1000000000;
	world->stamp = 1;
	world->life = 0;
	world->last_loss_ms = 0;
	world->is_target_steady = false;
	world->was_killed = false;
	world->is_lost = false;
	world->has_begun = false;
	world->verdict[0] = '\0';
	for (unsigned i = 0; i < WORLD_LATE_MAX; i++)
		world->late[i].is_used = false;
	for (enum side side = SIDE_A; side < SIDE_MAX; side++)
		tree_init(&world->tree[side], &world->tree_clock,
			  side == SIDE_B && world->plan.can_lose);
	/* The target has room for what was there before, too. */
	world->tree[SIDE_A].blocks_max = TREE_BLOCKS_MAX / 4;
	world->rocks.column_count = 0;
	world->rocks.sequence = 0;
	memset(world->rocks.count, 0, sizeof(world->rocks.count));
	world->rocks.free_count = MEMROCKS_RECORDS_MAX;
	for (unsigned i = 0; i < MEMROCKS_RECORDS_MAX; i++)
		world->rocks.free[i] = (uint16_t)i;
}

/* ---- the plan ------------------------------------------------------------ */

static void plan_stores(struct plan *p, struct rng *rng)
{
	bool has_faults = rng_chance(rng, 500);

	p->is_local = rng_chance(rng, 400);
	p->is_volatile = p->is_local && rng_chance(rng, 500);
	p->can_lose = !p->is_local && rng_chance(rng, 500);
	p->has_rename_flags = rng_chance(rng, 500);
	p->has_punch_hole = rng_chance(rng, 500);
	if (has_faults) {
		p->fail_of_1000 = (unsigned)rng_below(rng, 60);
		p->read_fail_of_1000 = (unsigned)rng_below(rng, 20);
		p->unknown_of_1000 = (unsigned)rng_below(rng, 60);
		p->lose_of_1000 = (unsigned)rng_below(rng, 30);
	}
}

static void plan_migrator(struct plan *p, struct rng *rng)
{
	p->workers = 1 + (unsigned)rng_below(rng, 3);
	p->hold_down_ms = 50 + (unsigned)rng_below(rng, 1000);
	p->cool_ms = rng_chance(rng, 500) ? 0 : (uint32_t)rng_below(rng, 200);
	p->objects_max = p->names_max = p->scans_max = 1000;
	if (rng_chance(rng, 300)) {
		p->objects_max = 1 + rng_below(rng, 8);
		p->names_max = 1 + rng_below(rng, 8);
		p->scans_max = 1 + rng_below(rng, 4);
	}
	p->groups_max = 2 + rng_below(rng, 6);
}

static void plan_workload(struct plan *p, struct rng *rng)
{
	p->clients = 1 + (unsigned)rng_below(rng, 3);
	p->client_ops = 4 + (unsigned)rng_below(rng, 30);
	p->objects = 2 + (unsigned)rng_below(rng, 14);
	p->bulk_of_1000 = rng_chance(rng, 150) ? 300 : 0;
	p->tmpfile_of_1000 = 300;
	p->swap_of_1000 = 80;
	p->data_of_1000 = (unsigned)rng_below(rng, 1000);
	p->think_of_1000 = rng_chance(rng, 500) ? (unsigned)rng_below(rng, 1000) : 0;
	p->has_pauses = rng_chance(rng, 400);
	p->lives = 1;
	if (rng_chance(rng, 600))
		p->lives += 1 + (unsigned)rng_below(rng, 3);
	p->stop_of_1000 = 200;
	p->has_gaps = rng_chance(rng, 400);
}

/* What a test that breaks one rule wants more of. */
static void plan_focus(struct plan *p, const char *focus)
{
	if (strstr(focus, "data")) {
		p->data_of_1000 = 900;
		p->objects = 2 + p->objects % 4;
	}
	if (strstr(focus, "names"))
		p->data_of_1000 = 50;
	if (strstr(focus, "swap")) {
		p->data_of_1000 = 10;
		p->swap_of_1000 = 500;
		p->clients = 3;
		p->workers = 2 + p->workers % 2;
		p->objects += 6;
	}
	if (strstr(focus, "crash"))
		p->lives = 3;
	if (strstr(focus, "killed"))
		p->stop_of_1000 = 0;
	if (strstr(focus, "bulk")) {
		p->bulk_of_1000 = 700;
		p->workers = 2 + p->workers % 2;
	}
	if (strstr(focus, "crowd")) {
		/* Everybody at one file. */
		p->objects = 1;
		p->clients = p->workers = 3;
		p->client_ops = 30;
		p->lives = 1;
		p->fail_of_1000 = p->unknown_of_1000 = p->read_fail_of_1000 = 0;
	}
	if (strstr(focus, "faults")) {
		p->is_local = p->is_volatile = false;
		p->fail_of_1000 = 20;
		p->unknown_of_1000 = 40;
	}
	if (strstr(focus, "lose")) {
		p->is_local = p->is_volatile = false;
		p->can_lose = true;
		p->lose_of_1000 = 60;
	}
	if (strstr(focus, "gaps"))
		p->has_gaps = true;
	if (strstr(focus, "marks"))
		p->has_gaps = false;
}

static void make_plan(struct plan *p, const struct options *options, uint64_t seed)
{
	struct rng rng;

	*p = (struct plan){ .seed = seed };
	rng_init(&rng, seed);
	plan_stores(p, &rng);
	plan_migrator(p, &rng);
	plan_workload(p, &rng);
	plan_focus(p, options->focus);
	if (options->is_free) {
		/* Time is real: nothing may wait for long. */
		p->fail_of_1000 = p->read_fail_of_1000 = p->unknown_of_1000 = p->lose_of_1000 = 0;
		p->hold_down_ms = 5;
		p->cool_ms = 0;
		p->think_of_1000 = 0;
	}
}

/* ---- a run --------------------------------------------------------------- */

static char state_dir[256];
static volatile sig_atomic_t is_ended;

static void on_signal(int signal)
{
	(void)signal;
	is_ended = 1;
}

/* In memory, if it may be: a life makes a dozen system calls on it. */
static int make_state_dir(void)
{
	const char *top = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : getenv("TMPDIR");
	int n = snprintf(state_dir, sizeof(state_dir), "%s/ferryfs-model.XXXXXX",
			 top ? top : "/tmp");

	if (n < 0 || (size_t)n >= sizeof(state_dir))
		return -ENAMETOOLONG;
	return mkdtemp(state_dir) ? 0 : -errno;
}

static void clean_state_dir(void)
{
	static const char *const paths[] = { "db/CURRENT", "db", "watermark", "lock" };
	char path[2 * sizeof(state_dir) + 100];
	FILE *list;

	if (!memrocks_is_there()) {
		(void)snprintf(path, sizeof(path),
			       "find %s/db -type f -delete 2>/dev/null; rmdir %s/db 2>/dev/null",
			       state_dir, state_dir); /* fits */
		list = popen(path, "r");
		if (list)
			(void)pclose(list); /* what stays is found below */
	}
	for (unsigned i = 0; i < ARRAY_SIZE(paths); i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", state_dir, paths[i]); /* fits */
		if (remove(path) < 0 && errno != ENOENT && errno != ENOTDIR)
			perror(path);
	}
}

/* What the world is like when all of the daemon's threads are gone. */
static void bury(bool was_killed)
{
	for (enum side side = SIDE_A; side < SIDE_MAX; side++)
		tree_release_all(&world->tree[side]);
	world->was_killed = was_killed;
	world->crashes += was_killed;
}

/* Between two lives: whether the marks cover it all, and what happens while nobody looks. */
static bool pass_time(const struct options *options)
{
	const char *why;

	if (memrocks_is_there() && !options->is_free && world->has_begun &&
	    !(world->plan.has_gaps && world->life > 0) && !check_is_covered(&why)) {
		(void)snprintf(world->verdict, sizeof(world->verdict),
			       "after the end of life %u: %s", world->life, why);
		return false;
	}
	if (world->plan.has_gaps)
		client_change_bare((unsigned)sched_random(10));
	world->life++;
	return true;
}

static int live(const struct life_config *config)
{
	pid_t pid = fork();
	int status;

	if (pid < 0) {
		perror("cannot fork");
		exit(1);
	}
	if (pid == 0)
		life_run(config);
	while (waitpid(pid, &status, 0) < 0)
		assert(errno == EINTR);
	world->lives++;
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	(void)snprintf(world->verdict, sizeof(world->verdict), "died of signal %d (%s)",
		       WTERMSIG(status), strsignal(WTERMSIG(status)));
	return SCHED_EXIT_FAILED;
}

/* Whether it went well. */
static bool run(const struct options *options, uint64_t seed)
{
	struct life_config config = {
		.state_dir = state_dir,
		.broken = options->broken,
		.is_free = options->is_free,
		.is_traced = options->is_traced,
	};
	int status;

	make_plan(&world->plan, options, seed);
	world_reset();
	sched_reseed(seed);
	clean_state_dir();
	client_make_tree();
	for (;;) {
		status = live(&config);
		if (status == LIFE_DONE)
			return true;
		if (status != LIFE_STOPPED && status != LIFE_KILLED) {
			if (!world->verdict[0])
				(void)snprintf(world->verdict, sizeof(world->verdict),
					       "exit status %d", status);
			return false;
		}
		bury(status == LIFE_KILLED);
		if (!pass_time(options))
			return false;
	}
}

/* ---- all of them --------------------------------------------------------- */

static void say_failure(const struct options *options, const char *program, uint64_t seed)
{
	printf("seed %llu: %s\n", (unsigned long long)seed, world->verdict);
	printf("  again: %s --seed %llu%s%s%s%s%s --trace\n", program, (unsigned long long)seed,
	       options->broken ? " --break " : "",
	       options->broken ? break_names[options->broken] : "",
	       options->focus[0] ? " --focus " : "", options->focus,
	       options->is_free ? " --threads" : "");
	fflush(stdout);
}

static double seconds_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int run_all(const struct options *options, const char *program)
{
	uint64_t runs = options->is_seeded ? 1 : options->runs, failures = 0, i;
	double begun = seconds_now(), took;

	for (i = 0; i < runs; i++) {
		uint64_t seed = options->seed + i;

		if (is_ended || (options->seconds && seconds_now() - begun > options->seconds))
			break;
		if (run(options, seed))
			continue;
		say_failure(options, program, seed);
		failures++;
		if (options->is_failure_expected || (failures >= 5 && !options->is_long))
			break;
	}
	took = seconds_now() - begun;
	printf("%llu runs, %llu lives, %llu crashes, %llu steps in %.1f s\n", (unsigned long long)i,
	       (unsigned long long)world->lives, (unsigned long long)world->crashes,
	       (unsigned long long)world->steps, took);
	if (!options->is_failure_expected)
		return failures ? 1 : 0;
	if (failures == 0)
		printf("a rule is broken, and no run has found it\n");
	return failures ? 0 : 1;
}

/* ---- the command line ---------------------------------------------------- */

static void usage(const char *program)
{
	fprintf(stderr,
		"usage: %s [--runs N] [--first SEED] [--seconds S] [--seed SEED [--trace]] [--threads]\n"
		"       [--break RULE] [--focus WORDS] [--expect-failure] [--long]\n",
		program);
	exit(2);
}

static enum mount_break parse_break(const char *name, const char *program)
{
	for (enum mount_break b = MOUNT_BREAK_NONE; b < MOUNT_BREAK_MAX; b++)
		if (strcmp(break_names[b], name) == 0)
			return b;
	usage(program);
	return MOUNT_BREAK_NONE;
}

static void parse(int argc, char **argv, struct options *o)
{
	enum { SEED = 256, FIRST, RUNS, SECONDS, TRACE, THREADS, BREAK, FOCUS, EXPECT, LONG };
	static const struct option table[] = {
		{ "seed", required_argument, NULL, SEED },
		{ "first", required_argument, NULL, FIRST },
		{ "runs", required_argument, NULL, RUNS },
		{ "seconds", required_argument, NULL, SECONDS },
		{ "trace", no_argument, NULL, TRACE },
		{ "threads", no_argument, NULL, THREADS },
		{ "break", required_argument, NULL, BREAK },
		{ "focus", required_argument, NULL, FOCUS },
		{ "expect-failure", no_argument, NULL, EXPECT },
		{ "long", no_argument, NULL, LONG },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", table, NULL)) >= 0) {
		switch (c) {
		case SEED:
			o->is_seeded = true;
			o->seed = strtoull(optarg, NULL, 10);
			break;
		case FIRST:
			o->seed = strtoull(optarg, NULL, 10);
			break;
		case RUNS:
			o->runs = strtoull(optarg, NULL, 10);
			break;
		case SECONDS:
			o->seconds = (unsigned)strtoul(optarg, NULL, 10);
			break;
		case TRACE:
			o->is_traced = true;
			break;
		case THREADS:
			o->is_free = true;
			break;
		case BREAK:
			o->broken = parse_break(optarg, argv[0]);
			break;
		case FOCUS:
			o->focus = optarg;
			break;
		case EXPECT:
			o->is_failure_expected = true;
			break;
		case LONG:
			o->is_long = true;
			break;
		default:
			usage(argv[0]);
		}
	}
	if (optind < argc)
		usage(argv[0]);
}

int main(int argc, char **argv)
{
	struct options options = { .seed = 1, .runs = 0, .focus = "" };
	int r;

	parse(argc, argv, &options);
	if (options.runs == 0)
		options.runs = options.is_long ? 200000 : 1000;
	log_set_level(options.is_traced ? LOG_LEVEL_DEBUG : LOG_LEVEL_ERROR);
	r = world_make();
	if (r == 0)
		r = make_state_dir();
	if (r < 0) {
		fprintf(stderr, "cannot make the world: %s\n", strerror(-r));
		return 1;
	}
	(void)signal(SIGTERM, on_signal);
	(void)signal(SIGINT, on_signal); /* both can be set */
	sched_set_verdict(world->verdict, sizeof(world->verdict));
	r = run_all(&options, argv[0]);
	clean_state_dir();
	(void)rmdir(state_dir); /* the last of its own */
	return r;
}
