/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/store/nfs_error.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

int nfserror_of_status(nfsstat3 status)
{
	switch (status) {
	case NFS3_OK:
		return 0;
	case NFS3ERR_PERM:
		return -EPERM;
	case NFS3ERR_NOENT:
		return -ENOENT;
	case NFS3ERR_IO:
		return -EIO;
	case NFS3ERR_NXIO:
		return -ENXIO;
	case NFS3ERR_ACCES:
		return -EACCES;
	case NFS3ERR_EXIST:
		return -EEXIST;
	case NFS3ERR_XDEV:
		return -EXDEV;
	case NFS3ERR_NODEV:
		return -ENODEV;
	case NFS3ERR_NOTDIR:
		return -ENOTDIR;
	case NFS3ERR_ISDIR:
		return -EISDIR;
	case NFS3ERR_INVAL:
		return -EINVAL;
	case NFS3ERR_FBIG:
		return -EFBIG;
	case NFS3ERR_NOSPC:
		return -ENOSPC;
	case NFS3ERR_ROFS:
		return -EROFS;
	case NFS3ERR_MLINK:
		return -EMLINK;
	case NFS3ERR_NAMETOOLONG:
		return -ENAMETOOLONG;
	case NFS3ERR_NOTEMPTY:
		return -ENOTEMPTY;
	case NFS3ERR_DQUOT:
		return -EDQUOT;
	case NFS3ERR_STALE:
	case NFS3ERR_BADHANDLE:
		return -ESTALE;
	case NFS3ERR_REMOTE:
		return -EREMOTE;
	case NFS3ERR_NOT_SYNC:
	case NFS3ERR_JUKEBOX:
		return -EAGAIN;
	case NFS3ERR_NOTSUPP:
	case NFS3ERR_BADTYPE: /* a special file that this server cannot make */
		return -EOPNOTSUPP;
	case NFS3ERR_BAD_COOKIE:
	case NFS3ERR_TOOSMALL:
	case NFS3ERR_SERVERFAULT:
		return -EIO;
	}
	return -EIO; /* a code that NFSv3 does not have */
}

int nfserror_of_mount(mountstat3 status)
{
	switch (status) {
	case MNT3_OK:
		return 0;
	case MNT3ERR_PERM:
		return -EPERM;
	case MNT3ERR_NOENT:
		return -ENOENT;
	case MNT3ERR_IO:
		return -EIO;
	case MNT3ERR_ACCES:
		return -EACCES;
	case MNT3ERR_NOTDIR:
		return -ENOTDIR;
	case MNT3ERR_INVAL:
		return -EINVAL;
	case MNT3ERR_NAMETOOLONG:
		return -ENAMETOOLONG;
	case MNT3ERR_NOTSUPP:
		return -EOPNOTSUPP;
	case MNT3ERR_SERVERFAULT:
		return -EIO;
	}
	return -EIO;
}

/* libnfs 4 has one status for all that goes wrong; only its text tells a refusal by
 * the server from a connection that broke. */
int nfserror_of_refusal(const char *text)
{
	if (!text)
		return 0;
	if (strcmp(text, "RPC Packet not accepted by the server") == 0)
		return -EACCES; /* AUTH_SYS as root is not taken */
	if (strcmp(text, "Server responded: Procedure not available") == 0)
		return -EOPNOTSUPP;
	if (strcmp(text, "Server responded: Program not available") == 0 ||
	    strcmp(text, "Server responded: Program version mismatch") == 0)
		return -EPROTONOSUPPORT;
	if (strcmp(text, "Server responded: Garbage arguments") == 0)
		return -EINVAL;
	return 0;
}

bool nfserror_is_garbage(const char *text)
{
	return text && (strcmp(text, "Message rejected by server") == 0 ||
			strcmp(text, "Server responded: System Error") == 0 ||
			strcmp(text, "Unknown rpc response from server") == 0);
}
