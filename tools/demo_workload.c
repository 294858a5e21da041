/* SPDX-License-Identifier: Apache-2.0 */
/*
 * demo_workload run DIR RECORD            works in DIR until SIGTERM
 * demo_workload verify DIR RECORD         is everything there that was acknowledged?
 * demo_workload longest RECORD FROM TO    the longest wait (ms) between two times (ns)
 *
 * DIR and RECORD exist; RECORD lies outside of what is migrated. A second run goes on
 * where the first one ended.
 */
#include "tools/demo_workload.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "util/cleanup.h"

enum { STALL_NS_MIN = 1000 * 1000, PARTS = 3 };

static const struct part_kind *const kinds[PARTS] = { &part_database, &part_log, &part_files };
static atomic_bool is_over;

/* ---- for the parts ------------------------------------------------------- */

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void part_begin(struct part *part)
{
	part->begin_ns = now_ns();
}

void part_end(struct part *part)
{
	uint64_t length_ns = now_ns() - part->begin_ns;

	if (length_ns < STALL_NS_MIN || part->stall_count == STALLS_MAX)
		return;
	part->stalls[part->stall_count++] = (struct stall){ part->begin_ns, length_ns };
}

int part_failed(struct part *part, const char *operation)
{
	fprintf(stderr, "demo_workload: %s: %s: %s\n", part->kind->name, operation,
		strerror(errno));
	atomic_store(part->is_over, true); /* the others need not go on */
	return -1;
}

void part_path(const struct part *part, const char *suffix, char *ret_path, unsigned size)
{
	(void)snprintf(ret_path, size, "%s/%s%s", part->record, part->kind->name,
		       suffix); /* cut paths fail to open */
}

uint64_t part_recall(const struct part *part)
{
	_cleanup_fclose_ FILE *file = NULL;
	unsigned long long number = 0;
	char path[512];

	part_path(part, ".acknowledged", path, sizeof(path));
	file = fopen(path, "re");
	if (file && fscanf(file, "%llu", &number) != 1)
		number = 0;
	return number;
}

int part_remember(struct part *part, uint64_t number)
{
	char path[512];
	FILE *file;

	part_path(part, ".acknowledged", path, sizeof(path));
	file = fopen(path, "we");
	if (!file)
		return part_failed(part, path);
	fprintf(file, "%llu\n", (unsigned long long)number);
	return fclose(file) == 0 ? 0 : part_failed(part, path);
}

void part_pause(unsigned ms)
{
	(void)nanosleep(&(struct timespec){ .tv_nsec = ms * 1000000l },
			NULL); /* woken early is fine */
}

/* ---- run ----------------------------------------------------------------- */

static int write_stalls(struct part *part)
{
	char path[512];
	FILE *file;

	part_path(part, ".stalls", path, sizeof(path));
	file = fopen(path, "ae");
	if (!file)
		return part_failed(part, path);
	for (unsigned i = 0; i < part->stall_count; i++)
		fprintf(file, "%llu %llu\n", (unsigned long long)part->stalls[i].begin_ns,
			(unsigned long long)part->stalls[i].length_ns);
	return fclose(file) == 0 ? 0 : part_failed(part, path);
}

static void *run_part(void *argument)
{
	struct part *part = argument;

	part->result = part->kind->run(part);
	if (write_stalls(part) < 0)
		part->result = -1;
	return NULL;
}

static void on_signal(int signal UNUSED)
{
	atomic_store(&is_over, true);
}

static void part_init(struct part *part, unsigned i, const char *dir, const char *record)
{
	*part = (struct part){
		.kind = kinds[i], .dir = dir, .record = record, .is_over = &is_over
	};
	part->stalls = calloc(STALLS_MAX, sizeof(*part->stalls));
	if (!part->stalls)
		abort();
}

static int run(const char *dir, const char *record)
{
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	struct part parts[PARTS];
	pthread_t threads[PARTS];
	int result = 0;

	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	prctl(PR_SET_PDEATHSIG, SIGTERM); /* nobody is to be left behind */
	for (unsigned i = 0; i < PARTS; i++) {
		part_init(&parts[i], i, dir, record);
		if (pthread_create(&threads[i], NULL, run_part, &parts[i]) != 0)
			abort();
	}
	for (unsigned i = 0; i < PARTS; i++) {
		pthread_join(threads[i], NULL);
		result |= parts[i].result;
		free(parts[i].stalls);
	}
	return result == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* ---- verify, longest ----------------------------------------------------- */

static int verify(const char *dir, const char *record)
{
	int result = 0;

	for (unsigned i = 0; i < PARTS; i++) {
		struct part part;

		part_init(&part, i, dir, record);
		printf("  %-9s ", part.kind->name);
		result |= part.kind->verify(&part);
		free(part.stalls);
	}
	return result == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

static uint64_t longest_of(const struct part *part, uint64_t from_ns, uint64_t to_ns)
{
	_cleanup_fclose_ FILE *file = NULL;
	unsigned long long begin_ns, length_ns;
	uint64_t longest_ns = 0;
	char path[512];

	part_path(part, ".stalls", path, sizeof(path));
	file = fopen(path, "re");
	while (file && fscanf(file, "%llu %llu", &begin_ns, &length_ns) == 2) {
		if (begin_ns <= to_ns && begin_ns + length_ns >= from_ns && length_ns > longest_ns)
			longest_ns = length_ns;
	}
	return longest_ns;
}

static int longest(const char *record, const char *from, const char *to)
{
	uint64_t longest_ns = 0;

	for (unsigned i = 0; i < PARTS; i++) {
		const struct part part = { .kind = kinds[i], .record = record };
		uint64_t ns = longest_of(&part, strtoull(from, NULL, 10), strtoull(to, NULL, 10));

		if (ns > longest_ns)
			longest_ns = ns;
	}
	printf("%.1f\n", (double)longest_ns / 1000000);
	return EXIT_SUCCESS;
}

int main(int argc, char *argv[])
{
	if (argc == 4 && strcmp(argv[1], "run") == 0)
		return run(argv[2], argv[3]);
	if (argc == 4 && strcmp(argv[1], "verify") == 0)
		return verify(argv[2], argv[3]);
	if (argc == 5 && strcmp(argv[1], "longest") == 0)
		return longest(argv[2], argv[3], argv[4]);
	fprintf(stderr,
		"usage: demo_workload run|verify DIR RECORD, demo_workload longest RECORD FROM TO\n");
	return 2;
}
