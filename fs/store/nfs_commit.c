/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An unstable write is kept by the server's memory until a COMMIT. Both answers carry the
 * write verifier of the server's present life: if they differ, it died in between and
 * the write may be gone, though the COMMIT succeeds.
 */
#include "fs/store/nfs_store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { COMMITS_MAX = 32 }; /* under way at once */

struct commit_piece {
	struct nfscall call;
	COMMIT3args args;
	struct nfsunstable_file *entry; /* owned */
	char verifier[NFS3_WRITEVERFSIZE];
};

static int take_commit(void *result, const void *reply)
{
	const COMMIT3resok *ok = &((const COMMIT3res *)reply)->COMMIT3res_u.resok;

	memcpy(((struct commit_piece *)result)->verifier, ok->verf, NFS3_WRITEVERFSIZE);
	return 0;
}

static void start_commit(struct nfsstore *store, struct commit_piece *piece,
			 struct nfsunstable_file *entry)
{
	*piece = (struct commit_piece){
		.args = { .file = nfshandle_wire(&entry->file) }, /* offset 0, count 0: all of it */
		.entry = entry,
	};
	piece->call = (struct nfscall){
		.procedure = NFS3_COMMIT, .args = &piece->args, .take = take_commit, .result = piece
	};
	nfscall_start(store, &piece->call);
}

/* 0, STORE_E_LOST, or negative errno. Only after -EHOSTDOWN and -EAGAIN can it be asked
 * again. */
static int finish_commit(struct nfsstore *store, struct commit_piece *piece)
{
	struct nfsunstable_file *entry = piece->entry;
	int r = nfscall_finish(store, &piece->call);

	piece->entry = NULL;
	if (r == -EHOSTDOWN || r == -EAGAIN) {
		nfsunstable_put_back(&store->unstable, entry);
		return r;
	}
	if (r == -ESTALE || r == -ENOENT)
		r = 0; /* the file is gone, and its bytes with it */
	else if (r == 0 && (entry->is_lost ||
			    memcmp(piece->verifier, entry->verifier, NFS3_WRITEVERFSIZE) != 0))
		r = STORE_E_LOST;
	free(entry);
	return r;
}

/* Commits the chain @entry (taken). STORE_E_LOST outweighs errors: what is in doubt must be
 * written again. Of a server that is down only the first ones are asked for, each in its
 * whole time limit: the others go back at once. */
static int commit_chain(struct nfsstore *store, struct nfsunstable_file *entry)
{
	struct commit_piece pieces[COMMITS_MAX];
	unsigned begun = 0, ended = 0;
	bool is_down = false;
	int result = 0;

	while (entry || ended < begun) {
		int r;

		if (entry && (is_down || begun - ended < COMMITS_MAX)) {
			struct nfsunstable_file *next = entry->next;

			if (is_down)
				nfsunstable_put_back(&store->unstable, entry);
			else
				start_commit(store, &pieces[begun++ % COMMITS_MAX], entry);
			entry = next;
			continue;
		}
		r = finish_commit(store, &pieces[ended++ % COMMITS_MAX]);
		is_down |= r == -EHOSTDOWN;
		if (r == STORE_E_LOST || (r < 0 && result == 0))
			result = r;
	}
	return result;
}

/* Is what failed gone from our books, so that nobody will be told of it again? */
static bool is_forgotten(int r)
{
	return r != 0 && r != -EHOSTDOWN && r != -EAGAIN;
}

int nfscommit_all(struct store *store)
{
	struct nfsstore *self = nfsstore_of(store);
	unsigned failed_before = atomic_load(&self->failed_commits);
	struct nfsunstable_file *all;
	bool is_lost;
	int r;

	atomic_fetch_add(&self->running_commits, 1);
	pthread_mutex_lock(&self->commit_lock);
	all = nfsunstable_take_all(&self->unstable, &is_lost);
	r = commit_chain(self, all);
	/* The one before may have taken what we were to wait for. */
	if (is_lost || atomic_load(&self->failed_commits) != failed_before)
		r = STORE_E_LOST;
	if (is_forgotten(r))
		atomic_fetch_add(&self->failed_commits, 1);
	pthread_mutex_unlock(&self->commit_lock);
	atomic_fetch_sub(&self->running_commits, 1);
	return r;
}

int nfscommit_file(struct store_file *file, bool is_datasync UNUSED)
{
	struct nfsfile *self = nfsfile_of(file);
	struct nfsstore *store = self->store;
	unsigned failed_before = atomic_load(&store->failed_commits);
	int r;

	/* In this order: whoever takes an entry counts as running before. */
	if (!nfsunstable_has(&store->unstable, &self->object) &&
	    atomic_load(&store->running_commits) == 0)
		return 0;

	atomic_fetch_add(&store->running_commits, 1);
	pthread_mutex_lock(&store->commit_lock);
	r = commit_chain(store, nfsunstable_take(&store->unstable, &self->object));
	if (is_forgotten(r)) {
		atomic_fetch_add(&store->failed_commits, 1);
		nfsunstable_note_lost(&store->unstable); /* the next commit of all must say so */
	}
	if (r == STORE_E_LOST || (r == 0 && atomic_load(&store->failed_commits) != failed_before))
		r = -EIO;
	pthread_mutex_unlock(&store->commit_lock);
	atomic_fetch_sub(&store->running_commits, 1);
	return r;
}
