/* SPDX-License-Identifier: Apache-2.0 */
/* Asynchronous direct writes beside buffered readers: what is read after a write is the write. */
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/parity/parity.h"

enum { BLOCK = 64 * 1024, BLOCKS = 8, ROUNDS = 300 };

/* Reads all of it, over and over. */
static _Noreturn void read_for_ever(void)
{
	static char buffer[BLOCK];
	int fd = open("f", O_RDONLY | O_CLOEXEC);

	for (off_t at = 0;; at = (at + BLOCK) % (BLOCK * BLOCKS)) {
		if (pread(fd, buffer, BLOCK, at) != BLOCK)
			_exit(1);
	}
}

static long submit_and_wait(aio_context_t context, int fd, char *data)
{
	struct iocb blocks[BLOCKS] = { 0 }, *list[BLOCKS];
	struct io_event events[BLOCKS];
	long done;

	for (int i = 0; i < BLOCKS; i++) {
		blocks[i].aio_lio_opcode = IOCB_CMD_PWRITE;
		blocks[i].aio_fildes = (uint32_t)fd;
		blocks[i].aio_buf = (uintptr_t)data;
		blocks[i].aio_nbytes = BLOCK;
		blocks[i].aio_offset = (int64_t)i * BLOCK;
		list[i] = &blocks[i];
	}
	if (syscall(SYS_io_submit, context, BLOCKS, list) != BLOCKS)
		return -1;
	done = syscall(SYS_io_getevents, context, BLOCKS, BLOCKS, events, NULL);
	for (int i = 0; i < BLOCKS && done == BLOCKS; i++) {
		if (events[i].res != BLOCK)
			return -1;
	}
	return done;
}

static int count_stale(int fd, char value)
{
	static char buffer[BLOCK];
	int stale = 0;

	for (off_t at = 0; at < BLOCK * BLOCKS; at += BLOCK) {
		if (pread(fd, buffer, BLOCK, at) != BLOCK)
			return -1;
		stale += buffer[0] != value || buffer[BLOCK / 2] != value ||
			 buffer[BLOCK - 1] != value;
	}
	return stale;
}

static void readers_beside_direct_writes(void)
{
	int direct = open("f", O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0644);
	int buffered = open("f", O_RDONLY | O_CLOEXEC);
	aio_context_t context = 0;
	long written = 0;
	int stale = 0;
	void *data;
	pid_t reader;

	if (posix_memalign(&data, 4096, BLOCK) != 0) {
		say("no memory");
		return;
	}
	DO(ftruncate(direct, BLOCK * BLOCKS));
	DO(syscall(SYS_io_setup, BLOCKS, &context));
	reader = fork();
	if (reader == 0)
		read_for_ever();
	for (int i = 0; i < ROUNDS; i++) {
		memset(data, 'a' + i % 26, BLOCK);
		written += submit_and_wait(context, direct, data);
		stale += count_stale(buffered, (char)('a' + i % 26));
	}
	kill(reader, SIGKILL);
	waitpid(reader, NULL, 0);
	syscall(SYS_io_destroy, context);
	say("%ld written, %d stale", written, stale);
	free(data);
	close(buffered);
	close(direct);
}

const struct parity_case parity_async[] = {
	{ "readers beside asynchronous direct writes", readers_beside_direct_writes },
	{ 0 },
};
