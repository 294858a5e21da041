/* SPDX-License-Identifier: Apache-2.0 */
/* What public suites have found (tests/run --suites). */
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/parity/parity.h"

static struct timespec ctime_of(const char *path)
{
	struct stat st;

	if (lstat(path, &st) < 0)
		say_result(path, -1);
	return st.st_ctim;
}

/* Whether the change time of @path is another than before; the clock of a file system ticks
 * with the kernel's. */
static void say_ctime_moved(const char *path, const struct timespec *before)
{
	struct timespec now = ctime_of(path);

	say("%s: ctime %s", path,
	    now.tv_sec == before->tv_sec && now.tv_nsec == before->tv_nsec ? "stays" : "moves");
}

static void wait_a_tick(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
}

/* pjdfstest, chown/00.t */
static void chown_of_nothing(void)
{
	static const char *const paths[] = { "file", "dir", "link" };
	struct timespec before;

	put("file", 0644, "text");
	DO(mkdir("dir", 0755));
	DO(symlink("file", "link"));
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		before = ctime_of(paths[i]);
		wait_a_tick();
		DO(lchown(paths[i], (uid_t)-1, (gid_t)-1));
		say_ctime_moved(paths[i], &before);
	}
}

/* open12 of LTP. The pages are dropped, so that reading is not from memory alone. */
static void read_with(int flags)
{
	struct timespec times[2] = { { .tv_sec = 1000000000 }, { .tv_nsec = UTIME_OMIT } };
	struct stat st;
	char text[8];
	int fd;

	put("file", 0644, "text");
	fd = open("file", O_RDONLY | O_CLOEXEC | flags);
	DO(fsync(fd));
	DO(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
	DO(utimensat(AT_FDCWD, "file", times, 0));
	DO(pread(fd, text, sizeof(text), 0));
	if (fstat(fd, &st) == 0)
		say("atime %s", st.st_atime == times[0].tv_sec ? "stays" : "moves");
	close(fd);
	DO(unlink("file"));
}

static void reading_without_atime(void)
{
	read_with(0);
	read_with(O_NOATIME);
}

const struct parity_case parity_suites[] = {
	{ "chown of nothing moves the change time", chown_of_nothing },
	{ "reading with O_NOATIME leaves the access time", reading_without_atime },
	{ 0 },
};
