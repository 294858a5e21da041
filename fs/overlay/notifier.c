/* SPDX-License-Identifier: Apache-2.0 */
#define FUSE_USE_VERSION FUSE_MAKE_VERSION(3, 17)

#include "fs/overlay/notifier.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

struct stale {
	struct stale *next;
	fuse_req_t req;
	uint64_t id;
	ssize_t result;
};

struct notifier {
	pthread_mutex_t lock;
	pthread_cond_t added;
	struct stale *first, **last; /* guarded by lock, as is is_stopped */
	bool is_stopped;
};

struct notifier *notifier_new(void)
{
	struct notifier *notifier = calloc(1, sizeof(*notifier));

	if (!notifier)
		return NULL;
	pthread_mutex_init(&notifier->lock, NULL);
	pthread_cond_init(&notifier->added, NULL);
	notifier->last = &notifier->first;
	return notifier;
}

struct notifier *notifier_free(struct notifier *notifier)
{
	if (!notifier)
		return NULL;
	assert(!notifier->first);
	pthread_cond_destroy(&notifier->added);
	pthread_mutex_destroy(&notifier->lock);
	free(notifier);
	return NULL;
}

int notifier_add(struct notifier *notifier, fuse_req_t req, uint64_t id,
		 ssize_t result)
{
	struct stale *stale = malloc(sizeof(*stale));

	if (!stale)
		return -ENOMEM;
	*stale = (struct stale){ .req = req, .id = id, .result = result };
	pthread_mutex_lock(&notifier->lock);
	assert(!notifier->is_stopped);
	*notifier->last = stale;
	notifier->last = &stale->next;
	pthread_cond_signal(&notifier->added);
	pthread_mutex_unlock(&notifier->lock);
	return 0;
}

/* Waits for the next one: NULL when it is stopped and there is none. */
static struct stale *next(struct notifier *notifier)
{
	struct stale *stale;

	pthread_mutex_lock(&notifier->lock);
	while (!notifier->first && !notifier->is_stopped)
		pthread_cond_wait(&notifier->added, &notifier->lock);
	stale = notifier->first;
	if (stale) {
		notifier->first = stale->next;
		if (!notifier->first)
			notifier->last = &notifier->first;
	}
	pthread_mutex_unlock(&notifier->lock);
	return stale;
}

/* It fails when nobody waits for it. */
static void answer(const struct stale *stale)
{
	if (stale->result < 0)
		(void)fuse_reply_err(stale->req, (int)-stale->result); /* as above */
	else
		(void)fuse_reply_write(stale->req, (size_t)stale->result); /* as above */
}

void notifier_run(struct notifier *notifier, struct fuse_session *session)
{
	struct stale *stale;

	while ((stale = next(notifier))) {
		/* It fails when the kernel has forgotten the file, pages and all. */
		(void)fuse_lowlevel_notify_inval_inode(session, stale->id, 0, 0);
		answer(stale);
		free(stale);
	}
}

void notifier_stop(struct notifier *notifier)
{
	pthread_mutex_lock(&notifier->lock);
	notifier->is_stopped = true;
	pthread_cond_broadcast(&notifier->added);
	pthread_mutex_unlock(&notifier->lock);
}
