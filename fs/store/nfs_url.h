/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* The address of an NFSv3 export: nfs://host[:port]/export[?nfsport=N&mountport=N]. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/attr.h"

enum {
	NFSURL_HOST_MAX = 256,	  /* bytes, with the final NUL */
	NFSURL_EXPORT_MAX = 1024, /* as the MOUNT protocol has it */
};

struct nfsurl {
	char host[NFSURL_HOST_MAX];	/* a name or an address; IPv6 without its brackets */
	char export[NFSURL_EXPORT_MAX]; /* begins with '/' */
	uint16_t nfs_port;		/* 0: ask the portmapper, then try 2049 */
	uint16_t mount_port;		/* 0: ask the portmapper */
};

/* Takes @text apart. -EINVAL (not such a URL, unknown option, bad port) or
 * -ENAMETOOLONG; *@ret_why (borrowed, static) then says what is wrong with it. */
int nfsurl_parse(const char *text, struct nfsurl *ret_url, const char **ret_why) MUST_CHECK;

/* The same export always gives the same text, whatever was left out. @buffer is cut
 * to @size bytes with the NUL. */
void nfsurl_format(const struct nfsurl *url, char *buffer, size_t size);
