/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Lists of calls, linked through the calls themselves: each is in one at most. */

#include "fs/store/nfs_conn.h"

static inline void nfslist_append(struct nfsconn_list *list, struct nfscall *call)
{
	call->previous = list->last;
	call->next = NULL;
	if (list->last)
		list->last->next = call;
	else
		list->first = call;
	list->last = call;
	list->count++;
}

static inline void nfslist_remove(struct nfsconn_list *list, struct nfscall *call)
{
	assert(list->count > 0);
	if (call->previous)
		call->previous->next = call->next;
	else
		list->first = call->next;
	if (call->next)
		call->next->previous = call->previous;
	else
		list->last = call->previous;
	call->previous = call->next = NULL;
	list->count--;
}
