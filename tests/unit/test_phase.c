/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whatever fails or dies, the file holds the record before the write or the one
 * after it, and what was once acknowledged is never forgotten.
 */
#include "journal/phase.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include "tests/unit/journal_fixture.h"
#include "util/log.h"

enum { BLOCK_BYTES = 4096, SLOT_BYTES = 512 };

/* ---- faults: linked with --wrap ------------------------------------------ */

/* 0: no fault; 1: the next call fails. */
static int fault_in_calls;
/* Whether a failing write leaves half of its bytes. */
static bool fault_tears;
static int sync_count;

ssize_t __real_pwrite64(int fd, const void *bytes, size_t length, off_t offset);
ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t length, off_t offset);
int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
int __real_fsync(int fd);
int __wrap_fsync(int fd);

static bool fault(void)
{
	if (fault_in_calls == 0 || --fault_in_calls > 0)
		return false;
	errno = EIO;
	return true;
}

ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t length, off_t offset)
{
	if (!fault())
		return __real_pwrite64(fd, bytes, length, offset);
	if (fault_tears)
		assert_true(__real_pwrite64(fd, bytes, length / 2, offset) > 0);
	errno = EIO;
	return -1;
}

int __wrap_fdatasync(int fd)
{
	sync_count++;
	return fault() ? -1 : __real_fdatasync(fd);
}

int __wrap_fsync(int fd)
{
	return fault() ? -1 : __real_fsync(fd);
}

/* ---- helpers ------------------------------------------------------------- */

static const struct phase_record initial = { .active = SIDE_A, .phase = PHASE_BASELINE };

static struct phase_record record_of(uint32_t number)
{
	return (struct phase_record){
		.active = number % 2 ? SIDE_B : SIDE_A,
		.phase = (enum phase)(number % PHASE_MAX),
		.has_gap = number % 3 == 0,
		.is_running = number % 5 == 0,
		.last_freeze_ms = number,
	};
}

static void assert_record(const struct phase_record *found, uint32_t number)
{
	struct phase_record record = record_of(number);

	assert_int_equal(found->last_freeze_ms, number);
	assert_int_equal(found->active, record.active);
	assert_int_equal(found->phase, record.phase);
	assert_int_equal(found->has_gap, record.has_gap);
	assert_int_equal(found->is_running, record.is_running);
}

static int write_number(struct phase_file *file, uint32_t number)
{
	struct phase_record record = record_of(number);

	return phase_file_write(file, &record);
}

static uint32_t read_number(void)
{
	struct phase_record record;
	struct phase_file *file;

	assert_int_equal(phase_file_open(test_path("p"), &initial, &record, &file), 0);
	phase_file_close(file);
	assert_record(&record, record.last_freeze_ms);
	return record.last_freeze_ms;
}

static struct phase_file *open_phase(void)
{
	struct phase_record record;
	struct phase_file *file;

	assert_int_equal(phase_file_open(test_path("p"), &initial, &record, &file), 0);
	return file;
}

static void spoil(unsigned slot, off_t at)
{
	int fd = open(test_path("p/phase"), O_RDWR);
	uint8_t byte;

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, slot * BLOCK_BYTES + at), 1);
	byte ^= 0x10;
	assert_int_equal(pwrite(fd, &byte, 1, slot * BLOCK_BYTES + at), 1);
	close(fd);
}

static int set_up(void **state)
{
	(void)state;
	fault_in_calls = 0;
	fault_tears = false;
	test_remove(test_path("p"));
	return mkdir(test_path("p"), 0700);
}

/* ---- cases --------------------------------------------------------------- */

static void a_new_file_holds_the_initial_record(void **state)
{
	struct phase_record record;
	struct phase_file *file;
	struct stat st;

	(void)state;
	assert_int_equal(phase_file_open(test_path("p"), &initial, &record, &file), 0);
	assert_int_equal(record.active, SIDE_A);
	assert_int_equal(record.phase, PHASE_BASELINE);
	assert_false(record.has_gap);
	phase_file_close(file);
	assert_int_equal(stat(test_path("p/phase"), &st), 0);
	assert_int_equal(st.st_size, 2 * BLOCK_BYTES);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_not_equal(access(test_path("p/phase.new"), F_OK), 0);
}

