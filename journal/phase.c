/* SPDX-License-Identifier: Apache-2.0 */
#include "journal/phase.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "journal/statedir.h"
#include "util/cleanup.h"
#include "util/log.h"

/*
 * Two slots, each in a block of its own, so that writing one cannot hurt the other even
 * on a disk of 4 KiB sectors. The valid slot with the higher number counts. A write goes
 * to the other one, with the next number, and is synced; its blocks have been written
 * before, so that no metadata has to reach the disk for it.
 *
 * What a crash leaves: before the sync returned, the new record or the one before; after
 * it, the new one. A write that failed is repeated in the same slot with the same number:
 * the other slot may be the only good one.
 *
 * An open finds what the page cache has, which a dying process may never have synced, so
 * it writes the slot that counts once more *where it stands*, and syncs. The other slot
 * would be wrong: if the first one has not reached the disk, that holds the only record
 * that did.
 *
 * A slot that reads as an I/O error is not taken for a torn one: it may be the newer.
 */

#define PHASE_MAGIC "FERRYPH"
#define PHASE_NEW STATE_DIR_PHASE ".new"

enum {
	PHASE_VERSION = 1, /* raised when an older program could not read it */
	PHASE_SLOTS = 2,
	PHASE_SLOT_BYTES = 512,
	PHASE_BLOCK_BYTES = 4096,
	PHASE_FILE_BYTES = PHASE_SLOTS * PHASE_BLOCK_BYTES,
};

/* On disk; numbers are big-endian. */
struct phase_slot {
	char magic[8];
	uint32_t version;
	uint32_t slot; /* where this one belongs */
	uint64_t number;
	uint8_t active;
	uint8_t phase;
	uint8_t has_gap;
	uint8_t is_running;
	uint32_t last_freeze_ms;
	uint8_t zero[472];
	uint64_t checksum; /* XXH3-64 of all before */
};

static_assert(sizeof(struct phase_slot) == PHASE_SLOT_BYTES, "a slot is a sector");
static_assert(offsetof(struct phase_slot, checksum) == PHASE_SLOT_BYTES - 8, "at its end");
static_assert(PHASE_SLOT_BYTES <= PHASE_BLOCK_BYTES, "a slot fits its block");
static_assert(sizeof(PHASE_MAGIC) == 8, "the magic is eight bytes");
static_assert(SIDE_MAX <= UINT8_MAX && (int)PHASE_MAX <= UINT8_MAX, "they fit a byte");

struct phase_file {
	int fd;
	unsigned slot;	 /* the one that counts */
	uint64_t number; /* its number */
};

/* ---- one slot ------------------------------------------------------------ */

static uint64_t slot_checksum(const struct phase_slot *slot)
{
	return htobe64(XXH3_64bits(slot, offsetof(struct phase_slot, checksum)));
}

static void slot_encode(struct phase_slot *ret_slot, unsigned index, uint64_t number,
			const struct phase_record *record)
{
	assert(record->active < SIDE_MAX && record->phase < PHASE_MAX);
	*ret_slot = (struct phase_slot){
		.magic = PHASE_MAGIC,
		.version = htobe32(PHASE_VERSION),
		.slot = htobe32(index),
		.number = htobe64(number),
		.active = (uint8_t)record->active,
		.phase = (uint8_t)record->phase,
		.has_gap = record->has_gap,
		.is_running = record->is_running,
		.last_freeze_ms = htobe32(record->last_freeze_ms),
	};
	ret_slot->checksum = slot_checksum(ret_slot);
}

static bool slot_is_whole(const struct phase_slot *slot, unsigned index)
{
	return memcmp(slot->magic, PHASE_MAGIC, sizeof(slot->magic)) == 0 &&
	       slot->slot == htobe32(index) && slot->checksum == slot_checksum(slot);
}

static int slot_decode(const struct phase_slot *slot, struct phase_record *ret_record)
{
	if (be32toh(slot->version) > PHASE_VERSION)
		return -EPROTO;
	if (slot->active >= SIDE_MAX || slot->phase >= PHASE_MAX || slot->has_gap > 1 ||
	    slot->is_running > 1)
		return -EBADMSG;
	*ret_record = (struct phase_record){
		.active = (enum side)slot->active,
		.phase = (enum phase)slot->phase,
		.has_gap = slot->has_gap,
		.is_running = slot->is_running,
		.last_freeze_ms = be32toh(slot->last_freeze_ms),
	};
	return 0;
}

static int slot_write(int fd, unsigned index, const struct phase_slot *slot)
{
	ssize_t n;

	n = pwrite(fd, slot, sizeof(*slot), (off_t)index * PHASE_BLOCK_BYTES);
	if (n < 0)
		return -errno;
	return n == (ssize_t)sizeof(*slot) ? 0 : -EIO;
}

static int sync_data(int fd)
{
	return fdatasync(fd) < 0 ? -errno : 0;
}

/* ---- the file ------------------------------------------------------------ */

