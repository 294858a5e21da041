/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names. Where a call is repeated because an answer was lost, its own first attempt may
 * be what the repetition runs into; each function says how it tells.
 */
#include "fs/store/nfs_store.h"

#include <errno.h>
#include <string.h>

struct lookup_reply {
	struct locator locator;
	struct nfsattr_maybe attr;
};

static int take_lookup(void *result, const void *reply)
{
	const LOOKUP3resok *ok = &((const LOOKUP3res *)reply)->LOOKUP3res_u.resok;
	struct lookup_reply *lookup = result;

	nfsattr_from_post_op(&ok->obj_attributes, &lookup->attr);
	return nfshandle_locator(ok->object.data.data_val, ok->object.data.data_len,
				 &lookup->locator);
}

int nfsname_lookup(struct store *store, const struct locator *dir, const char *name,
		   struct locator *ret_locator, struct store_attr *ret_attr)
{
	LOOKUP3args args = { .what = nfshandle_wire_name(dir, name) };
	struct lookup_reply reply;
	struct nfscall call = {
		.procedure = NFS3_LOOKUP, .args = &args, .take = take_lookup, .result = &reply
	};
	int r;

	r = nfsdirs_run(nfsstore_of(store), &args.what.dir, &call);
	if (r == 0 && !reply.attr.is_there)
		r = nfsattr_get(store, &reply.locator, &reply.attr.attr);
	if (r != 0)
		return r;
	nfshandle_set_type(&reply.locator, reply.attr.attr.mode);
	if (ret_locator)
		*ret_locator = reply.locator;
	if (ret_attr)
		*ret_attr = reply.attr.attr;
	return 0;
}

int nfsname_link(struct store *store, const struct locator *object, const struct locator *dir,
		 const char *name)
{
	LINK3args args = { .file = nfshandle_wire(object), .link = nfshandle_wire_name(dir, name) };
	struct nfscall call = { .procedure = NFS3_LINK, .args = &args };
	struct locator found;
	int r;

	r = nfsdirs_run(nfsstore_of(store), &args.link.dir, &call);
	/* A first attempt that got through made exactly this name. */
	if (r == -EEXIST && call.was_lost && nfsname_lookup(store, dir, name, &found, NULL) == 0 &&
	    locator_equal(&found, object))
		return 0;
	return r;
}

/* The old name is gone and the new one is there: only our lost first attempt can have
 * done that, as names are changed by nobody else. */
static bool is_renamed(struct store *store, const struct locator *old_dir, const char *old_name,
		       const struct locator *new_dir, const char *new_name)
{
	return nfsname_lookup(store, old_dir, old_name, NULL, NULL) == -ENOENT &&
	       nfsname_lookup(store, new_dir, new_name, NULL, NULL) == 0;
}

int nfsname_rename(struct store *store, const struct locator *old_dir, const char *old_name,
		   const struct locator *new_dir, const char *new_name, unsigned flags)
{
	RENAME3args args = { .from = nfshandle_wire_name(old_dir, old_name),
			     .to = nfshandle_wire_name(new_dir, new_name) };
	struct nfscall call = { .procedure = NFS3_RENAME, .args = &args };
	int r;

	/* NFSv3 has neither, and imitating them would not be atomic. */
	if (flags != 0)
		return -EINVAL;
	r = nfsdirs_run_rename(nfsstore_of(store), &args.from.dir, &args.to.dir, &call);
	if (r == -ENOENT && call.was_lost &&
	    is_renamed(store, old_dir, old_name, new_dir, new_name))
		return 0;
	return r;
}

static int remove_name(struct store *store, int procedure, const struct locator *dir,
		       const char *name)
{
	REMOVE3args args = { .object = nfshandle_wire_name(dir, name) };
	RMDIR3args rmdir_args = { .object = args.object };
	struct nfscall call = {
		.procedure = procedure,
		.args = procedure == NFS3_REMOVE ? (void *)&args : (void *)&rmdir_args,
	};
	int r;

	r = nfsdirs_run(nfsstore_of(store), &args.object.dir, &call);
	return r == -ENOENT && call.was_lost ? 0 : r; /* the first attempt did it */
}

int nfsname_unlink(struct store *store, const struct locator *dir, const char *name)
{
	return remove_name(store, NFS3_REMOVE, dir, name);
}

int nfsname_rmdir(struct store *store, const struct locator *dir, const char *name)
{
	int r = remove_name(store, NFS3_RMDIR, dir, name);

	return r == -EEXIST ? -ENOTEMPTY : r; /* some servers say so */
}

struct readlink_reply {
	char *buffer;
	size_t size;
};

static int take_readlink(void *result, const void *reply)
{
	const char *target = ((const READLINK3res *)reply)->READLINK3res_u.resok.data;
	struct readlink_reply *readlink = result;
	size_t length = target ? strlen(target) : 0;

	if (length >= readlink->size)
		return -ERANGE;
	memcpy(readlink->buffer, target ? target : "", length + 1);
	return 0;
}

int nfsname_readlink(struct store *store, const struct locator *object, char *buffer, size_t size)
{
	READLINK3args args = { .symlink = nfshandle_wire(object) };
	struct readlink_reply reply = { .buffer = buffer, .size = size };
	struct nfscall call = {
		.procedure = NFS3_READLINK, .args = &args, .take = take_readlink, .result = &reply
	};

	return nfscall_run(nfsstore_of(store), &call);
}
