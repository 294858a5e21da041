/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/holders.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/mountinfo.h"
#include "tools/text.h"
#include "util/cleanup.h"

enum { HOLDERS_NAMED_MAX = 8 }; /* the others are counted */

static bool link_is_inside(int dir_fd, const char *name, const char *mountpoint)
{
	char target[PATH_MAX];
	ssize_t n = readlinkat(dir_fd, name, target, sizeof(target) - 1);

	if (n <= 0)
		return false;
	target[n] = '\0';
	return mountinfo_path_is_inside(target, mountpoint);
}

/* Whether any link in the directory @name leads there. */
static bool any_link_is_inside(int process_fd, const char *name, const char *mountpoint)
{
	int fd = openat(process_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *list = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	bool is_inside = false;

	if (!list) {
		(void)fd_close(fd); /* returns what we do not need */
		return false;
	}
	while (!is_inside && (entry = readdir(list)))
		is_inside = link_is_inside(fd, entry->d_name, mountpoint);
	closedir(list);
	return is_inside;
}

static bool process_holds(int process_fd, const char *mountpoint)
{
	return link_is_inside(process_fd, "cwd", mountpoint) ||
	       link_is_inside(process_fd, "root", mountpoint) ||
	       link_is_inside(process_fd, "exe", mountpoint) ||
	       any_link_is_inside(process_fd, "fd", mountpoint) ||
	       any_link_is_inside(process_fd, "map_files", mountpoint);
}

static void print_process(FILE *out, int process_fd, const char *pid)
{
	_cleanup_close_ int fd = openat(process_fd, "comm", O_RDONLY | O_CLOEXEC);
	_cleanup_free_ char *program = NULL;
	char comm[64];
	ssize_t n = fd < 0 ? -1 : read(fd, comm, sizeof(comm) - 1);

	if (n > 0 && comm[n - 1] == '\n')
		n--;
	comm[n > 0 ? n : 0] = '\0';
	program = text_escape(comm);
	fprintf(out, "%s (%s)", pid, program ? program : "?");
}

static unsigned print_holders(FILE *out, DIR *proc, const char *mountpoint)
{
	unsigned count = 0;
	struct dirent *entry;

	while ((entry = readdir(proc))) {
		_cleanup_close_ int fd = -1;

		if (!isdigit((unsigned char)entry->d_name[0]) || atoi(entry->d_name) == getpid())
			continue;
		fd = openat(dirfd(proc), entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fd < 0 || !process_holds(fd, mountpoint))
			continue;
		if (count++ >= HOLDERS_NAMED_MAX)
			continue;
		if (count > 1)
			fputs(", ", out);
		print_process(out, fd, entry->d_name);
	}
	return count;
}

char *holders_of(const char *mountpoint)
{
	_cleanup_free_ char *text = NULL;
	size_t size = 0;
	unsigned count = 0;
	FILE *out = open_memstream(&text, &size);
	DIR *proc;

	if (!out)
		return NULL;
	proc = opendir("/proc");
	if (proc) {
		count = print_holders(out, proc, mountpoint);
		closedir(proc);
	}
	if (count > HOLDERS_NAMED_MAX)
		fprintf(out, " and %u more", count - HOLDERS_NAMED_MAX);
	if (fclose(out) != 0)
		return NULL;
	return TAKE_PTR(text);
}
