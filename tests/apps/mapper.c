/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mapper FILE --state STATE --id N --until UNTIL --cold COLD [--sync]
 * mapper FILE --state STATE --check [--least STATE | --synced STATE]
 *
 * Up to PROCESSES programs map FILE shared and store into it until UNTIL is there, each
 * into a cell of its own in every page, and from COLD on only in half of the pages. What was
 * stored, and with --sync what msync() has acknowledged, is noted in STATE, which is not on
 * the mount.
 *
 * --check compares FILE with STATE: exactly, or as what may be between an earlier copy of
 * it and now; --synced: of the copy only what was synced counts.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/lib/testlib.h"

enum {
	PAGES = 64,
	PAGE_BYTES = 4096,
	PROCESSES = 8,
	CELL_BYTES = PAGE_BYTES / PROCESSES,
	CELL_WORDS = CELL_BYTES / 8,
	ROUND_US = 10000,
};

struct note {
	_Atomic uint64_t stored, synced;
};

struct state {
	struct note note[PROCESSES][PAGES];
};

static void *map(const char *path, size_t size, bool is_writable)
{
	int fd = open(path, (is_writable ? O_RDWR | O_CREAT : O_RDONLY) | O_CLOEXEC, 0644);
	void *bytes;

	if (fd < 0 || (is_writable && ftruncate(fd, (off_t)size) < 0))
		die_errno("%s", path);
	bytes = mmap(NULL, size, is_writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd,
		     0);
	if (bytes == MAP_FAILED)
		die_errno("mmap of %s", path);
	close(fd); /* the map is what keeps it */
	return bytes;
}

static _Atomic uint64_t *cell_of(uint8_t *bytes, unsigned id, unsigned page)
{
	return (_Atomic uint64_t *)(bytes + page * PAGE_BYTES + id * CELL_BYTES);
}

static void store_round(uint8_t *bytes, struct state *state, unsigned id, uint64_t value,
			unsigned pages, bool is_synced)
{
	for (unsigned page = 0; page < pages; page++) {
		_Atomic uint64_t *cell;

		if ((page + value) % 3)
			continue; /* so that pages are of any age */
		cell = cell_of(bytes, id, page);
		for (unsigned word = 0; word < CELL_WORDS; word++)
			atomic_store(&cell[word], value);
		atomic_store(&state->note[id][page].stored, value);
	}
	if (!is_synced)
		return;
	if (msync(bytes, PAGES * PAGE_BYTES, MS_SYNC) < 0)
		die_errno("msync");
	for (unsigned page = 0; page < PAGES; page++)
		atomic_store(&state->note[id][page].synced,
			     atomic_load(&state->note[id][page].stored));
}

static void run(const char *path, struct state *state, unsigned id, const char *until,
		const char *cold, bool is_synced)
{
	uint8_t *bytes = map(path, PAGES * PAGE_BYTES, /* is_writable= */ true);
	uint64_t value;

	for (value = 1; access(until, F_OK) < 0; value++) {
		unsigned pages = access(cold, F_OK) < 0 ? PAGES : PAGES / 2;

		store_round(bytes, state, id, value, pages, is_synced);
		usleep(ROUND_US);
	}
	if (munmap(bytes, PAGES * PAGE_BYTES) < 0)
		die_errno("munmap");
	printf("%llu rounds\n", (unsigned long long)value);
}

/* ---- checking ------------------------------------------------------------ */

static uint64_t least_of(const struct note *note, bool is_synced)
{
	return atomic_load(is_synced ? &note->synced : &note->stored);
}

static unsigned check_cell(const _Atomic uint64_t *cell, uint64_t least, uint64_t most,
			   bool is_exact, unsigned id, unsigned page)
{
	unsigned words = is_exact ? CELL_WORDS : 1; /* in between it may be half stored */

	for (unsigned word = 0; word < words; word++) {
		uint64_t found = atomic_load(&cell[word]);

		if (found >= least && found <= most)
			continue;
		printf("page %u of %u: %llu, not %llu to %llu\n", page, id,
		       (unsigned long long)found, (unsigned long long)least,
		       (unsigned long long)most);
		return 1;
	}
	return 0;
}

/* @least: an earlier copy of @state, or NULL. */
static void check(const char *path, const struct state *state, const struct state *least,
		  bool is_synced)
{
	uint8_t *bytes = map(path, PAGES * PAGE_BYTES, /* is_writable= */ false);
	unsigned wrong = 0;
	uint64_t sum = 0;

	for (unsigned id = 0; id < PROCESSES; id++) {
		for (unsigned page = 0; page < PAGES; page++) {
			uint64_t stored = atomic_load(&state->note[id][page].stored);
			uint64_t bound =
				least ? least_of(&least->note[id][page], is_synced) : stored;

			wrong += check_cell(cell_of(bytes, id, page), bound,
					    least ? stored + 3 : stored, !least, id, page);
			sum += bound;
		}
	}
	if (wrong)
		die(1, "%u of %u cells are wrong", wrong, PROCESSES * PAGES);
	if (sum == 0)
		die(1, "nothing was stored");
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "check", no_argument, NULL, 'c' },
		{ "cold", required_argument, NULL, 'o' },
		{ "id", required_argument, NULL, 'i' },
		{ "least", required_argument, NULL, 'l' },
		{ "state", required_argument, NULL, 's' },
		{ "sync", no_argument, NULL, 'm' },
		{ "synced", required_argument, NULL, 'y' },
		{ "until", required_argument, NULL, 'u' },
		{ 0 },
	};
	const char *state = NULL, *least = NULL, *until = NULL, *cold = NULL;
	bool is_check = false, is_synced = false;
	unsigned id = 0;
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		switch (option) {
		case 'c':
			is_check = true;
			break;
		case 'i':
			id = (unsigned)parse_number("--id", optarg);
			break;
		case 'y':
			is_synced = true;
			least = optarg;
			break;
		case 'l':
			least = optarg;
			break;
		case 's':
			state = optarg;
			break;
		case 'm':
			is_synced = true;
			break;
		case 'o':
			cold = optarg;
			break;
		case 'u':
			until = optarg;
			break;
		default:
			return TEST_TROUBLE;
		}
	}
	if (optind != argc - 1 || !state || id >= PROCESSES || !(is_check || (until && cold)))
		die(TEST_TROUBLE, "usage: see mapper.c");
	if (is_check)
		check(argv[optind], map(state, sizeof(struct state), /* is_writable= */ false),
		      least ? map(least, sizeof(struct state), /* is_writable= */ false) : NULL,
		      is_synced);
	else
		run(argv[optind], map(state, sizeof(struct state), /* is_writable= */ true), id,
		    until, cold, is_synced);
	return 0;
}
