/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A listing is fetched page by page with READDIRPLUS. The pages are small enough that a
 * server holds no big directory locked for long. A directory that was removed while it
 * is listed ends, as an open one does; one that is gone at the open is an error.
 */
#include "fs/store/nfs_store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/cleanup.h"

enum {
	PAGE_NAME_BYTES = 8 * 1024, /* dircount: names and cookies */
	PAGE_BYTES_MAX = 64 * 1024, /* maxcount: the whole reply */
	RESTARTS_MAX = 3,
};

struct entry {
	uint64_t ino, cookie;
	bool has_attr;
	struct locator locator;
	struct store_attr attr;
	size_t name_at; /* in the page's names */
};

struct page {
	struct entry *entries; /* owned */
	size_t count, next;
	char *names; /* owned */
	bool is_last;
	cookieverf3 verifier;
};

struct nfsdir_stream {
	struct store_dir base; /* first */
	struct nfsstore *store;
	struct locator object;
	struct page page;
	uint64_t cookie; /* after which the next page begins */
	unsigned restarts;
};

static struct nfsdir_stream *stream_of(struct store_dir *dir)
{
	return (struct nfsdir_stream *)dir;
}

static void page_done(struct page *page)
{
	free(page->entries);
	free(page->names);
	*page = (struct page){ 0 };
}

static void measure(const entryplus3 *first, size_t *ret_count, size_t *ret_bytes)
{
	*ret_count = *ret_bytes = 0;
	for (const entryplus3 *entry = first; entry; entry = entry->nextentry) {
		(*ret_count)++;
		*ret_bytes += strlen(entry->name) + 1;
	}
}

static int take_page(void *result, const void *reply)
{
	const READDIRPLUS3resok *ok = &((const READDIRPLUS3res *)reply)->READDIRPLUS3res_u.resok;
	struct page *page = result;
	size_t count, bytes, at = 0, i = 0;

	measure(ok->reply.entries, &count, &bytes);
	page->entries = calloc(count ? count : 1, sizeof(*page->entries));
	page->names = malloc(bytes ? bytes : 1);
	if (!page->entries || !page->names) {
		page_done(page);
		return -ENOMEM;
	}
	for (const entryplus3 *from = ok->reply.entries; from; from = from->nextentry, i++) {
		struct entry *to = &page->entries[i];
		struct nfsattr_maybe attr = { 0 };
		const nfs_fh3 *handle = &from->name_handle.post_op_fh3_u.handle;
		size_t length = strlen(from->name) + 1;

		to->ino = from->fileid;
		to->cookie = from->cookie;
		to->name_at = at;
		memcpy(page->names + at, from->name, length);
		at += length;
		nfsattr_from_post_op(&from->name_attributes, &attr);
		to->attr = attr.attr;
		to->has_attr = attr.is_there && from->name_handle.handle_follows &&
			       nfshandle_locator(handle->data.data_val, handle->data.data_len,
						 &to->locator) == 0;
		if (to->has_attr)
			nfshandle_set_type(&to->locator, attr.attr.mode);
	}
	page->count = count;
	page->next = 0;
	page->is_last = ok->reply.eof;
	memcpy(page->verifier, ok->cookieverf, sizeof(page->verifier));
	return 0;
}

/* Fetches the page after the stream's cookie. *@ret_status is the server's own word. */
static int fetch_page(struct nfsdir_stream *stream, int *ret_status)
{
	READDIRPLUS3args args = {
		.dir = nfshandle_wire(&stream->object),
		.cookie = stream->cookie,
		.dircount = PAGE_NAME_BYTES,
		.maxcount = PAGE_BYTES_MAX,
	};
	struct page page = { 0 };
	struct nfscall call = { .procedure = NFS3_READDIRPLUS,
				.args = &args,
				.take = take_page,
				.result = &page,
				.bytes = PAGE_BYTES_MAX };
	int r;

	if (stream->cookie != 0)
		memcpy(args.cookieverf, stream->page.verifier, sizeof(args.cookieverf));
	r = nfsdirs_run(stream->store, &args.dir, &call);
	*ret_status = call.status;
	if (r != 0)
		return r;
	page_done(&stream->page);
	stream->page = page;
	return 0;
}

