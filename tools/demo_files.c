/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that are made under a temporary name and renamed into place, replaced, moved
 * between directories, and deleted. What must be where, and with which bytes, is
 * known at any time: the bytes follow from slot and generation.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/demo_workload.h"
#include "util/cleanup.h"

enum { SLOTS = 400, DIRS = 4, BYTES_MAX = 32 * 1024, PAUSE_MS = 2 };

struct slot {
	unsigned generation; /* 0: no such file */
	unsigned dir;
};

struct files {
	int root;
	unsigned done;
	uint64_t random;
	struct slot slots[SLOTS];
	char bytes[BYTES_MAX];
};

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* The bytes of one file; returns how many. */
static size_t make_bytes(unsigned slot, unsigned generation, char bytes[static BYTES_MAX])
{
	uint64_t state = (uint64_t)slot * 1000003 + generation * 7919ull + 1;
	size_t length = next_random(&state) % BYTES_MAX;

	for (size_t i = 0; i < length; i += sizeof(state)) {
		uint64_t word = next_random(&state);

		memcpy(bytes + i, &word, length - i < sizeof(word) ? length - i : sizeof(word));
	}
	return length;
}

static void slot_name(unsigned dir, unsigned slot, char ret_name[static 64])
{
	(void)snprintf(ret_name, 64, "d%u/file-%03u", dir, slot); /* always fits */
}

/* ---- the record ---------------------------------------------------------- */

static int save(struct part *part, const struct files *files)
{
	char path[512];
	FILE *file;

	part_path(part, ".slots", path, sizeof(path));
	file = fopen(path, "we");
	if (!file)
		return part_failed(part, path);
	for (unsigned i = 0; i < SLOTS; i++)
		fprintf(file, "%u %u\n", files->slots[i].generation, files->slots[i].dir);
	if (fclose(file) != 0)
		return part_failed(part, path);
	return part_remember(part, files->done);
}

static void load(const struct part *part, struct files *files)
{
	_cleanup_fclose_ FILE *file = NULL;
	char path[512];

	part_path(part, ".slots", path, sizeof(path));
	file = fopen(path, "re");
	for (unsigned i = 0; file && i < SLOTS; i++) {
		if (fscanf(file, "%u %u", &files->slots[i].generation, &files->slots[i].dir) != 2)
			break;
	}
	files->done = (unsigned)part_recall(part);
}

/* ---- at work ------------------------------------------------------------- */

static int write_file(struct part *part, struct files *files, const char *name, unsigned slot,
		      unsigned generation)
{
	size_t length = make_bytes(slot, generation, files->bytes);
	int fd = openat(files->root, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

	if (fd < 0)
		return part_failed(part, "create");
	if (write(fd, files->bytes, length) != (ssize_t)length) {
		(void)part_failed(part, "write");
		close(fd);
		return -1;
	}
	return close(fd) < 0 ? part_failed(part, "close") : 0;
}

static int replace(struct part *part, struct files *files, unsigned i)
{
	struct slot *slot = &files->slots[i];
	char name[64], temporary[64];
	unsigned generation = files->done + 1;

	if (slot->generation == 0)
		slot->dir = (unsigned)(next_random(&files->random) % DIRS);
	slot_name(slot->dir, i, name);
	(void)snprintf(temporary, sizeof(temporary), "d%u/.new-%u", slot->dir,
		       generation); /* always fits */
	if (write_file(part, files, temporary, i, generation) < 0)
		return -1;
	if (renameat(files->root, temporary, files->root, name) < 0)
		return part_failed(part, "rename");
	slot->generation = generation;
	return 0;
}

static int change(struct part *part, struct files *files, unsigned i)
{
	struct slot *slot = &files->slots[i];
	char from[64], to[64];
	unsigned dir;

	if (slot->generation == 0 || next_random(&files->random) % 2)
		return replace(part, files, i);
	slot_name(slot->dir, i, from);
	if (next_random(&files->random) % 2) {
		slot->generation = 0;
		return unlinkat(files->root, from, 0) < 0 ? part_failed(part, "unlink") : 0;
	}
	dir = (slot->dir + 1) % DIRS;
	slot_name(dir, i, to);
	slot->dir = dir;
	return renameat(files->root, from, files->root, to) < 0 ? part_failed(part, "rename") : 0;
}

static int make_dirs(struct part *part, struct files *files)
{
	for (unsigned i = 0; i < DIRS; i++) {
		char name[16];

		(void)snprintf(name, sizeof(name), "d%u", i); /* always fits */
		if (mkdirat(files->root, name, 0755) < 0 && errno != EEXIST)
			return part_failed(part, "mkdir");
	}
	return 0;
}

static struct files *files_open(struct part *part)
{
	struct files *files = calloc(1, sizeof(*files));

	if (!files)
		abort();
	files->random = 88172645463325252ull;
	files->root = open(part->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (files->root < 0) {
		(void)part_failed(part, part->dir);
		free(files);
		return NULL;
	}
	load(part, files);
	return files;
}

static void files_close(struct files *files)
{
	files->root = fd_close(files->root);
	free(files);
}

static int run(struct part *part)
{
	struct files *files = files_open(part);
	int r;

	if (!files)
		return -1;
	r = make_dirs(part, files);
	while (r == 0 && !atomic_load(part->is_over)) {
		part_begin(part);
		r = change(part, files, (unsigned)(next_random(&files->random) % SLOTS));
		part_end(part);
		if (r == 0)
			files->done++;
		part_pause(PAUSE_MS);
	}
	if (save(part, files) < 0)
		r = -1;
	files_close(files);
	return r;
}

/* ---- afterwards ---------------------------------------------------------- */

static bool is_as_written(struct files *files, unsigned i)
{
	char name[64], found[BYTES_MAX + 1];
	_cleanup_close_ int fd = -1;
	size_t length;

	slot_name(files->slots[i].dir, i, name);
	length = make_bytes(i, files->slots[i].generation, files->bytes);
	fd = openat(files->root, name, O_RDONLY | O_CLOEXEC);
	return fd >= 0 && read(fd, found, sizeof(found)) == (ssize_t)length &&
	       memcmp(found, files->bytes, length) == 0;
}

static unsigned count_names(const struct files *files)
{
	unsigned count = 0;

	for (unsigned i = 0; i < DIRS; i++) {
		struct dirent *entry;
		char name[16];
		DIR *list;
		int fd;

		(void)snprintf(name, sizeof(name), "d%u", i); /* always fits */
		fd = openat(files->root, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		list = fd < 0 ? NULL : fdopendir(fd);
		while (list && (entry = readdir(list)))
			count +=
				strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
		if (list)
			closedir(list);
	}
	return count;
}

static int verify(struct part *part)
{
	struct files *files = files_open(part);
	unsigned expected = 0, good = 0, there;

	if (!files)
		return -1;
	for (unsigned i = 0; i < SLOTS; i++) {
		if (files->slots[i].generation == 0)
			continue;
		expected++;
		good += is_as_written(files, i);
	}
	there = count_names(files);
	printf("%u of %u files as they were last written, %u other names; %u were made, moved or deleted\n",
	       good, expected, there - good, files->done);
	files_close(files);
	return good == expected && there == expected ? 0 : -1;
}

const struct part_kind part_files = { "files", run, verify };
