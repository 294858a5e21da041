/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parity PLAIN-DIR MOUNTED-DIR [WORD]: runs the cases whose name contains WORD; without
 * one all but those of a full file system.
 */
#include "tests/parity/parity.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CASE_SECONDS = 60, SAID_BYTES_MAX = 1 << 20 };

void say(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
}

long say_result(const char *what, long result)
{
	int error = errno;

	if (result < 0)
		say("%s: %ld %s", what, result, strerrorname_np(error));
	else
		say("%s: %ld", what, result);
	errno = error;
	return result;
}

/* Descriptors have numbers that mean nothing; say_result() sees them often. */
static void print_stat(const struct stat *st)
{
	say("  mode %o nlink %lu owner %u:%u size %lld rdev %lx", (unsigned)st->st_mode,
	    (unsigned long)st->st_nlink, st->st_uid, st->st_gid,
	    S_ISDIR(st->st_mode) ? -1LL : (long long)st->st_size, (unsigned long)st->st_rdev);
}

void say_stat(const char *path)
{
	struct stat st;

	if (say_result(path, lstat(path, &st)) == 0)
		print_stat(&st);
}

void say_fstat(int fd)
{
	struct stat st;

	if (say_result("fstat", fstat(fd, &st)) == 0)
		print_stat(&st);
}

void say_fd(int fd)
{
	uint64_t digest = 14695981039346656037u, size = 0;
	unsigned char buffer[65536];
	ssize_t n;

	while ((n = pread(fd, buffer, sizeof(buffer), (off_t)size)) > 0) {
		for (ssize_t i = 0; i < n; i++)
			digest = (digest ^ buffer[i]) * 1099511628211u;
		size += (uint64_t)n;
	}
	if (n < 0)
		say_result("read", n);
	say("  %llu bytes, digest %016llx", (unsigned long long)size, (unsigned long long)digest);
}

void say_file(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0) {
		say_result(path, fd);
		return;
	}
	say("%s:", path);
	say_fd(fd);
	close(fd);
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

void say_dir(const char *path)
{
	char **names = NULL;
	size_t count = 0;
	DIR *dir = opendir(path);
	struct dirent *entry;

	if (!dir) {
		say_result(path, -1);
		return;
	}
	while ((errno = 0, entry = readdir(dir))) {
		names = realloc(names, (count + 1) * sizeof(*names));
		names[count++] = strdup(entry->d_name);
	}
	say_result("readdir", errno ? -1 : 0);
	closedir(dir);
	if (count)
		qsort(names, count, sizeof(*names), compare_names);
	say("%s: %zu names", path, count);
	for (size_t i = 0; i < count; i++) {
		if (count < 64)
			say("  '%s'", names[i]);
		free(names[i]);
	}
	free(names);
}

void put(const char *path, mode_t mode, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);

	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text)) {
		say_result(path, -1);
		exit(1);
	}
	close(fd);
}

void as_user(void (*run)(void))
{
	gid_t groups[] = { USER_GROUP, EXTRA_GROUP };
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		if (setgroups(2, groups) < 0 || setresgid(USER_GROUP, USER_GROUP, USER_GROUP) < 0 ||
		    setresuid(USER, USER, USER) < 0)
			_exit(99);
		run();
		fflush(stdout);
		_exit(0);
	}
	if (waitpid(pid, &status, 0) != pid || status != 0)
		say("the user's part ended with %d", status);
}

/* ---- running a case ------------------------------------------------------ */

static void run_in(const struct parity_case *parity, const char *root, int number, int out)
{
	char dir[64];

	snprintf(dir, sizeof(dir), "case-%d", number);
	umask(0);
	if (dup2(out, STDOUT_FILENO) < 0 || chdir(root) < 0 || mkdir(dir, 0777) < 0 ||
	    chdir(dir) < 0)
		_exit(98);
	umask(022);
	alarm(CASE_SECONDS);
	parity->run();
	fflush(stdout);
	_exit(0);
}

/* What @parity says in @root, owned by the caller. */
static char *listen_to(const struct parity_case *parity, const char *root, int number)
{
	int out = memfd_create("said", MFD_CLOEXEC), status = -1;
	char *said = calloc(1, SAID_BYTES_MAX + 64);
	pid_t pid;
	ssize_t n;

	fflush(stdout);
	pid = fork();
	if (pid == 0)
		run_in(parity, root, number, out);
	if (pid < 0 || waitpid(pid, &status, 0) != pid) {
		perror("parity");
		exit(2);
	}
	n = pread(out, said, SAID_BYTES_MAX, 0);
	if (status != 0)
		sprintf(said + (n > 0 ? n : 0), "\nended with status %d\n", status);
	close(out);
	return said;
}

static void print_difference(const char *plain, const char *mounted)
{
	while (*plain || *mounted) {
		size_t p = strcspn(plain, "\n"), m = strcspn(mounted, "\n");

		if (p != m || memcmp(plain, mounted, p) != 0)
			printf("\tplain:   %.*s\n\tmounted: %.*s\n", (int)p, plain, (int)m,
			       mounted);
		plain += p + (plain[p] != '\0');
		mounted += m + (mounted[m] != '\0');
	}
}

static bool run_case(const struct parity_case *parity, const char *plain_root,
		     const char *mounted_root, int number)
{
	char *plain = listen_to(parity, plain_root, number);
	char *mounted = listen_to(parity, mounted_root, number);
	bool is_alike = strcmp(plain, mounted) == 0;
	bool has_ended = !strstr(plain, "\nended with status");

	printf("%s %s\n", is_alike && has_ended ? "ok    " : "FAILED", parity->name);
	if (!is_alike)
		print_difference(plain, mounted);
	else if (!has_ended)
		printf("%s", plain);
	if (getenv("PARITY_VERBOSE"))
		printf("%s", plain);
	free(plain);
	free(mounted);
	return is_alike && has_ended;
}

int main(int argc, char **argv)
{
	const struct parity_case *const groups[] = {
		parity_names, parity_open,	 parity_data, parity_appends,
		parity_attrs, parity_privileges, parity_dirs, parity_kernel,
		parity_suites, parity_async, parity_full,
	};
	int number = 0, failed = 0, ran = 0;

	if (argc < 3) {
		fprintf(stderr, "usage: parity PLAIN-DIR MOUNTED-DIR [WORD]\n");
		return 2;
	}
	for (size_t g = 0; g < ARRAY_SIZE(groups); g++) {
		for (const struct parity_case *parity = groups[g]; parity->name; parity++) {
			number++;
			if (argc > 3 ? !strstr(parity->name, argv[3])
				     : groups[g] == parity_full)
				continue;
			ran++;
			failed += !run_case(parity, argv[1], argv[2], number);
		}
	}
	printf("%d cases, %d failed\n", ran, failed);
	return failed || !ran;
}