/* Makes the file complete under another name first: it is there whole or not at all. */
static int make_file(int dir_fd, const struct phase_record *initial)
{
	static const uint8_t zeros[PHASE_FILE_BYTES];
	_cleanup_close_ int fd = -1;
	struct phase_slot slot;
	ssize_t n;
	int r;

	fd = openat(dir_fd, PHASE_NEW, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	n = pwrite(fd, zeros, sizeof(zeros), 0);
	if (n != (ssize_t)sizeof(zeros))
		return n < 0 ? -errno : -EIO;
	slot_encode(&slot, 0, 1, initial);
	r = slot_write(fd, 0, &slot);
	if (r < 0)
		return r;
	if (fsync(fd) < 0)
		return -errno;
	if (renameat(dir_fd, PHASE_NEW, dir_fd, STATE_DIR_PHASE) < 0)
		return -errno;
	if (fsync(dir_fd) < 0)
		return -errno;
	return 0;
}

/* Reads both slots and finds the one that counts. */
static int load(struct phase_file *file, struct phase_slot *ret_slot, const char *state_dir)
{
	unsigned whole = 0;

	for (unsigned i = 0; i < PHASE_SLOTS; i++) {
		struct phase_slot slot;
		ssize_t n;

		n = pread(file->fd, &slot, sizeof(slot), (off_t)i * PHASE_BLOCK_BYTES);
		if (n < 0)
			return log_error_errno(errno, "cannot read '%s/" STATE_DIR_PHASE "'",
					       state_dir);
		if (n != (ssize_t)sizeof(slot) || !slot_is_whole(&slot, i)) {
			if (n > 0 && slot.magic[0] != '\0')
				log_warning("a record in '%s/" STATE_DIR_PHASE "' is torn, ignoring",
					    state_dir);
			continue;
		}
		if (whole++ == 0 || be64toh(slot.number) > file->number) {
			file->slot = i;
			file->number = be64toh(slot.number);
			*ret_slot = slot;
		}
	}
	if (whole > 0)
		return 0;
	log_error("both records in '%s/" STATE_DIR_PHASE "' are damaged: it is not known which side "
		  "is the authority",
		  state_dir);
	return -EBADMSG;
}

static int load_and_settle(struct phase_file *file, const char *state_dir,
			   struct phase_record *ret_record)
{
	struct phase_record record;
	struct phase_slot slot;
	int r;

	r = load(file, &slot, state_dir);
	if (r < 0)
		return r;
	r = slot_decode(&slot, &record);
	if (r < 0) {
		log_error("'%s/" STATE_DIR_PHASE "' has format %u, this program reads %d: use the "
			  "newer version that wrote it",
			  state_dir, be32toh(slot.version), PHASE_VERSION);
		return r;
	}
	r = slot_write(file->fd, file->slot, &slot);
	if (r == 0)
		r = sync_data(file->fd);
	if (r < 0)
		return log_error_errno(r, "cannot write '%s/" STATE_DIR_PHASE "'", state_dir);
	*ret_record = record;
	return 0;
}

int phase_file_open(const char *state_dir, const struct phase_record *initial,
		    struct phase_record *ret_record, struct phase_file **ret_file)
{
	_cleanup_close_ int dir_fd = -1;
	struct phase_file *file;
	int r;

	assert(state_dir && initial && ret_record && ret_file);
	dir_fd = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir_fd < 0)
		return log_error_errno(errno, "cannot open '%s'", state_dir);
	file = calloc(1, sizeof(*file));
	if (!file)
		return -ENOMEM;

	file->fd = openat(dir_fd, STATE_DIR_PHASE, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (file->fd < 0 && errno == ENOENT) {
		r = make_file(dir_fd, initial);
		if (r < 0) {
			(void)unlinkat(dir_fd, PHASE_NEW, 0); /* it may not be there */
			(void)phase_file_close(file);	      /* NULL */
			return log_error_errno(r, "cannot make '%s/" STATE_DIR_PHASE "'", state_dir);
		}
		file->fd = openat(dir_fd, STATE_DIR_PHASE, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	}
	if (file->fd < 0)
		r = log_error_errno(errno, "cannot open '%s/" STATE_DIR_PHASE "'", state_dir);
	else
		r = load_and_settle(file, state_dir, ret_record);
	if (r < 0) {
		(void)phase_file_close(file); /* NULL */
		return r;
	}
	*ret_file = file;
	return 0;
}

int phase_file_write(struct phase_file *file, const struct phase_record *record)
{
	unsigned index = (file->slot + 1) % PHASE_SLOTS;
	struct phase_slot slot;
	int r;

	slot_encode(&slot, index, file->number + 1, record);
	r = slot_write(file->fd, index, &slot);
	if (r < 0)
		return r;
	r = sync_data(file->fd);
	if (r < 0)
		return r;
	file->slot = index;
	file->number++;
	return 0;
}

struct phase_file *phase_file_close(struct phase_file *file)
{
	if (!file)
		return NULL;
	file->fd = fd_close(file->fd);
	free(file);
	return NULL;
}
