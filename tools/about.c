/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/about.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "tools/wire.h"
#include "util/cleanup.h"

int about_write(const char *state_dir, json_t *about)
{
	_cleanup_close_ int dir_fd = -1, fd = -1;

	dir_fd = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir_fd < 0)
		return -errno;
	fd = openat(dir_fd, ABOUT_FILE ".new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	if (json_dumpfd(about, fd, JSON_INDENT(2)) < 0)
		return -EIO;
	if (renameat(dir_fd, ABOUT_FILE ".new", dir_fd, ABOUT_FILE) < 0)
		return -errno;
	return 0;
}

int about_read(const char *state_dir, json_t **ret_about)
{
	_cleanup_close_ int dir_fd = -1, fd = -1;
	_cleanup_json_ json_t *about = NULL;

	dir_fd = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir_fd < 0)
		return -errno;
	fd = openat(dir_fd, ABOUT_FILE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	about = json_loadfd(fd, 0, NULL);
	if (!json_is_object(about))
		return -EBADMSG;
	*ret_about = TAKE_PTR(about);
	return 0;
}
