/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The modes random8k and append.
 *
 * random8k writes blocks of 8 KiB to random places of one file at a fixed rate, and
 * times each write: the longest is the freeze that a workload sees. Its record is an
 * array of {sequence number, block, state}: an item before each write and one after;
 * the first says in its sequence number how large the file is.
 *
 * append writes numbered lines to a log with O_APPEND, rotated by rename. Its record
 * is the number of the last line begun and of the last one acknowledged.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/writer.h"

enum {
	BLOCK_BYTES = 8192,
	BUCKETS = 40,
	WORST_MAX = 5,
	LINE_BYTES = 128,
	LINES_PER_LOG = 20000,
};

enum state { STATE_SIZE, STATE_BEGUN, STATE_DONE };

struct item {
	uint64_t seq;
	uint32_t block, state;
};

struct stall {
	uint64_t ns, at_ns;
};

static struct {
	const struct writer_options *options;
	int fd, record_fd;
	uint64_t blocks;
	uint64_t *seq;	  /* of each block, as acknowledged; owned */
	struct item last; /* the item read or written last */
	uint64_t histogram[BUCKETS], count;
	struct stall worst[WORST_MAX];
} r8;

static void own_path(const struct writer_options *options, const char *name,
		     char path[static PATH_MAX])
{
	snprintf(path, PATH_MAX, "%s/w%u/%s", options->dir, options->id, name);
}

static void make_own_dir(const struct writer_options *options)
{
	char path[PATH_MAX];

	own_path(options, "", path);
	if (mkdir(path, 0777) < 0 && errno != EEXIST)
		writer_fail_errno(options, errno, "mkdir of '%s'", path);
}

/* ---- random8k ------------------------------------------------------------------------- */

static void block_bytes(uint64_t seq, uint64_t block, uint8_t bytes[static BLOCK_BYTES])
{
	fill_bytes(bytes, BLOCK_BYTES, seq * 0x10001 + r8.options->id, block * BLOCK_BYTES);
}

