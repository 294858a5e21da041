/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file is a sequence of items, each a byte that says what it is, and its content:
 *	B	an operation: its fixed part, then its names with their NULs
 *	E	the result (int64) of the operation begun last
 *	F	as B, then op.length bytes: applied as it stands
 * An E is written with the B that follows it: one write(2) an operation.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/testlib.h"
#include "tests/lib/writer_record.h"

enum { OP_FIXED_BYTES = offsetof(struct op, name) };

struct record {
	int fd;
	size_t used;
	uint8_t buffer[2 * sizeof(struct op) + MODEL_FILE_BYTES_MAX + 64];
};

struct record *record_open(const char *path)
{
	struct record *record = xcalloc(1, sizeof(*record));

	record->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (record->fd < 0)
		die_errno("cannot open the record '%s'", path);
	return record;
}

static void flush(struct record *record)
{
	if (record->used > 0 &&
	    write(record->fd, record->buffer, record->used) != (ssize_t)record->used)
		die_errno("cannot write the record");
	record->used = 0;
}

struct record *record_close(struct record *record)
{
	if (!record)
		return NULL;
	flush(record);
	close(record->fd);
	free(record);
	return NULL;
}

static void put(struct record *record, const void *bytes, size_t size)
{
	assert(record->used + size <= sizeof(record->buffer));
	memcpy(record->buffer + record->used, bytes, size);
	record->used += size;
}

static void put_op(struct record *record, char what, const struct op *op)
{
	put(record, &what, 1);
	put(record, op, OP_FIXED_BYTES);
	put(record, op->name, strlen(op->name) + 1);
	put(record, op->name2, strlen(op->name2) + 1);
}

void record_begin(struct record *record, const struct op *op)
{
	put_op(record, 'B', op);
	flush(record);
}

void record_end(struct record *record, int64_t result)
{
	put(record, "E", 1);
	put(record, &result, sizeof(result));
}

void record_fact(struct record *record, const struct op *op, const void *bytes)
{
	flush(record);
	put_op(record, 'F', op);
	if (op->kind == OP_ADOPT || op->kind == OP_SETBYTES)
		put(record, bytes, op->length);
	flush(record);
}

/* ---- reading ---------------------------------------------------------------- */

struct reader {
	uint8_t *bytes; /* owned */
	size_t size, at;
};

static void read_all(const char *path, struct reader *reader)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	off_t size;

	if (fd < 0)
		die_errno("cannot open the record '%s'", path);
	size = lseek(fd, 0, SEEK_END);
	*reader = (struct reader){ .bytes = xcalloc(1, (size_t)size + 1), .size = (size_t)size };
	if (pread(fd, reader->bytes, reader->size, 0) != size)
		die_errno("cannot read the record '%s'", path);
	close(fd);
}

static const void *take(struct reader *reader, size_t size)
{
	const void *bytes = reader->bytes + reader->at;

	if (size > reader->size - reader->at)
		die(TEST_TROUBLE, "the record ends in the middle of an item");
	reader->at += size;
	return bytes;
}

static void take_op(struct reader *reader, struct op *op)
{
	memset(op, 0, sizeof(*op));
	memcpy(op, take(reader, OP_FIXED_BYTES), OP_FIXED_BYTES);
	strcpy(op->name, take(reader, strlen((char *)reader->bytes + reader->at) + 1));
	strcpy(op->name2, take(reader, strlen((char *)reader->bytes + reader->at) + 1));
}

uint64_t record_replay(const char *path, struct model *model, bool *ret_has_pending,
		       struct op *ret_pending)
{
	struct reader reader;
	const void *bytes;
	uint64_t count = 0;
	int64_t result;
	bool has_pending = false;
	struct op op;
	char what;

	read_all(path, &reader);
	while (reader.at < reader.size) {
		what = *(const char *)take(&reader, 1);
		if (what == 'B') {
			take_op(&reader, &op);
			has_pending = true;
		} else if (what == 'E') {
			memcpy(&result, take(&reader, sizeof(result)), sizeof(result));
			if (result >= 0)
				model_apply(model, &op, result, /* bytes= */ NULL);
			count += result >= 0;
			has_pending = false;
		} else if (what == 'F') {
			take_op(&reader, &op);
			bytes = op.kind == OP_MTIME ? NULL : take(&reader, op.length);
			model_apply(model, &op, 0, bytes);
		} else {
			die(TEST_TROUBLE, "the record has an item '%c' at %zu", what,
			    reader.at - 1);
		}
	}
	free(reader.bytes);
	*ret_has_pending = has_pending;
	if (has_pending)
		*ret_pending = op;
	return count;
}
