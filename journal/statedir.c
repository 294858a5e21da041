/* SPDX-License-Identifier: Apache-2.0 */
#include "journal/statedir.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/log.h"

/*
 * A directory is ours when it has a lock file that says so, or holds nothing but what
 * we could have put there. The lock is an flock() on that file: it ends with the
 * process, however that ends. The file itself stays, so that no two processes can
 * hold locks on two files of one name; where a failing first process removes it, the
 * second notices that its file has lost its name, and begins again.
 */

#define LOCK_NAME "lock"
#define LOCK_MAGIC "ferryfs "

enum {
	LOCK_TRIES_MAX = 8,
	PATH_DEPTH_MAX = 64, /* of directories to make */
};

struct state_dir {
	char path[PATH_MAX];
	int fd;
	int lock_fd;
	unsigned made_count;  /* directories made, the last of the path */
	bool had_lock;
	bool had_database;
	bool had_watermark;
};

/* ---- making -------------------------------------------------------------- */

/* Cuts the last component off @path; false when there is no other. */
static bool path_cut(char *path)
{
	char *slash = strrchr(path, '/');

	if (!slash || slash == path)
		return false;
	*slash = '\0';
	return true;
}

static void path_normalize(char *path)
{
	size_t to = 0;

	for (size_t from = 0; path[from]; from++)
		if (path[from] != '/' || path[from + 1] != '/')
			path[to++] = path[from];
	if (to > 1 && path[to - 1] == '/')
		to--;
	path[to] = '\0';
}

/* Removes the last @dir->made_count directories of the path, as far as they are empty. */
static void unmake_path(struct state_dir *dir)
{
	char path[PATH_MAX];

	strcpy(path, dir->path);
	while (dir->made_count > 0) {
		if (rmdir(path) < 0 || !path_cut(path))
			break;
		dir->made_count--;
	}
}

static int sync_parent(char *path)
{
	_cleanup_close_ int fd = -1;
	const char *parent;

	if (path_cut(path))
		parent = path;
	else
		parent = path[0] == '/' ? "/" : ".";
	fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fsync(fd) < 0)
		return -errno;
	return 0;
}

