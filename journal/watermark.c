/* SPDX-License-Identifier: Apache-2.0 */
#include "journal/watermark.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "util/cleanup.h"
#include "util/log.h"

#define WATERMARK_MAGIC "FERRYWM"

enum { WATERMARK_VERSION = 1, BOOT_ID_BYTES = 36, BOOT_ID_UNKNOWN = '-' };

/* On disk; numbers are big-endian. One write of less than a sector. */
struct watermark_file {
	char magic[8];
	uint32_t version;
	char boot_id[BOOT_ID_BYTES]; /* as the kernel prints it */
	uint64_t flushed, synced;
	uint64_t checksum; /* XXH3-64 of all before */
};

static_assert(sizeof(struct watermark_file) == 72, "the format");
static_assert(offsetof(struct watermark_file, checksum) == 64, "no padding in what is summed");
static_assert(sizeof(WATERMARK_MAGIC) == 8, "the magic is eight bytes");

struct watermark {
	int fd;
	char boot_id[BOOT_ID_BYTES];
	bool is_same_boot; /* the file is of this boot */
	pthread_mutex_t mutex;
	uint64_t flushed, synced; /* guarded by mutex */
	bool is_failing;	  /* guarded by mutex: said so already */
};

static void read_boot_id(char ret_boot_id[static BOOT_ID_BYTES])
{
	_cleanup_close_ int fd = -1;

	fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && read(fd, ret_boot_id, BOOT_ID_BYTES) == BOOT_ID_BYTES)
		return;
	/* Then every start counts as one of the same boot: the strict way. */
	memset(ret_boot_id, BOOT_ID_UNKNOWN, BOOT_ID_BYTES);
	log_warning("cannot read the boot id, ignoring");
}

static uint64_t checksum(const struct watermark_file *file)
{
	return htobe64(XXH3_64bits(file, offsetof(struct watermark_file, checksum)));
}

static void write_locked(struct watermark *watermark)
{
	struct watermark_file file = {
		.magic = WATERMARK_MAGIC,
		.version = htobe32(WATERMARK_VERSION),
		.flushed = htobe64(watermark->flushed),
		.synced = htobe64(watermark->synced),
	};

	memcpy(file.boot_id, watermark->boot_id, BOOT_ID_BYTES);
	file.checksum = checksum(&file);
	if (pwrite(watermark->fd, &file, sizeof(file), 0) == (ssize_t)sizeof(file)) {
		watermark->is_failing = false;
		return;
	}
	if (!watermark->is_failing)
		(void)log_warning_errno(errno, "cannot write the journal's watermark, ignoring");
	watermark->is_failing = true;
}

static int read_file(struct watermark *watermark)
{
	struct watermark_file file;
	ssize_t n;

	n = pread(watermark->fd, &file, sizeof(file), 0);
	if (n < 0)
		return log_error_errno(errno, "cannot read the journal's watermark");
	if (n == 0)
		return 0;
	if (n != (ssize_t)sizeof(file) ||
	    memcmp(file.magic, WATERMARK_MAGIC, sizeof(file.magic)) != 0 ||
	    file.version != htobe32(WATERMARK_VERSION) || file.checksum != checksum(&file)) {
		log_warning("the journal's watermark is damaged, ignoring");
		return 0;
	}
	watermark->is_same_boot = memcmp(file.boot_id, watermark->boot_id, BOOT_ID_BYTES) == 0 ||
				  file.boot_id[0] == BOOT_ID_UNKNOWN ||
				  watermark->boot_id[0] == BOOT_ID_UNKNOWN;
	watermark->flushed = be64toh(file.flushed);
	watermark->synced = be64toh(file.synced);
	return 0;
}

int watermark_open(int dir_fd, const char *name, struct watermark **ret_watermark)
{
	struct watermark *watermark;
	int r;

	assert(dir_fd >= 0);
	watermark = calloc(1, sizeof(*watermark));
	if (!watermark)
		return -ENOMEM;
	pthread_mutex_init(&watermark->mutex, NULL);
	read_boot_id(watermark->boot_id);
	watermark->fd = openat(dir_fd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (watermark->fd < 0)
		r = log_error_errno(errno, "cannot open the journal's watermark '%s'", name);
	else
		r = read_file(watermark);
	if (r < 0) {
		(void)watermark_close(watermark); /* NULL */
		return r;
	}
	*ret_watermark = watermark;
	return 0;
}

struct watermark *watermark_close(struct watermark *watermark)
{
	if (!watermark)
		return NULL;
	watermark->fd = fd_close(watermark->fd);
	pthread_mutex_destroy(&watermark->mutex);
	free(watermark);
	return NULL;
}

bool watermark_has_lost_power(const struct watermark *watermark)
{
	return !watermark->is_same_boot && watermark->flushed > watermark->synced;
}

uint64_t watermark_expected(const struct watermark *watermark)
{
	return watermark_has_lost_power(watermark) ? watermark->synced : watermark->flushed;
}

void watermark_reset(struct watermark *watermark, uint64_t seq, bool is_synced)
{
	pthread_mutex_lock(&watermark->mutex);
	watermark->flushed = seq;
	watermark->synced = is_synced ? seq : 0;
	watermark->is_same_boot = true;
	write_locked(watermark);
	pthread_mutex_unlock(&watermark->mutex);
}

void watermark_set_flushed(struct watermark *watermark, uint64_t seq)
{
	pthread_mutex_lock(&watermark->mutex);
	assert(seq >= watermark->flushed);
	watermark->flushed = seq;
	write_locked(watermark);
	pthread_mutex_unlock(&watermark->mutex);
}

uint64_t watermark_flushed(struct watermark *watermark)
{
	uint64_t seq;

	pthread_mutex_lock(&watermark->mutex);
	seq = watermark->flushed;
	pthread_mutex_unlock(&watermark->mutex);
	return seq;
}

void watermark_set_synced(struct watermark *watermark, uint64_t seq)
{
	pthread_mutex_lock(&watermark->mutex);
	assert(seq <= watermark->flushed);
	if (seq > watermark->synced) {
		watermark->synced = seq;
		write_locked(watermark);
	}
	pthread_mutex_unlock(&watermark->mutex);
}
