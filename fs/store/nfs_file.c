/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading and writing. What is longer than the server takes at once is cut into pieces,
 * several of which are under way together. An open file is only its handle: NFSv3 knows
 * no open.
 */
#include "fs/store/nfs_store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int nfsfile_open(struct store *store, const struct locator *object, unsigned flags UNUSED,
		 struct store_file **ret_file)
{
	struct nfsfile *file;

	if (!S_ISREG(nfshandle_type(object)))
		return -EINVAL;
	file = calloc(1, sizeof(*file));
	if (!file)
		return -ENOMEM;
	file->base.ops = store->ops;
	file->store = nfsstore_of(store);
	file->object = *object;
	*ret_file = &file->base;
	return 0;
}

struct store_file *nfsfile_close(struct store_file *file)
{
	free(nfsfile_of(file));
	return NULL;
}

int nfsfile_fd(const struct store_file *file UNUSED)
{
	return -1;
}

int nfsfile_getattr(struct store_file *file, struct store_attr *ret_attr)
{
	return nfsattr_get(&nfsfile_of(file)->store->base, &nfsfile_of(file)->object, ret_attr);
}

int nfsfile_setattr(struct store_file *file, const struct store_setattr *set,
		    struct store_attr *ret_attr)
{
	return nfsattr_set(&nfsfile_of(file)->store->base, &nfsfile_of(file)->object, set,
			   ret_attr);
}

/* ---- reading -------------------------------------------------------------------- */

struct read_piece {
	struct nfscall call;
	READ3args args;
	char *buffer;
	uint32_t size, done;
	bool is_end;
};

static int take_read(void *result, const void *reply)
{
	const READ3resok *ok = &((const READ3res *)reply)->READ3res_u.resok;
	struct read_piece *piece = result;

	/* Two counts of one thing: a server that disagrees with itself is not believed. */
	if (ok->count != ok->data.data_len || ok->count > piece->size)
		return -EIO;
	memcpy(piece->buffer, ok->data.data_val, ok->count);
	piece->done = ok->count;
	piece->is_end = ok->eof;
	return 0;
}

static void start_read(struct nfsfile *file, struct read_piece *piece, char *buffer, uint32_t size,
		       uint64_t offset)
{
	*piece = (struct read_piece){
		.args = { .file = nfshandle_wire(&file->object), .offset = offset, .count = size },
		.buffer = buffer,
		.size = size,
	};
	piece->call = (struct nfscall){ .procedure = NFS3_READ,
					.args = &piece->args,
					.take = take_read,
					.result = piece,
					.bytes = size };
	nfscall_start(file->store, &piece->call);
}

/* Up to a window's worth at @offset. Returns the bytes that are there without a gap;
 * *@ret_is_end if the file ends after them. */
static ssize_t read_window(struct nfsfile *file, char *buffer, size_t size, uint64_t offset,
			   bool *ret_is_end)
{
	struct read_piece pieces[NFSSTORE_WINDOW];
	size_t started = 0, done = 0;
	unsigned count = 0;
	bool is_short = false;
	int error = 0;

	while (count < NFSSTORE_WINDOW && started < size) {
		uint32_t length = file->store->read_bytes_max;

		if (length > size - started)
			length = (uint32_t)(size - started);
		start_read(file, &pieces[count++], buffer + started, length, offset + started);
		started += length;
	}
	*ret_is_end = false;
	for (unsigned i = 0; i < count; i++) {
		int r = nfscall_finish(file->store, &pieces[i].call);

		if (is_short || error < 0)
			continue; /* beyond a gap nothing counts, but all must be finished */
		if (r < 0) {
			error = r;
			continue;
		}
		done += pieces[i].done;
		is_short = pieces[i].done < pieces[i].size;
		*ret_is_end = pieces[i].is_end;
	}
	return done == 0 && error < 0 ? error : (ssize_t)done;
}

ssize_t nfsfile_read(struct store_file *file, void *buffer, size_t size, uint64_t offset)
{
	size_t done = 0;
	bool is_end = false;

	while (done < size && !is_end) {
		ssize_t n = read_window(nfsfile_of(file), (char *)buffer + done, size - done,
					offset + done, &is_end);

		if (n < 0)
			return n;
		if (n == 0 && !is_end)
			return -EIO; /* neither data nor an end: no loop */
		done += (size_t)n;
	}
	return (ssize_t)done;
}