static void the_last_record_is_read_again(void **state)
{
	struct phase_file *file = open_phase();

	(void)state;
	for (uint32_t number = 1; number < 20; number++) {
		assert_int_equal(write_number(file, number), 0);
		assert_int_equal(read_number(), number);
	}
	phase_file_close(file);
}

static void writing_goes_on_after_each_open(void **state)
{
	(void)state;
	for (uint32_t number = 1; number < 10; number++) {
		struct phase_file *file = open_phase();

		assert_int_equal(write_number(file, number), 0);
		phase_file_close(file);
		assert_int_equal(read_number(), number);
	}
}

static void an_open_syncs_what_it_read(void **state)
{
	(void)state;
	phase_file_close(open_phase());
	sync_count = 0;
	phase_file_close(open_phase());
	assert_int_equal(sync_count, 1);
	fault_in_calls = 1;
	{
		struct phase_record record;
		struct phase_file *file;

		assert_int_equal(phase_file_open(test_path("p"), &initial, &record, &file), -EIO);
		fault_in_calls = 2;
		assert_int_equal(phase_file_open(test_path("p"), &initial, &record, &file), -EIO);
	}
}

static void a_torn_slot_leaves_the_other(void **state)
{
	(void)state;
	/* Any byte of the newer slot; the older one then counts. */
	for (off_t at = 0; at < SLOT_BYTES; at += 7) {
		struct phase_file *file = open_phase();

		assert_int_equal(write_number(file, 1), 0); /* in one slot */
		assert_int_equal(write_number(file, 2), 0); /* in the other */
		phase_file_close(file);
		for (unsigned slot = 0; slot < 2; slot++) {
			uint32_t number;

			spoil(slot, at);
			number = read_number();
			assert_true(number == 1 || number == 2);
			spoil(slot, at); /* back */
			assert_int_equal(read_number(), 2);
		}
	}
}

static void two_torn_slots_are_refused(void **state)
{
	struct phase_file *file = open_phase();
	struct phase_record record;

	(void)state;
	assert_int_equal(write_number(file, 1), 0);
	phase_file_close(file);
	spoil(0, 30);
	spoil(1, 30);
	assert_int_equal(phase_file_open(test_path("p"), &initial, &record, &file), -EBADMSG);
	assert_int_equal(truncate(test_path("p/phase"), 0), 0);
	assert_int_equal(phase_file_open(test_path("p"), &initial, &record, &file), -EBADMSG);
}

/* Goal: no failing call leaves anything but the old or the new record, and repeating the
 * write gets through. Method: fail the 1st, 2nd, ... call, whole or torn. */
static void a_failed_write_leaves_old_or_new(void **state)
{
	enum { CALLS = 2 }; /* one write, one sync */

	(void)state;
	for (int tears = 0; tears < 2; tears++) {
		struct phase_file *file = open_phase();

		assert_int_equal(write_number(file, 1), 0);
		for (uint32_t number = 2; number < 20; number++) {
			uint32_t found;

			fault_in_calls = (int)(number % CALLS) + 1;
			fault_tears = tears;
			assert_int_equal(write_number(file, number), -EIO);
			assert_int_equal(fault_in_calls, 0);
			found = read_number();
			assert_true(found == number - 1 || found == number);
			/* Twice more in vain, then for good. */
			for (int i = 1; i <= CALLS; i++) {
				fault_in_calls = i;
				assert_int_equal(write_number(file, number), -EIO);
				found = read_number();
				assert_true(found == number - 1 || found == number);
			}
			assert_int_equal(write_number(file, number), 0);
			assert_int_equal(read_number(), number);
		}
		phase_file_close(file);
	}
}

