/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/store/nfs_store.h"

#include <errno.h>
#include <string.h>
#include <sys/sysmacros.h>

static mode_t type_from_wire(ftype3 type)
{
	switch (type) {
	case NF3REG:
		return S_IFREG;
	case NF3DIR:
		return S_IFDIR;
	case NF3BLK:
		return S_IFBLK;
	case NF3CHR:
		return S_IFCHR;
	case NF3LNK:
		return S_IFLNK;
	case NF3SOCK:
		return S_IFSOCK;
	case NF3FIFO:
		return S_IFIFO;
	}
	return 0;
}

static struct timespec time_from_wire(nfstime3 wire)
{
	return (struct timespec){ .tv_sec = wire.seconds, .tv_nsec = wire.nseconds };
}

/* The protocol counts from 1970 to 2106; what lies outside is moved to the border, as
 * file systems do. */
static nfstime3 time_to_wire(struct timespec time)
{
	if (time.tv_sec < 0)
		return (nfstime3){ 0 };
	if (time.tv_sec > UINT32_MAX)
		return (nfstime3){ .seconds = UINT32_MAX };
	return (nfstime3){ .seconds = (u_int)time.tv_sec, .nseconds = (u_int)time.tv_nsec };
}

void nfsattr_from_wire(const fattr3 *wire, struct store_attr *ret_attr)
{
	*ret_attr = (struct store_attr){
		.mode = type_from_wire(wire->type) | (wire->mode & 07777),
		.nlink = wire->nlink,
		.uid = wire->uid,
		.gid = wire->gid,
		.ino = wire->fileid,
		.size = wire->size,
		.blocks = wire->used / 512 + (wire->used % 512 != 0),
		.block_size = NFSSTORE_BLOCK_BYTES,
		.atime = time_from_wire(wire->atime),
		.mtime = time_from_wire(wire->mtime),
		.ctime = time_from_wire(wire->ctime),
	};
	if (wire->type == NF3BLK || wire->type == NF3CHR)
		ret_attr->rdev = makedev(wire->rdev.specdata1, wire->rdev.specdata2);
}

void nfsattr_from_post_op(const post_op_attr *wire, struct nfsattr_maybe *ret_attr)
{
	ret_attr->is_there = wire->attributes_follow;
	if (ret_attr->is_there)
		nfsattr_from_wire(&wire->post_op_attr_u.attributes, &ret_attr->attr);
}

/* ---- GETATTR ----------------------------------------------------------------- */

static int take_getattr(void *result, const void *reply)
{
	const GETATTR3res *r = reply;

	nfsattr_from_wire(&r->GETATTR3res_u.resok.obj_attributes, result);
	return 0;
}

int nfsattr_get(struct store *store, const struct locator *object, struct store_attr *ret_attr)
{
	GETATTR3args args = { .object = nfshandle_wire(object) };
	struct store_attr attr;
	struct nfscall call = {
		.procedure = NFS3_GETATTR, .args = &args, .take = take_getattr, .result = &attr
	};
	int r;

	r = nfscall_run(nfsstore_of(store), &call);
	if (r != 0)
		return r;
	*ret_attr = attr;
	return 0;
}

/* ---- SETATTR ----------------------------------------------------------------- */

static int take_setattr(void *result, const void *reply)
{
	const SETATTR3res *r = reply;

	nfsattr_from_post_op(&r->SETATTR3res_u.resok.obj_wcc.after, result);
	return 0;
}

static int send_setattr(struct nfsstore *store, SETATTR3args *args, struct nfsattr_maybe *ret_attr)
{
	struct nfscall call = {
		.procedure = NFS3_SETATTR, .args = args, .take = take_setattr, .result = ret_attr
	};

	return nfscall_run(store, &call);
}

static void fill_sattr(const struct store_setattr *set, unsigned valid, sattr3 *ret_wire)
{
	sattr3 wire = { 0 };

	if (valid & STORE_SET_MODE) {
		wire.mode.set_it = 1;
		wire.mode.set_mode3_u.mode = set->mode & 07777;
	}
	if (valid & STORE_SET_UID) {
		wire.uid.set_it = 1;
		wire.uid.set_uid3_u.uid = set->uid;
	}
	if (valid & STORE_SET_GID) {
		wire.gid.set_it = 1;
		wire.gid.set_gid3_u.gid = set->gid;
	}
	if (valid & STORE_SET_SIZE) {
		wire.size.set_it = 1;
		wire.size.set_size3_u.size = set->size;
	}
	if (valid & STORE_SET_ATIME_NOW) {
		wire.atime.set_it = SET_TO_SERVER_TIME;
	} else if (valid & STORE_SET_ATIME) {
		wire.atime.set_it = SET_TO_CLIENT_TIME;
		wire.atime.set_atime_u.atime = time_to_wire(set->atime);
	}
	if (valid & STORE_SET_MTIME_NOW) {
		wire.mtime.set_it = SET_TO_SERVER_TIME;
	} else if (valid & STORE_SET_MTIME) {
		wire.mtime.set_it = SET_TO_CLIENT_TIME;
		wire.mtime.set_mtime_u.mtime = time_to_wire(set->mtime);
	}
	*ret_wire = wire;
}

