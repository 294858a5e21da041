/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The NFS store: life and the table of operations. The layers, from below:
 * nfs_connect (address to connection), nfs_conn (one connection, its thread),
 * nfs_call (one call, whatever becomes of connections), and the operations.
 */
#include "fs/store/nfs_store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "fs/store/nfs_connect.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/log.h"

static ssize_t no_getxattr(struct store *store UNUSED, const struct locator *object UNUSED,
			   const char *name UNUSED, void *value UNUSED, size_t size UNUSED)
{
	return -EOPNOTSUPP;
}

static ssize_t no_listxattr(struct store *store UNUSED, const struct locator *object UNUSED,
			    char *list UNUSED, size_t size UNUSED)
{
	return -EOPNOTSUPP;
}

static int no_setxattr(struct store *store UNUSED, const struct locator *object UNUSED,
		       const char *name UNUSED, const void *value UNUSED, size_t size UNUSED,
		       int flags UNUSED)
{
	return -EOPNOTSUPP;
}

static int no_removexattr(struct store *store UNUSED, const struct locator *object UNUSED,
			  const char *name UNUSED)
{
	return -EOPNOTSUPP;
}

static int no_tmpfile(struct store *store UNUSED, const struct locator *dir UNUSED,
		      const struct store_new *new UNUSED, bool is_linkable UNUSED,
		      struct locator *ret_locator UNUSED, struct store_attr *ret_attr UNUSED,
		      struct store_file **ret_file UNUSED)
{
	return -EOPNOTSUPP;
}

static void set_reports_unknown(struct store *store, bool reports_unknown)
{
	atomic_store(&nfsstore_of(store)->reports_unknown, reports_unknown);
}

static uint64_t last_loss_ms(struct store *store)
{
	return nfsloss_last_ms(&nfsstore_of(store)->loss);
}

static void root(struct store *store, struct locator *ret_locator)
{
	*ret_locator = nfsstore_of(store)->root;
}

static struct store *nfsstore_close(struct store *store)
{
	struct nfsstore *self = nfsstore_of(store);

	for (unsigned i = 0; i < self->conn_count; i++)
		nfsconn_done(&self->conns[i]);
	nfsunstable_done(&self->unstable);
	nfsdirs_done(self);
	nfsloss_done(&self->loss);
	(void)pthread_mutex_destroy(&self->commit_lock);
	free(self->base.identity);
	free(self);
	return NULL;
}

static const struct store_ops nfs_ops = {
	.close = nfsstore_close,
	.set_reports_unknown = set_reports_unknown,
	.last_loss_ms = last_loss_ms,
	.probe_target = nfsprobe_target,
	.root = root,
	.lookup = nfsname_lookup,
	.getattr = nfsattr_get,
	.setattr = nfsattr_set,
	.create = nfscreate,
	.tmpfile = no_tmpfile,
	.link = nfsname_link,
	.rename = nfsname_rename,
	.unlink = nfsname_unlink,
	.rmdir = nfsname_rmdir,
	.readlink = nfsname_readlink,
	.getxattr = no_getxattr,
	.listxattr = no_listxattr,
	.setxattr = no_setxattr,
	.removexattr = no_removexattr,
	.dir_open = nfsdir_list_open,
	.dir_next = nfsdir_list_next,
	.dir_seek = nfsdir_list_seek,
	.dir_fsync = nfsdir_list_fsync,
	.dir_close = nfsdir_list_close,
	.open = nfsfile_open,
	.file_close = nfsfile_close,
	.file_fd = nfsfile_fd,
	.read = nfsfile_read,
	.write = nfsfile_write,
	.file_getattr = nfsfile_getattr,
	.file_setattr = nfsfile_setattr,
	.fsync = nfscommit_file,
	.fallocate = nfsfile_fallocate,
	.seek = nfsfile_seek,
	.copy_range = nfsfile_copy_range,
	.commit = nfscommit_all,
	.statfs = nfsattr_statfs,
};

static unsigned timeout_from_environment(void)
{
	const char *text = getenv("FERRYFS_NFS_TIMEOUT_MS");
	unsigned long ms = text ? strtoul(text, NULL, 10) : 0;

	return ms > 0 && ms <= 3600 * 1000 ? (unsigned)ms : NFSSTORE_TIMEOUT_MS;
}