static int make_path(struct state_dir *dir)
{
	char path[PATH_MAX];
	unsigned missing = 0;
	struct stat st;
	int r;

	/* Up to what is there, ... */
	strcpy(path, dir->path);
	while (stat(path, &st) < 0) {
		if (errno != ENOENT)
			return -errno;
		if (++missing > PATH_DEPTH_MAX)
			return -ENAMETOOLONG;
		if (!path_cut(path))
			break;
	}
	/* ... and down again. */
	for (; missing > 0; missing--) {
		strcpy(path, dir->path);
		for (unsigned i = 1; i < missing; i++)
			(void)path_cut(path); /* it went that far up a moment ago */
		if (mkdir(path, 0700) == 0)
			dir->made_count++;
		else if (errno != EEXIST)
			return -errno;
		r = sync_parent(path);
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- recognising --------------------------------------------------------- */

static bool name_is_ours(const char *name)
{
	static const char *const names[] = {
		".", "..", "lost+found", LOCK_NAME, STATE_DIR_DATABASE, STATE_DIR_WATERMARK,
		STATE_DIR_PHASE, STATE_DIR_PHASE ".new",
	};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strcmp(name, names[i]) == 0)
			return true;
	return false;
}

/* Finds what a directory without our lock file holds that we did not put there. */
static int check_strangers(const struct state_dir *dir)
{
	struct dirent *entry;
	DIR *list;
	int fd, r = 0;

	fd = openat(dir->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return log_error_errno(errno, "cannot list '%s'", dir->path);
	list = fdopendir(fd);
	if (!list) {
		r = -errno;
		(void)fd_close(fd); /* returns what we do not need */
		return r;
	}
	while (r == 0 && (entry = readdir(list))) {
		if (!name_is_ours(entry->d_name)) {
			log_error("'%s' is no state directory, it holds '%s': name an empty or a "
				  "new directory",
				  dir->path, entry->d_name);
			r = -ENOTEMPTY;
		}
	}
	closedir(list);
	return r;
}

/* The text of the lock file: "ferryfs <pid of the last holder>". */
static bool lock_file_is_ours(int fd, long *ret_pid)
{
	char text[64];
	ssize_t n;

	n = pread(fd, text, sizeof(text) - 1, 0);
	if (n < (ssize_t)strlen(LOCK_MAGIC) || memcmp(text, LOCK_MAGIC, strlen(LOCK_MAGIC)) != 0)
		return false;
	text[n] = '\0';
	*ret_pid = strtol(text + strlen(LOCK_MAGIC), NULL, 10);
	return true;
}

/* ---- locking ------------------------------------------------------------- */

static int lock_take(struct state_dir *dir)
{
	long pid = 0;

	for (int try = 0; try < LOCK_TRIES_MAX; try++) {
		struct stat st;

		dir->lock_fd = fd_close(dir->lock_fd);
		dir->had_lock = faccessat(dir->fd, LOCK_NAME, F_OK, 0) == 0;
		dir->lock_fd = openat(dir->fd, LOCK_NAME,
				      O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (dir->lock_fd < 0)
			return log_error_errno(errno, "cannot open '%s/%s'", dir->path, LOCK_NAME);
		if (flock(dir->lock_fd, LOCK_EX | LOCK_NB) < 0) {
			if (errno != EWOULDBLOCK)
				return log_error_errno(errno, "cannot lock '%s/%s'", dir->path,
						       LOCK_NAME);
			(void)lock_file_is_ours(dir->lock_fd, &pid); /* a pid of 0 says nothing */
			log_error("the state directory '%s' is in use by process %ld: stop that one "
				  "first, or name another directory",
				  dir->path, pid);
			dir->had_lock = true; /* and stays */
			return -EBUSY;
		}
		if (fstat(dir->lock_fd, &st) == 0 && st.st_nlink > 0)
			return 0;
	}
	log_error("the state directory '%s' comes and goes", dir->path);
	return -EBUSY;
}

static int lock_sign(struct state_dir *dir)
{
	char text[64];
	int length = snprintf(text, sizeof(text), LOCK_MAGIC "%ld\n", (long)getpid());

	if (pwrite(dir->lock_fd, text, (size_t)length, 0) != length ||
	    ftruncate(dir->lock_fd, length) < 0)
		return log_error_errno(errno, "cannot write '%s/%s'", dir->path, LOCK_NAME);
	return 0;
}

/* ---- the whole ----------------------------------------------------------- */

static int open_and_lock(struct state_dir *dir)
{
	long pid;
	int r;

	r = make_path(dir);
	if (r < 0)
		return log_error_errno(r, "cannot make the state directory '%s'", dir->path);
	dir->fd = open(dir->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir->fd < 0)
		return log_error_errno(errno, "cannot open the state directory '%s'", dir->path);
	if (faccessat(dir->fd, LOCK_NAME, F_OK, 0) < 0) {
		r = check_strangers(dir);
		if (r < 0)
			return r;
	}
	r = lock_take(dir);
	if (r < 0)
		return r;
	if (dir->had_lock && !lock_file_is_ours(dir->lock_fd, &pid)) {
		r = check_strangers(dir);
		if (r < 0)
			return r;
	}
	dir->had_database = faccessat(dir->fd, STATE_DIR_DATABASE "/CURRENT", F_OK, 0) == 0;
	dir->had_watermark = faccessat(dir->fd, STATE_DIR_WATERMARK, F_OK, 0) == 0;
	return lock_sign(dir);
}

int state_dir_open(const char *path, struct state_dir **ret_dir)
{
	struct state_dir *dir;
	int r;

	assert(path && ret_dir);
	if (path[0] == '\0' || strlen(path) >= sizeof(dir->path))
		return log_error_errno(ENAMETOOLONG, "the state directory '%s'", path);
	dir = calloc(1, sizeof(*dir));
	if (!dir)
		return -ENOMEM;
	dir->fd = dir->lock_fd = -1;
	strcpy(dir->path, path);
	path_normalize(dir->path);

	r = open_and_lock(dir);
	if (r < 0) {
		(void)state_dir_close(dir, true); /* NULL */
		return r;
	}
	*ret_dir = dir;
	return 0;
}

int state_dir_fd(const struct state_dir *dir)
{
	return dir->fd;
}

const char *state_dir_path(const struct state_dir *dir)
{
	return dir->path;
}

bool state_dir_is_new(const struct state_dir *dir)
{
	return !dir->had_database;
}

/* The database is a flat directory of files. */
static void remove_database(const struct state_dir *dir)
{
	struct dirent *entry;
	DIR *list;
	int fd;

	fd = openat(dir->fd, STATE_DIR_DATABASE, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return;
	list = fdopendir(fd);
	if (!list) {
		(void)fd_close(fd); /* returns what we do not need */
		return;
	}
	while ((entry = readdir(list)))
		(void)unlinkat(dirfd(list), entry->d_name, 0); /* what stays, stays */
	closedir(list);
	(void)unlinkat(dir->fd, STATE_DIR_DATABASE, AT_REMOVEDIR); /* likewise */
}

struct state_dir *state_dir_close(struct state_dir *dir, bool undo)
{
	int saved = errno;

	if (!dir)
		return NULL;
	/* Nothing is removed without the lock: it could be another's by now. */
	if (undo && dir->lock_fd >= 0 && !dir->had_lock) {
		if (!dir->had_database)
			remove_database(dir);
		if (!dir->had_watermark)
			(void)unlinkat(dir->fd, STATE_DIR_WATERMARK, 0); /* it may not be there */
		(void)unlinkat(dir->fd, LOCK_NAME, 0); /* an error leaves an empty directory */
	}
	if (undo)
		unmake_path(dir);
	dir->lock_fd = fd_close(dir->lock_fd);
	dir->fd = fd_close(dir->fd);
	free(dir);
	errno = saved;
	return NULL;
}
