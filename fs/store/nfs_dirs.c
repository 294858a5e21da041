/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that name something in a directory, and renames from one to another. nfs-ganesha
 * takes the locks of both directories of a rename by trying, and sleeps for a whole second
 * when it fails (mdcache): that would be the workload's second, or a freeze's. So such a
 * rename is sent while no other call of ours is under way in its two directories. Calls
 * within one directory go beside each other.
 *
 * Directories share locks by a hash. A rename takes the lower one first; each lock is held
 * across one call, and nothing is taken under it but a connection's queue.
 */
#include "fs/store/nfs_store.h"

#include <string.h>

static pthread_rwlock_t *lock_of(struct nfsstore *store, const nfs_fh3 *dir)
{
	uint32_t hash = nfshandle_hash(dir->data.data_val, dir->data.data_len);

	return &store->dir_locks[hash % NFSSTORE_DIR_LOCKS];
}

/* None of this can fail in glibc. */
void nfsdirs_init(struct nfsstore *store)
{
	pthread_rwlockattr_t attr;

	(void)pthread_rwlockattr_init(&attr);
	/* A rename must not starve in a busy directory. */
	(void)pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	for (unsigned i = 0; i < NFSSTORE_DIR_LOCKS; i++)
		(void)pthread_rwlock_init(&store->dir_locks[i], &attr);
	pthread_rwlockattr_destroy(&attr);
}

void nfsdirs_done(struct nfsstore *store)
{
	for (unsigned i = 0; i < NFSSTORE_DIR_LOCKS; i++)
		pthread_rwlock_destroy(&store->dir_locks[i]);
}

int nfsdirs_run(struct nfsstore *store, const nfs_fh3 *dir, struct nfscall *call)
{
	pthread_rwlock_t *lock = lock_of(store, dir);
	int r;

	pthread_rwlock_rdlock(lock);
	r = nfscall_run(store, call);
	pthread_rwlock_unlock(lock);
	return r;
}

int nfsdirs_run_rename(struct nfsstore *store, const nfs_fh3 *from, const nfs_fh3 *to, struct nfscall *call)
{
	pthread_rwlock_t *low = lock_of(store, from), *high = lock_of(store, to), *swap;
	int r;

	if (from->data.data_len == to->data.data_len &&
	    memcmp(from->data.data_val, to->data.data_val, from->data.data_len) == 0)
		return nfsdirs_run(store, from, call);
	if (low > high) {
		swap = low;
		low = high;
		high = swap;
	}
	pthread_rwlock_wrlock(low);
	if (high != low)
		pthread_rwlock_wrlock(high);
	r = nfscall_run(store, call);
	if (high != low)
		pthread_rwlock_unlock(high);
	pthread_rwlock_unlock(low);
	return r;
}