/* ---- writing ---------------------------------------------------------------------- */

struct write_piece {
	struct nfscall call;
	WRITE3args args;
	uint32_t done;
	stable_how committed;
	char verifier[NFS3_WRITEVERFSIZE];
};

static int take_write(void *result, const void *reply)
{
	const WRITE3resok *ok = &((const WRITE3res *)reply)->WRITE3res_u.resok;
	struct write_piece *piece = result;

	if (ok->count == 0 || ok->count > piece->args.count)
		return -EIO;
	piece->done = ok->count;
	piece->committed = ok->committed;
	memcpy(piece->verifier, ok->verf, sizeof(piece->verifier));
	return 0;
}

static void start_write(struct nfsfile *file, struct write_piece *piece, const char *buffer,
			uint32_t size, uint64_t offset, bool is_stable)
{
	*piece = (struct write_piece){
		.args = { .file = nfshandle_wire(&file->object),
			  .offset = offset,
			  .count = size,
			  .stable = is_stable ? FILE_SYNC : UNSTABLE,
			  .data = { .data_len = size, .data_val = (char *)(uintptr_t)buffer } },
	};
	piece->call = (struct nfscall){ .procedure = NFS3_WRITE,
					.args = &piece->args,
					.take = take_write,
					.result = piece,
					.bytes = size };
	nfscall_start(file->store, &piece->call);
}

/* Finishes @piece and, where the server took only a part, writes the rest. */
static int finish_write(struct nfsfile *file, struct write_piece *piece, bool *ret_is_unstable)
{
	for (;;) {
		WRITE3args *args = &piece->args;
		int r = nfscall_finish(file->store, &piece->call);

		if (r != 0)
			return r;
		if (piece->committed != FILE_SYNC) {
			nfsunstable_note(&file->store->unstable, &file->object, piece->verifier);
			*ret_is_unstable = true;
		}
		if (piece->done == args->count)
			return 0;
		start_write(file, piece, args->data.data_val + piece->done,
			    args->count - piece->done, args->offset + piece->done,
			    args->stable == FILE_SYNC);
	}
}

/* Writes up to a window's worth; returns 0 and the size, or what went wrong. */
static int write_window(struct nfsfile *file, const char *buffer, size_t size, uint64_t offset,
			bool is_stable, bool *ret_is_unstable, size_t *ret_done)
{
	struct write_piece pieces[NFSSTORE_WINDOW];
	size_t started = 0;
	unsigned count = 0;
	int result = 0;

	while (count < NFSSTORE_WINDOW && started < size) {
		uint32_t length = file->store->write_bytes_max;

		if (length > size - started)
			length = (uint32_t)(size - started);
		start_write(file, &pieces[count++], buffer + started, length, offset + started,
			    is_stable);
		started += length;
	}
	for (unsigned i = 0; i < count; i++) {
		int r = finish_write(file, &pieces[i], ret_is_unstable);

		/* What may still land weighs more than what is known to have failed. */
		if (r == STORE_E_UNKNOWN || (r < 0 && result == 0))
			result = r;
	}
	*ret_done = started;
	return result;
}

int nfsfile_write(struct store_file *file, const void *buffer, size_t size, uint64_t offset,
		  bool is_stable)
{
	struct nfsfile *self = nfsfile_of(file);
	bool is_unstable = false;
	size_t done = 0;

	/* Rather slower than more than can be remembered. */
	if (!is_stable && !nfsunstable_has_room(&self->store->unstable))
		is_stable = true;
	while (done < size) {
		size_t n = 0;
		int r = write_window(self, (const char *)buffer + done, size - done, offset + done,
				     is_stable, &is_unstable, &n);

		if (r != 0)
			return r;
		done += n;
	}
	/* A server that does not do what FILE_SYNC says. */
	if (is_stable && is_unstable)
		return nfscommit_file(file, /* is_datasync= */ false);
	return 0;
}