/* Reads the record, or begins one. */
static void r8_replay(void)
{
	struct item item = { .seq = r8.options->size, .state = STATE_SIZE };

	r8.record_fd = open(r8.options->record, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (r8.record_fd < 0)
		die_errno("cannot open the record '%s'", r8.options->record);
	if (read(r8.record_fd, &item, sizeof(item)) == 0 &&
	    write(r8.record_fd, &item, sizeof(item)) != (ssize_t)sizeof(item))
		die_errno("cannot write the record");
	r8.blocks = item.seq / BLOCK_BYTES;
	r8.seq = xcalloc(r8.blocks, sizeof(*r8.seq));
	while (read(r8.record_fd, &item, sizeof(item)) == (ssize_t)sizeof(item)) {
		if (item.block >= r8.blocks)
			die(TEST_TROUBLE, "the record has a block past the end");
		if (item.state == STATE_DONE)
			r8.seq[item.block] = item.seq;
		r8.last = item;
	}
}

static void r8_note(struct item item)
{
	r8.last = item;
	if (write(r8.record_fd, &item, sizeof(item)) != (ssize_t)sizeof(item))
		die_errno("cannot write the record");
}

static void r8_count(uint64_t took_ns, uint64_t at_ns)
{
	unsigned bucket = 0, i;
	uint64_t us = took_ns / 1000;

	r8.count++;
	while (bucket < BUCKETS - 1 && us >> bucket)
		bucket++;
	r8.histogram[bucket]++;
	for (i = 0; i < WORST_MAX && took_ns <= r8.worst[i].ns; i++)
		;
	if (i == WORST_MAX)
		return;
	memmove(&r8.worst[i + 1], &r8.worst[i], (WORST_MAX - 1 - i) * sizeof(r8.worst[0]));
	r8.worst[i] = (struct stall){ took_ns, at_ns };
}

static void r8_write(uint32_t block, uint64_t seq, uint64_t start_ns)
{
	uint8_t bytes[BLOCK_BYTES] __attribute__((aligned(4096)));
	uint64_t before, after;
	ssize_t n;

	block_bytes(seq, block, bytes);
	r8_note((struct item){ seq, block, STATE_BEGUN });
	before = now_ns();
	n = pwrite(r8.fd, bytes, BLOCK_BYTES, (off_t)block * BLOCK_BYTES);
	after = now_ns();
	if (n != BLOCK_BYTES)
		writer_fail_errno(r8.options, n < 0 ? errno : ENOSPC, "write %llu of block %u",
				  (unsigned long long)seq, block);
	r8_note((struct item){ seq, block, STATE_DONE });
	r8.seq[block] = seq;
	r8_count(after - before, before - start_ns);
}

static void r8_fill(void)
{
	uint8_t bytes[BLOCK_BYTES] __attribute__((aligned(4096)));
	uint64_t block;

	for (block = 0; block < r8.blocks; block++) {
		block_bytes(0, block, bytes);
		if (pwrite(r8.fd, bytes, BLOCK_BYTES, (off_t)(block * BLOCK_BYTES)) != BLOCK_BYTES)
			writer_fail_errno(r8.options, errno, "first write of block %llu",
					  (unsigned long long)block);
	}
}

static double percentile_ms(double part)
{
	uint64_t wanted = (uint64_t)((double)r8.count * part), sum = 0;
	unsigned i;

	for (i = 0; i < BUCKETS - 1; i++) {
		sum += r8.histogram[i];
		if (sum > wanted)
			break;
	}
	return (double)(1ull << i) / 1000;
}

static void r8_report(double seconds)
{
	unsigned i;

	printf("writer %u: random8k: %llu writes, %.0f/s; p50 < %.3f ms, p99 < %.3f ms, "
	       "p99.9 < %.3f ms\n",
	       r8.options->id, (unsigned long long)r8.count, (double)r8.count / seconds,
	       percentile_ms(0.5), percentile_ms(0.99), percentile_ms(0.999));
	for (i = 0; i < BUCKETS; i++)
		if (r8.histogram[i])
			printf("  < %10.3f ms: %llu\n", (double)(1ull << i) / 1000,
			       (unsigned long long)r8.histogram[i]);
	for (i = 0; i < WORST_MAX && r8.worst[i].ns; i++)
		printf("  stall %.3f ms at %.3f s\n", (double)r8.worst[i].ns / 1e6,
		       (double)r8.worst[i].at_ns / 1e9);
	printf("longest_stall_us=%llu\n", (unsigned long long)(r8.worst[0].ns / 1000));
}

void random8k_run(const struct writer_options *options)
{
	struct rng rng = { options->seed * 31 + options->id };
	struct pace pace;
	char path[PATH_MAX];
	struct stat st;

	r8.options = options;
	make_own_dir(options);
	own_path(options, "random8k", path);
	r8_replay();
	r8.fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | (options->is_direct ? O_DIRECT : 0),
		     0644);
	if (r8.fd < 0 || fstat(r8.fd, &st) < 0)
		writer_fail_errno(options, errno, "open of '%s'", path);
	if (r8.last.seq == 0)
		r8_fill();
	rng.state += r8.last.seq;
	pace_start(&pace, options);
	if (r8.last.state == STATE_BEGUN) /* by one before us: its outcome is unknown */
		r8_write(r8.last.block, r8.last.seq + 1, pace.start_ns);
	while (pace_next(&pace))
		r8_write((uint32_t)rng_below(&rng, r8.blocks), r8.last.seq + 1, pace.start_ns);
	r8_report((double)(now_ns() - pace.start_ns) / 1e9);
	if (close(r8.fd) < 0)
		writer_fail_errno(options, errno, "close of '%s'", path);
	free(r8.seq);
}

static bool block_is_right(uint64_t block, const uint8_t *found)
{
	uint8_t wanted[BLOCK_BYTES], begun[BLOCK_BYTES];
	bool is_pending = r8.last.state == STATE_BEGUN && r8.last.block == block;
	unsigned i;

	block_bytes(r8.seq[block], block, wanted);
	if (memcmp(found, wanted, BLOCK_BYTES) == 0)
		return true;
	if (!is_pending)
		return false;
	block_bytes(r8.last.seq, block, begun);
	for (i = 0; i < BLOCK_BYTES; i++)
		if (found[i] != wanted[i] && found[i] != begun[i])
			return false;
	return true;
}

