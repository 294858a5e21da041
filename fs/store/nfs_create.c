/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making an object is one call that brings owner and mode with it. Then the reply's
 * attributes are compared with what was wanted, and only what a server got wrong is
 * set: suid and sgid that it dropped with the owner, the group and sgid that a setgid
 * directory gives, what a default ACL made of the mode.
 *
 * A repeated call may be answered with EEXIST because of its own lost first attempt,
 * which a dying server may even have left half done. What stands there is ours if it was
 * made since we began: by the server's clock, which is asked for then.
 */
#include "fs/store/nfs_store.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <time.h>

#include "util/log.h"

enum { CLOCK_TICK_NS = 20 * 1000 * 1000 }; /* file systems look at the clock so seldom */

/* What a new object is to look like. */
struct wanted {
	const struct store_new *new;
	mode_t mode;
	uint32_t uid, gid;
};

struct create_reply {
	bool has_locator;
	struct locator locator;
	struct nfsattr_maybe attr, dir;
};

/* All replies that make an object are alike but for their types. */
static int take_made(struct create_reply *made, const post_op_fh3 *handle, const post_op_attr *attr,
		     const wcc_data *dir)
{
	made->has_locator = handle->handle_follows;
	nfsattr_from_post_op(attr, &made->attr);
	nfsattr_from_post_op(&dir->after, &made->dir);
	if (!made->has_locator)
		return 0;
	return nfshandle_locator(handle->post_op_fh3_u.handle.data.data_val,
				 handle->post_op_fh3_u.handle.data.data_len, &made->locator);
}

static int take_create(void *result, const void *reply)
{
	const CREATE3resok *ok = &((const CREATE3res *)reply)->CREATE3res_u.resok;

	return take_made(result, &ok->obj, &ok->obj_attributes, &ok->dir_wcc);
}

static int take_mkdir(void *result, const void *reply)
{
	const MKDIR3resok *ok = &((const MKDIR3res *)reply)->MKDIR3res_u.resok;

	return take_made(result, &ok->obj, &ok->obj_attributes, &ok->dir_wcc);
}

static int take_symlink(void *result, const void *reply)
{
	const SYMLINK3resok *ok = &((const SYMLINK3res *)reply)->SYMLINK3res_u.resok;

	return take_made(result, &ok->obj, &ok->obj_attributes, &ok->dir_wcc);
}

static int take_mknod(void *result, const void *reply)
{
	const MKNOD3resok *ok = &((const MKNOD3res *)reply)->MKNOD3res_u.resok;

	return take_made(result, &ok->obj, &ok->obj_attributes, &ok->dir_wcc);
}

/* ---- what is wanted -------------------------------------------------------------- */

static struct wanted want(const struct store_new *new)
{
	struct wanted wanted = {
		.new = new,
		.mode = new->mode & 07777,
		.uid = new->uid,
		.gid = new->gid,
	};

	if (new->cred) {
		wanted.mode &= ~new->cred->umask;
		wanted.uid = new->cred->uid;
		wanted.gid = new->cred->gid;
	}
	return wanted;
}

static bool is_in_group(const struct store_cred *cred, uint32_t gid)
{
	if (cred->uid == 0 || cred->gid == gid)
		return true;
	for (unsigned i = 0; i < cred->group_count; i++)
		if (cred->groups[i] == gid)
			return true;
	return false;
}

/* The rules of a setgid directory, as a local file system has them for a process. */
static void apply_setgid(struct wanted *wanted, const struct store_attr *dir)
{
	const struct store_cred *cred = wanted->new->cred;

	if (!cred || !(dir->mode & S_ISGID))
		return;
	wanted->gid = dir->gid;
	if (S_ISDIR(wanted->new->mode))
		wanted->mode |= S_ISGID;
	else if ((wanted->mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) &&
		 !is_in_group(cred, dir->gid))
		wanted->mode &= ~(mode_t)S_ISGID;
}

static sattr3 wanted_sattr(const struct wanted *wanted)
{
	return (sattr3){
		.mode = { .set_it = 1, .set_mode3_u.mode = wanted->mode },
		.uid = { .set_it = 1, .set_uid3_u.uid = wanted->uid },
		.gid = { .set_it = 1, .set_gid3_u.gid = wanted->gid },
	};
}

/* ---- the call --------------------------------------------------------------------- */