static const char *remedy(int r)
{
	switch (r) {
	case -ENOENT:
	case -ENOTDIR:
		return "check the path of the export";
	case -EACCES:
	case -EPERM:
		return "let this machine mount the export, read-write and without root squash";
	case -EPROTONOSUPPORT:
		return "the server must offer NFSv3 over TCP with AUTH_SYS; else mount it and use the path";
	case -EHOSTUNREACH:
		return "check the host name and the network";
	default:
		return "check that the server runs and is reachable; without a portmapper give "
		       "'?nfsport=N&mountport=N'";
	}
}

static struct nfsstore *nfsstore_new(const struct nfsurl *url, bool reports_unknown)
{
	struct nfsstore *store = calloc(1, sizeof(*store));
	char identity[NFSURL_HOST_MAX + NFSURL_EXPORT_MAX + 32];
	uint32_t xid = 0;

	if (!store)
		return NULL;
	nfsurl_format(url, identity, sizeof(identity));
	store->base.identity = strdup(identity);
	if (!store->base.identity) {
		free(store);
		return NULL;
	}
	/* Ids that an earlier run has used may still be in the server's memory. */
	if (getrandom(&xid, sizeof(xid), 0) != sizeof(xid))
		xid = (uint32_t)clock_ns();
	store->base.ops = &nfs_ops;
	store->base.caps = (struct store_caps){
		.type = "nfs",
		.has_handles = true,
		.has_symlink_times = true, /* unless the probe finds otherwise */
		.time_granularity_ns = 1,
		.parallel_max = NFSCONN_CALLS_MAX,
		.io_size_max = NFSSTORE_IO_BYTES_MAX,
	};
	store->url = *url;
	store->timeout_ms = timeout_from_environment();
	atomic_init(&store->xid, xid);
	atomic_init(&store->reports_unknown, reports_unknown);
	(void)pthread_mutex_init(&store->commit_lock,
				 NULL); /* cannot fail with default attributes */
	nfsdirs_init(store);
	nfsunstable_init(&store->unstable);
	nfsloss_init(&store->loss);
	return store;
}

/* The first connection must come up; the others may come later by themselves. */
static int start_connections(struct nfsstore *store, unsigned count, uint64_t deadline_ms,
			     struct nfsconnect_error *ret_error)
{
	struct nfsconnect_error ignored;

	for (unsigned i = 0; i < count; i++) {
		struct rpc_context *rpc = NULL;
		int r;

		r = nfsconnect_nfs(&store->url, deadline_ms, -1, &rpc,
				   i == 0 ? ret_error : &ignored);
		if (r < 0 && i == 0)
			return r;
		r = nfsconn_init(&store->conns[i], &store->url, &store->loss,
				 &store->reports_unknown, i, store->timeout_ms, rpc);
		if (r < 0)
			return r;
		store->conn_count = i + 1;
	}
	return 0;
}

/* With a bound on its time, whatever the caller wants later. */
static int look_at_root(struct nfsstore *store)
{
	bool reports_unknown = atomic_exchange(&store->reports_unknown, true);
	struct store_attr attr;
	int r;

	r = nfsattr_get(&store->base, &store->root, &attr);
	if (r == 0)
		r = nfsattr_fsinfo(store);
	if (r == 0 && !S_ISDIR(attr.mode))
		r = -ENOTDIR;
	atomic_store(&store->reports_unknown, reports_unknown);
	return r;
}

int store_nfs_open(const char *url_text, unsigned connections, bool reports_unknown,
		   struct store **ret_store)
{
	uint64_t deadline_ms = clock_ms() + NFSSTORE_OPEN_MS_MAX;
	struct nfsconnect_error error = { .text = "the server does not answer" };
	struct nfsstore *store;
	struct nfsurl url;
	const char *why;
	int r;

	assert(connections >= 1 && connections <= NFSSTORE_CONNECTIONS_MAX);

	r = nfsurl_parse(url_text, &url, &why);
	if (r < 0)
		return log_error_errno(r, "'%s' is no address of an NFS export: %s", url_text, why);
	store = nfsstore_new(&url, reports_unknown);
	if (!store)
		return -ENOMEM;

	r = nfsconnect_mount(&url, deadline_ms, &store->root, &error);
	if (r == 0)
		r = start_connections(store, connections, deadline_ms, &error);
	if (r == 0)
		r = look_at_root(store);
	if (r != 0) {
		(void)log_error_errno(r, "cannot open '%s': %s; %s", store->base.identity,
				      error.text, remedy(r));
		nfsstore_close(&store->base);
		return r;
	}
	*ret_store = &store->base;
	return 0;
}