uint64_t random8k_check(const struct writer_options *options)
{
	uint8_t found[BLOCK_BYTES];
	uint64_t block, differences = 0;
	char path[PATH_MAX];
	struct stat st;

	r8.options = options;
	own_path(options, "random8k", path);
	r8_replay();
	r8.fd = open(path, O_RDONLY | O_CLOEXEC);
	if (r8.fd < 0 || fstat(r8.fd, &st) < 0)
		die_errno("cannot open '%s'", path);
	if ((uint64_t)st.st_size != r8.blocks * BLOCK_BYTES) {
		printf("writer %u: '%s' has %lld bytes, not %llu\n", options->id, path,
		       (long long)st.st_size, (unsigned long long)r8.blocks * BLOCK_BYTES);
		differences++;
	}
	for (block = 0; block < r8.blocks; block++) {
		if (pread(r8.fd, found, BLOCK_BYTES, (off_t)(block * BLOCK_BYTES)) == BLOCK_BYTES &&
		    block_is_right(block, found))
			continue;
		if (++differences < 10)
			printf("writer %u: block %llu is not what write %llu put there\n",
			       options->id, (unsigned long long)block,
			       (unsigned long long)r8.seq[block]);
	}
	close(r8.fd);
	free(r8.seq);
	return differences;
}

/* ---- append --------------------------------------------------------------------------- */

static struct {
	const struct writer_options *options;
	int fd, record_fd;
	uint64_t begun, done; /* line numbers, from 1 */
} ap;

static void line_text(uint64_t number, char line[static LINE_BYTES + 1])
{
	int n = snprintf(line, LINE_BYTES + 1, "%012llu writer %u ", (unsigned long long)number,
			 ap.options->id);
	uint64_t hash;

	while (n < LINE_BYTES - 1) {
		hash = hash_bytes(&number, sizeof(number)) + (uint64_t)n;
		n += snprintf(line + n, (size_t)(LINE_BYTES - n), "%016llx",
			      (unsigned long long)hash_bytes(&hash, sizeof(hash)));
	}
	line[LINE_BYTES - 1] = '\n';
	line[LINE_BYTES] = '\0';
}

static void log_path(uint64_t number, char path[static PATH_MAX])
{
	char name[64];

	snprintf(name, sizeof(name), "log.%06llu",
		 (unsigned long long)((number - 1) / LINES_PER_LOG));
	own_path(ap.options, name, path);
}