static mknoddata3 node_data(const struct store_new *new, const sattr3 *sattr)
{
	devicedata3 device = { .dev_attributes = *sattr,
			       .spec = { .specdata1 = major(new->rdev),
					 .specdata2 = minor(new->rdev) } };
	mknoddata3 data = { 0 };

	switch (new->mode &S_IFMT) {
	case S_IFCHR:
		data.type = NF3CHR;
		data.mknoddata3_u.chr_device = device;
		break;
	case S_IFBLK:
		data.type = NF3BLK;
		data.mknoddata3_u.blk_device = device;
		break;
	case S_IFSOCK:
		data.type = NF3SOCK;
		data.mknoddata3_u.sock_attributes = *sattr;
		break;
	default:
		data.type = NF3FIFO;
		data.mknoddata3_u.pipe_attributes = *sattr;
		break;
	}
	return data;
}

/* Sends the call that fits the type; *@ret_was_lost as of struct nfscall. */
static int send_create(struct nfsstore *store, diropargs3 where, const struct wanted *wanted,
		       struct create_reply *ret_reply, bool *ret_was_lost)
{
	sattr3 sattr = wanted_sattr(wanted);
	CREATE3args create;
	MKDIR3args mkdir;
	SYMLINK3args symlink;
	MKNOD3args mknod;
	struct nfscall call = { .result = ret_reply };
	int r;

	switch (wanted->new->mode &S_IFMT) {
	case S_IFREG:
		create = (CREATE3args){ .where = where,
					.how = { .mode = GUARDED,
						 .createhow3_u.g_obj_attributes = sattr } };
		call.procedure = NFS3_CREATE;
		call.args = &create;
		call.take = take_create;
		break;
	case S_IFDIR:
		mkdir = (MKDIR3args){ .where = where, .attributes = sattr };
		call.procedure = NFS3_MKDIR;
		call.args = &mkdir;
		call.take = take_mkdir;
		break;
	case S_IFLNK:
		if (!wanted->new->link_target)
			return -EINVAL;
		sattr.mode.set_it = 0; /* links have none, and some servers refuse one */
		symlink = (SYMLINK3args){
			.where = where,
			.symlink = { .symlink_attributes = sattr,
				     .symlink_data = (char *)(uintptr_t)wanted->new->link_target }
		};
		call.procedure = NFS3_SYMLINK;
		call.args = &symlink;
		call.take = take_symlink;
		break;
	case S_IFCHR:
	case S_IFBLK:
	case S_IFSOCK:
	case S_IFIFO:
		mknod = (MKNOD3args){ .where = where, .what = node_data(wanted->new, &sattr) };
		call.procedure = NFS3_MKNOD;
		call.args = &mknod;
		call.take = take_mknod;
		break;
	default:
		return -EINVAL;
	}
	r = nfsdirs_run(store, &where.dir, &call);
	*ret_was_lost = call.was_lost;
	return r;
}

/* ---- afterwards ---------------------------------------------------------------------- */

static bool has_target(struct store *store, const struct locator *link, const char *target)
{
	char found[PATH_MAX];

	return nfsname_readlink(store, link, found, sizeof(found)) == 0 &&
	       strcmp(found, target) == 0;
}

static int64_t to_ns(struct timespec time)
{
	return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static int64_t realtime_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return to_ns(now);
}

/* Was @attr's object made after @begin_ns of our clock? The server's clock is read by
 * letting it set an atime: that of the directory, which we have tried to change anyway. */
static bool is_made_since(struct store *store, const struct locator *dir,
			  const struct store_attr *attr, int64_t begin_ns)
{
	const struct store_setattr now = { .valid = STORE_SET_ATIME_NOW };
	const int64_t unit_ns = (int64_t)store->caps.time_granularity_ns;
	struct store_attr dir_attr;
	int64_t ahead_ns;

	if (nfsattr_set(store, dir, &now, &dir_attr) != 0)
		return false;
	ahead_ns = to_ns(dir_attr.atime) - realtime_ns();
	return to_ns(attr->ctime) + unit_ns + CLOCK_TICK_NS >= begin_ns + ahead_ns;
}