static void a_failed_making_leaves_nothing_or_all(void **state)
{
	struct phase_record record;
	struct phase_file *file;
	int n = 0, r;

	(void)state;
	do {
		fault_in_calls = ++n;
		r = phase_file_open(test_path("p"), &initial, &record, &file);
		assert_true(r == 0 || r == -EIO);
		assert_int_not_equal(access(test_path("p/phase.new"), F_OK), 0);
		if (r < 0 && access(test_path("p/phase"), F_OK) == 0)
			phase_file_close(open_phase()); /* whole */
		test_remove(test_path("p/phase"));
	} while (r < 0);
	assert_true(n > 4);
	fault_in_calls = 0;
	phase_file_close(file);
}

/* Goal: a death at any point leaves old or new. Method: kill a writer that tells in
 * shared memory which record it has been acknowledged, many times. */
static void a_killed_writer_leaves_old_or_new(void **state)
{
	enum { KILLS = 100 };
	volatile uint32_t *done;

	(void)state;
	done = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(done != MAP_FAILED);
	{
		struct phase_file *file = open_phase();

		assert_int_equal(write_number(file, 1), 0);
		phase_file_close(file);
	}
	srandom(2);
	for (int i = 0; i < KILLS; i++) {
		uint32_t before = read_number(), found;
		pid_t pid = fork();

		assert_true(pid >= 0);
		if (pid == 0) {
			struct phase_file *file = open_phase();

			*done = before;
			while (write_number(file, *done + 1) == 0)
				*done = *done + 1;
			_exit(1);
		}
		*done = before;
		usleep((useconds_t)(random() % 5000));
		assert_int_equal(kill(pid, SIGKILL), 0);
		assert_int_equal(waitpid(pid, NULL, 0), pid);
		found = read_number();
		assert_in_range(found, *done, *done + 1);
	}
	munmap((void *)done, 4096);
}

static void a_newer_version_is_refused(void **state)
{
	struct phase_record record;
	struct phase_file *file;
	uint8_t slot[SLOT_BYTES];
	uint64_t checksum;
	int fd;

	(void)state;
	phase_file_close(open_phase());
	fd = open(test_path("p/phase"), O_RDWR);
	assert_int_equal(pread(fd, slot, SLOT_BYTES, 0), SLOT_BYTES);
	slot[11]++; /* the version, big-endian from 8 */
	checksum = htobe64(XXH3_64bits(slot, SLOT_BYTES - 8));
	memcpy(slot + SLOT_BYTES - 8, &checksum, sizeof(checksum));
	assert_int_equal(pwrite(fd, slot, SLOT_BYTES, 0), SLOT_BYTES);
	close(fd);
	assert_int_equal(phase_file_open(test_path("p"), &initial, &record, &file), -EPROTO);
}

static void a_missing_directory_is_refused(void **state)
{
	struct phase_record record;
	struct phase_file *file;

	(void)state;
	assert_int_equal(phase_file_open(test_path("none"), &initial, &record, &file), -ENOENT);
	assert_null(phase_file_close(NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_new_file_holds_the_initial_record, set_up),
		cmocka_unit_test_setup(the_last_record_is_read_again, set_up),
		cmocka_unit_test_setup(writing_goes_on_after_each_open, set_up),
		cmocka_unit_test_setup(an_open_syncs_what_it_read, set_up),
		cmocka_unit_test_setup(a_torn_slot_leaves_the_other, set_up),
		cmocka_unit_test_setup(two_torn_slots_are_refused, set_up),
		cmocka_unit_test_setup(a_failed_write_leaves_old_or_new, set_up),
		cmocka_unit_test_setup(a_failed_making_leaves_nothing_or_all, set_up),
		cmocka_unit_test_setup(a_killed_writer_leaves_old_or_new, set_up),
		cmocka_unit_test_setup(a_newer_version_is_refused, set_up),
		cmocka_unit_test_setup(a_missing_directory_is_refused, set_up),
	};

	(void)test_dir(); /* the children must not make one each */
	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
