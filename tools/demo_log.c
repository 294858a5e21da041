/* SPDX-License-Identifier: Apache-2.0 */
/* A log that stays open and is appended to: numbered records, all of one length. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/demo_workload.h"
#include "util/cleanup.h"

enum { PAUSE_MS = 1, RECORD_BYTES = 64, SYNC_EVERY = 256 };

static void make_record(uint64_t number, char record[static RECORD_BYTES + 1])
{
	int n = snprintf(record, RECORD_BYTES + 1,
			 "%012llu something happened, and was written down ",
			 (unsigned long long)number);

	memset(record + n, '.', (size_t)(RECORD_BYTES - 1 - n));
	record[RECORD_BYTES - 1] = '\n';
	record[RECORD_BYTES] = '\0';
}

static int append(struct part *part, int fd, uint64_t number)
{
	char record[RECORD_BYTES + 1];
	ssize_t n;

	make_record(number, record);
	part_begin(part);
	n = write(fd, record, RECORD_BYTES);
	part_end(part);
	if (n != RECORD_BYTES) {
		errno = n < 0 ? errno : EIO;
		return part_failed(part, "write");
	}
	if (number % SYNC_EVERY != 0)
		return 0;
	part_begin(part);
	n = fdatasync(fd);
	part_end(part);
	return n < 0 ? part_failed(part, "fdatasync") : 0;
}

static int open_log(struct part *part, int flags)
{
	char path[512];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/events.log",
		       part->dir); /* a cut path fails to open */
	fd = open(path, flags | O_CLOEXEC, 0644);
	return fd < 0 ? part_failed(part, path) : fd;
}

static int run(struct part *part)
{
	_cleanup_close_ int fd = open_log(part, O_WRONLY | O_APPEND | O_CREAT);
	uint64_t number = part_recall(part);
	int r = fd < 0 ? -1 : 0;

	while (r == 0 && !atomic_load(part->is_over)) {
		r = append(part, fd, number + 1);
		if (r == 0)
			number++;
		part_pause(PAUSE_MS);
	}
	return part_remember(part, number) < 0 ? -1 : r;
}

static int verify(struct part *part)
{
	int fd = open_log(part, O_RDONLY);
	_cleanup_fclose_ FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
	char record[RECORD_BYTES + 1], found[RECORD_BYTES + 1] = "";
	uint64_t expected = part_recall(part), number = 0;

	if (!file)
		return -1;
	while (fread(found, 1, RECORD_BYTES, file) == RECORD_BYTES) {
		make_record(number + 1, record);
		if (memcmp(found, record, RECORD_BYTES) != 0) {
			printf("record %llu is not there: '%.*s'\n", (unsigned long long)number + 1,
			       RECORD_BYTES - 1, found);
			return -1;
		}
		number++;
	}
	printf("%llu of %llu records, each once and in order\n", (unsigned long long)number,
	       (unsigned long long)expected);
	return number == expected && ftello(file) == (off_t)(number * RECORD_BYTES) ? 0 : -1;
}

const struct part_kind part_log = { "log", run, verify };