/* Can what stands there be what our first attempt made? */
static bool is_alike(struct store *store, const struct store_new *new,
		     const struct create_reply *found)
{
	const struct store_attr *attr = &found->attr.attr;

	if ((attr->mode & S_IFMT) != (new->mode &S_IFMT))
		return false;
	if (S_ISREG(new->mode))
		return attr->size == 0 && attr->nlink == 1;
	if (S_ISLNK(new->mode))
		return has_target(store, &found->locator, new->link_target);
	if (S_ISCHR(new->mode) || S_ISBLK(new->mode))
		return attr->rdev == new->rdev;
	return true;
}

/* After EEXIST: 0 and the object if it is ours. */
static int adopt(struct store *store, const struct locator *dir, const char *name,
		 const struct store_new *new, int64_t begin_ns, struct create_reply *ret_reply)
{
	struct create_reply found = { .has_locator = true, .attr.is_there = true };
	int r;

	r = nfsname_lookup(store, dir, name, &found.locator, &found.attr.attr);
	if (r != 0)
		return r;
	if (!is_alike(store, new, &found) || !is_made_since(store, dir, &found.attr.attr, begin_ns))
		return -EEXIST;
	*ret_reply = found;
	return 0;
}

/* Fills in what the reply left out. */
static int complete(struct store *store, const struct locator *dir, const char *name,
		    const struct wanted *wanted, struct create_reply *reply)
{
	int r = 0;

	if (!reply->has_locator)
		r = nfsname_lookup(store, dir, name, &reply->locator, &reply->attr.attr);
	else if (!reply->attr.is_there)
		r = nfsattr_get(store, &reply->locator, &reply->attr.attr);
	if (r == 0)
		nfshandle_set_type(&reply->locator, reply->attr.attr.mode);
	if (r == 0 && wanted->new->cred && !reply->dir.is_there)
		r = nfsattr_get(store, dir, &reply->dir.attr);
	return r;
}

/* Sets what is not as wanted. */
static int correct(struct store *store, const struct wanted *wanted, struct create_reply *reply)
{
	struct store_setattr set = { .mode = wanted->mode, .uid = wanted->uid, .gid = wanted->gid };
	const struct store_attr *attr = &reply->attr.attr;

	if (attr->uid != wanted->uid)
		set.valid |= STORE_SET_UID;
	if (attr->gid != wanted->gid)
		set.valid |= STORE_SET_GID;
	if (!S_ISLNK(attr->mode) && ((attr->mode & 07777) != wanted->mode ||
				     (set.valid && (wanted->mode & (S_ISUID | S_ISGID)))))
		set.valid |= STORE_SET_MODE;
	if (set.valid == 0)
		return 0;
	return nfsattr_set(store, &reply->locator, &set, &reply->attr.attr);
}

int nfscreate(struct store *store, const struct locator *dir, const char *name,
	      const struct store_new *new, struct locator *ret_locator, struct store_attr *ret_attr)
{
	struct wanted wanted = want(new);
	struct create_reply reply = { 0 };
	int64_t begin_ns = realtime_ns();
	bool was_lost = false;
	int r;

	r = send_create(nfsstore_of(store), nfshandle_wire_name(dir, name), &wanted, &reply,
			&was_lost);
	if (r == -EEXIST && was_lost)
		r = adopt(store, dir, name, new, begin_ns, &reply);
	if (r != 0)
		return r;

	r = complete(store, dir, name, &wanted, &reply);
	if (r == 0) {
		apply_setgid(&wanted, &reply.dir.attr);
		r = correct(store, &wanted, &reply);
	}
	if (r < 0 && r != -EHOSTDOWN) {
		/* Half an object is worse than none. */
		int removed = S_ISDIR(new->mode) ? nfsname_rmdir(store, dir, name)
						 : nfsname_unlink(store, dir, name);

		/* Whoever can be told so sees what is there, once a lost removal cannot land. */
		if (removed != 0 && removed != -ENOENT) {
			if (atomic_load(&nfsstore_of(store)->reports_unknown))
				return STORE_E_UNKNOWN;
			log_debug(
				"an object whose attributes could not be set stays behind, ignoring");
		}
	}
	/* The object is there, but perhaps not as wanted: like any unknown outcome. */
	if (r == -EHOSTDOWN)
		return STORE_E_UNKNOWN;
	if (r != 0)
		return r;
	*ret_locator = reply.locator;
	*ret_attr = reply.attr.attr;
	return 0;
}