/* Servers change the mode before the owner, and a change of owner strips suid and sgid:
 * with both, the owner goes ahead in a call of its own. */
static unsigned first_part(const struct store_setattr *set)
{
	const unsigned owner = STORE_SET_UID | STORE_SET_GID;

	if ((set->valid & owner) && (set->valid & STORE_SET_MODE) &&
	    (set->mode & (S_ISUID | S_ISGID)))
		return set->valid & (owner | STORE_SET_SIZE);
	return 0;
}

int nfsattr_set(struct store *store, const struct locator *object, const struct store_setattr *set,
		struct store_attr *ret_attr)
{
	SETATTR3args args = { .object = nfshandle_wire(object) };
	struct nfsattr_maybe after = { 0 };
	unsigned first = first_part(set), rest = set->valid & ~first;
	int r = 0;

	if ((set->valid & STORE_SET_SIZE) && !S_ISREG(nfshandle_type(object)))
		return S_ISDIR(nfshandle_type(object)) ? -EISDIR : -EINVAL;
	if (first) {
		fill_sattr(set, first, &args.new_attributes);
		r = send_setattr(nfsstore_of(store), &args, &after);
	}
	if (r == 0 && rest) {
		fill_sattr(set, rest, &args.new_attributes);
		r = send_setattr(nfsstore_of(store), &args, &after);
	}
	if (r != 0 || !ret_attr)
		return r;
	if (!after.is_there)
		return nfsattr_get(store, object, ret_attr);
	*ret_attr = after.attr;
	return 0;
}

int nfsattr_set_size_guarded(struct nfsstore *store, const struct locator *object, uint64_t size,
			     const struct store_attr *seen)
{
	SETATTR3args args = { .object = nfshandle_wire(object), .guard.check = 1 };
	struct store_setattr set = { .valid = STORE_SET_SIZE, .size = size };
	struct nfsattr_maybe after = { 0 };

	fill_sattr(&set, set.valid, &args.new_attributes);
	args.guard.sattrguard3_u.obj_ctime = time_to_wire(seen->ctime);
	return send_setattr(store, &args, &after);
}

/* ---- the file system ------------------------------------------------------------ */

static int take_fsstat(void *result, const void *reply)
{
	const FSSTAT3resok *ok = &((const FSSTAT3res *)reply)->FSSTAT3res_u.resok;
	struct statvfs *statvfs = result;
	const unsigned long unit = 4096;

	*statvfs = (struct statvfs){
		.f_bsize = NFSSTORE_IO_BYTES_MAX,
		.f_frsize = unit,
		.f_blocks = ok->tbytes / unit,
		.f_bfree = ok->fbytes / unit,
		.f_bavail = ok->abytes / unit,
		.f_files = ok->tfiles,
		.f_ffree = ok->ffiles,
		.f_favail = ok->afiles,
		.f_namemax = 255,
	};
	return 0;
}

int nfsattr_statfs(struct store *store, struct statvfs *ret_statvfs)
{
	FSSTAT3args args = { .fsroot = nfshandle_wire(&nfsstore_of(store)->root) };
	struct statvfs statvfs;
	struct nfscall call = {
		.procedure = NFS3_FSSTAT, .args = &args, .take = take_fsstat, .result = &statvfs
	};
	int r;

	r = nfscall_run(nfsstore_of(store), &call);
	if (r != 0)
		return r;
	statvfs.f_bsize = nfsstore_of(store)->write_bytes_max;
	*ret_statvfs = statvfs;
	return 0;
}

static int take_fsinfo(void *result, const void *reply)
{
	*(FSINFO3resok *)result = ((const FSINFO3res *)reply)->FSINFO3res_u.resok;
	return 0;
}

static uint32_t io_size(uint32_t said)
{
	if (said < NFSSTORE_IO_BYTES_MIN)
		return NFSSTORE_IO_BYTES_MIN;
	return said < NFSSTORE_IO_BYTES_MAX ? said : NFSSTORE_IO_BYTES_MAX;
}

int nfsattr_fsinfo(struct nfsstore *store)
{
	FSINFO3args args = { .fsroot = nfshandle_wire(&store->root) };
	FSINFO3resok info;
	struct nfscall call = {
		.procedure = NFS3_FSINFO, .args = &args, .take = take_fsinfo, .result = &info
	};
	int r;

	r = nfscall_run(store, &call);
	if (r != 0)
		return r;
	store->read_bytes_max = io_size(info.rtmax);
	store->write_bytes_max = io_size(info.wtmax);
	store->base.caps.io_size_max = store->write_bytes_max;
	store->base.caps.time_granularity_ns =
		info.time_delta.seconds * UINT64_C(1000000000) + info.time_delta.nseconds;
	if (store->base.caps.time_granularity_ns == 0)
		store->base.caps.time_granularity_ns = 1;
	return 0;
}