static void ap_replay(void)
{
	uint64_t numbers[2];

	ap.record_fd = open(ap.options->record, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (ap.record_fd < 0)
		die_errno("cannot open the record '%s'", ap.options->record);
	if (pread(ap.record_fd, numbers, sizeof(numbers), 0) == (ssize_t)sizeof(numbers)) {
		ap.begun = numbers[0];
		ap.done = numbers[1];
	}
}

static void ap_note(uint64_t begun, uint64_t done)
{
	uint64_t numbers[2] = { begun, done };

	ap.begun = begun;
	ap.done = done;
	if (pwrite(ap.record_fd, numbers, sizeof(numbers), 0) != (ssize_t)sizeof(numbers))
		die_errno("cannot write the record");
}

/* "log" is the one written; when it is full it becomes log.N. */
static void ap_rotate(void)
{
	char path[PATH_MAX], old[PATH_MAX];

	own_path(ap.options, "log", path);
	log_path(ap.done, old);
	if (ap.fd >= 0 && close(ap.fd) < 0)
		writer_fail_errno(ap.options, errno, "close of '%s'", path);
	if (rename(path, old) < 0)
		writer_fail_errno(ap.options, errno, "rename of '%s'", path);
	ap.fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	if (ap.fd < 0)
		writer_fail_errno(ap.options, errno, "open of '%s'", path);
}

static void ap_write(void)
{
	char line[LINE_BYTES + 1];
	uint64_t number = ap.done + 1;
	ssize_t n;

	line_text(number, line);
	ap_note(number, ap.done);
	n = write(ap.fd, line, LINE_BYTES);
	if (n != LINE_BYTES)
		writer_fail_errno(ap.options, n < 0 ? errno : ENOSPC, "append of line %llu",
				  (unsigned long long)number);
	ap_note(number, number);
	if (number % 1000 == 0 && fsync(ap.fd) < 0)
		writer_fail_errno(ap.options, errno, "fsync of the log");
	if (number % LINES_PER_LOG == 0)
		ap_rotate();
}

/* The line under way when one before us ended may be there whole, in part or not. */
static void ap_settle(void)
{
	char path[PATH_MAX], old[PATH_MAX];
	struct stat st;
	uint64_t lines;

	own_path(ap.options, "log", path);
	if (fstat(ap.fd, &st) < 0)
		writer_fail_errno(ap.options, errno, "fstat of '%s'", path);
	if (ap.done == 0 || ap.begun == 0)
		return;
	log_path(ap.done, old);
	if (ap.done % LINES_PER_LOG == 0 && st.st_size >= (off_t)LINE_BYTES * LINES_PER_LOG) {
		ap_rotate(); /* it ended between the line and the rotation */
		return;
	}
	lines = (uint64_t)st.st_size / LINE_BYTES;
	if (ftruncate(ap.fd, (off_t)(lines * LINE_BYTES)) < 0)
		writer_fail_errno(ap.options, errno, "ftruncate of '%s'", path);
	lines += ap.done / LINES_PER_LOG * LINES_PER_LOG;
	if (lines != ap.done && lines != ap.begun)
		writer_fail_errno(ap.options, 0, "the log has %llu lines, not %llu",
				  (unsigned long long)lines, (unsigned long long)ap.done);
	ap_note(lines, lines);
}

void append_run(const struct writer_options *options)
{
	struct pace pace;
	char path[PATH_MAX];

	ap.options = options;
	make_own_dir(options);
	ap_replay();
	own_path(options, "log", path);
	ap.fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	if (ap.fd < 0)
		writer_fail_errno(options, errno, "open of '%s'", path);
	ap_settle();
	pace_start(&pace, options);
	while (pace_next(&pace))
		ap_write();
	if (close(ap.fd) < 0)
		writer_fail_errno(options, errno, "close of '%s'", path);
	printf("writer %u: %llu lines appended\n", options->id, (unsigned long long)ap.done);
}

/* Reads one log from line @number on; returns the number after its last whole line. */
static uint64_t check_log(const char *path, uint64_t number, uint64_t *differences)
{
	char line[LINE_BYTES + 1], found[LINE_BYTES];
	FILE *file = fopen(path, "re");
	size_t n;

	if (!file)
		return number;
	while ((n = fread(found, 1, LINE_BYTES, file)) > 0) {
		line_text(number, line);
		if (memcmp(found, line, n) != 0 || (n < LINE_BYTES && number != ap.begun)) {
			printf("writer %u: line %llu in '%s' is wrong or torn\n", ap.options->id,
			       (unsigned long long)number, path);
			(*differences)++;
			break;
		}
		number += n == LINE_BYTES;
	}
	fclose(file);
	return number;
}

uint64_t append_check(const struct writer_options *options)
{
	uint64_t differences = 0, number = 1, next;
	char path[PATH_MAX];

	ap.options = options;
	ap_replay();
	while (differences == 0) {
		log_path(number, path);
		next = check_log(path, number, &differences);
		if (next == number)
			break;
		number = next;
	}
	own_path(options, "log", path);
	if (differences == 0)
		number = check_log(path, number, &differences);
	if (differences == 0 && number - 1 != ap.done && number - 1 != ap.begun) {
		printf("writer %u: %llu lines are there, not %llu\n", options->id,
		       (unsigned long long)(number - 1), (unsigned long long)ap.done);
		differences++;
	}
	return differences;
}