/* A server that does not know our place any more is asked from the beginning: an entry
 * twice does less harm than one left out. */
static int next_page(struct nfsdir_stream *stream)
{
	int status = NFS3_OK, r;

	r = fetch_page(stream, &status);
	if (r < 0 && status == NFS3ERR_BAD_COOKIE && stream->cookie != 0) {
		memset(stream->page.verifier, 0,
		       sizeof(stream->page.verifier)); /* some accept any */
		r = fetch_page(stream, &status);
	}
	if (r < 0 && status == NFS3ERR_BAD_COOKIE && stream->restarts < RESTARTS_MAX) {
		stream->restarts++;
		stream->cookie = 0;
		r = fetch_page(stream, &status);
	}
	return r;
}

int nfsdir_list_open(struct store *store, const struct locator *dir, struct store_dir **ret_dir)
{
	_cleanup_free_ struct nfsdir_stream *stream = calloc(1, sizeof(*stream));
	int r;

	if (!S_ISDIR(nfshandle_type(dir)))
		return -ENOTDIR;
	if (!stream)
		return -ENOMEM;
	stream->base.ops = store->ops;
	stream->store = nfsstore_of(store);
	stream->object = *dir;
	r = next_page(stream); /* so that one that is gone, or no directory, says so here */
	if (r < 0)
		return r;
	*ret_dir = &TAKE_PTR(stream)->base;
	return 0;
}

static bool is_dots(const char *name)
{
	return name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

static void fill_entry(const struct page *page, const struct entry *from,
		       struct store_entry *ret_entry)
{
	*ret_entry = (struct store_entry){
		.name = page->names + from->name_at,
		.ino = from->ino,
		.type = from->attr.mode & S_IFMT, /* 0 where the reply has no attributes */
		.cookie = from->cookie,
		.has_attr = from->has_attr,
		.locator = from->locator,
		.attr = from->attr,
	};
}

int nfsdir_list_next(struct store_dir *dir, struct store_entry *ret_entry)
{
	struct nfsdir_stream *stream = stream_of(dir);
	int r;

	for (;;) {
		while (stream->page.next < stream->page.count) {
			const struct entry *entry = &stream->page.entries[stream->page.next++];
			const char *name = stream->page.names + entry->name_at;

			stream->cookie = entry->cookie;
			if (is_dots(name))
				continue;
			if (name[0] == '\0' || strchr(name, '/'))
				return -EIO; /* no name: we take nobody's word for that */
			fill_entry(&stream->page, entry, ret_entry);
			return 0;
		}
		if (stream->page.is_last)
			return STORE_E_END;
		r = next_page(stream);
		if (r == -ESTALE)
			return STORE_E_END;
		if (r < 0)
			return r;
		if (stream->page.count == 0 && !stream->page.is_last)
			return -EIO; /* a reply without progress: no loop */
	}
}

int nfsdir_list_seek(struct store_dir *dir, uint64_t cookie)
{
	struct nfsdir_stream *stream = stream_of(dir);

	/* Mostly it is a place within the page: the reader's buffer was full. */
	for (size_t i = 0; cookie != 0 && i < stream->page.count; i++)
		if (stream->page.entries[i].cookie == cookie) {
			stream->page.next = i + 1;
			stream->cookie = cookie;
			return 0;
		}
	stream->cookie = cookie;
	stream->page.count = stream->page.next = 0;
	stream->page.is_last = false;
	return 0;
}

/* A server answers a change of names only when it is durable. */
int nfsdir_list_fsync(struct store_dir *dir UNUSED)
{
	return 0;
}

struct store_dir *nfsdir_list_close(struct store_dir *dir)
{
	struct nfsdir_stream *stream = stream_of(dir);

	page_done(&stream->page);
	free(stream);
	return NULL;
}
