/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Scope-bound ownership. A variable with _cleanup_x_ starts empty (NULL or -1)
 * and is ended when its scope is left; TAKE_PTR() and TAKE_FD() hand it over.
 * Every cleanup keeps errno.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define _cleanup_(f) __attribute__((cleanup(f)))

#define TAKE_PTR(p)                     \
	({                              \
		typeof(p) taken_ = (p); \
		(p) = NULL;             \
		taken_;                 \
	})

#define TAKE_FD(fd)                \
	({                         \
		int taken_ = (fd); \
		(fd) = -1;         \
		taken_;            \
	})

/* Closes @fd if it is one; returns -1 for `fd = fd_close(fd)`. */
static inline int fd_close(int fd)
{
	int saved = errno;

	if (fd >= 0)
		(void)close(fd); /* nothing written through it waits for close to report */
	errno = saved;
	return -1;
}

static inline void cleanup_free_(void *p)
{
	int saved = errno;

	free(*(void **)p);
	errno = saved;
}

static inline void cleanup_close_(int *fd)
{
	*fd = fd_close(*fd);
}

static inline void cleanup_fclose_(FILE **file)
{
	int saved = errno;

	if (*file)
		(void)fclose(*file); /* used for reading only */
	errno = saved;
}

#define _cleanup_free_ _cleanup_(cleanup_free_)
#define _cleanup_close_ _cleanup_(cleanup_close_)
#define _cleanup_fclose_ _cleanup_(cleanup_fclose_)
