/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/testlib.h"

enum { ESCAPED_BYTES_MAX = 2048, ESCAPED_BUFFERS = 8 };

static void complain(const char *format, va_list args, const char *suffix)
{
	fflush(stdout);
	fprintf(stderr, "%s: ", program_invocation_short_name);
	vfprintf(stderr, format, args);
	if (suffix)
		fprintf(stderr, ": %s", suffix);
	fputc('\n', stderr);
}

void die(int code, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	complain(format, args, /* suffix= */ NULL);
	va_end(args);
	exit(code);
}

void die_errno(const char *format, ...)
{
	int error = errno;
	va_list args;

	va_start(args, format);
	complain(format, args, strerror(error));
	va_end(args);
	exit(TEST_TROUBLE);
}

void *xrealloc(void *p, size_t size)
{
	p = realloc(p, size ? size : 1);
	if (!p)
		die(TEST_TROUBLE, "out of memory");
	return p;
}

void *xcalloc(size_t count, size_t size)
{
	void *p = calloc(count ? count : 1, size ? size : 1);

	if (!p)
		die(TEST_TROUBLE, "out of memory");
	return p;
}

char *xstrdup(const char *text)
{
	char *copy = strdup(text);

	if (!copy)
		die(TEST_TROUBLE, "out of memory");
	return copy;
}

static uint64_t mix(uint64_t z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

uint64_t rng_next(struct rng *rng)
{
	rng->state += 0x9e3779b97f4a7c15u;
	return mix(rng->state);
}

uint64_t rng_below(struct rng *rng, uint64_t bound)
{
	return bound ? rng_next(rng) % bound : 0;
}

/* Word i of the stream is mix(seed, i): any range can be made by itself. */
void fill_bytes(void *buffer, size_t size, uint64_t seed, uint64_t offset)
{
	unsigned char *out = buffer;
	uint64_t word;
	size_t skip, n;

	while (size > 0) {
		word = mix(seed * 0x9e3779b97f4a7c15u + offset / 8 + 1);
		skip = offset % 8;
		n = 8 - skip < size ? 8 - skip : size;
		memcpy(out, (unsigned char *)&word + skip, n);
		out += n;
		offset += n;
		size -= n;
	}
}

uint64_t hash_bytes(const void *bytes, size_t size)
{
	const unsigned char *p = bytes;
	uint64_t hash = 0xcbf29ce484222325u;

	while (size-- > 0)
		hash = (hash ^ *p++) * 0x100000001b3u;
	return mix(hash);
}

static int escape_byte(char *out, unsigned char c)
{
	if (c >= 0x20 && c < 0x7f && c != '\\') {
		out[0] = (char)c;
		return 1;
	}
	return snprintf(out, 5, "\\x%02x", c);
}

void print_escaped(FILE *out, const void *bytes, size_t size)
{
	const unsigned char *p = bytes;
	char text[8];
	int n;

	while (size-- > 0) {
		n = escape_byte(text, *p++);
		fwrite(text, 1, (size_t)n, out);
	}
}

const char *escaped(const char *text)
{
	static char buffers[ESCAPED_BUFFERS][ESCAPED_BYTES_MAX];
	static unsigned turn;
	char *out = buffers[turn++ % ESCAPED_BUFFERS];
	size_t n = 0;

	while (*text && n < ESCAPED_BYTES_MAX - 8)
		n += (size_t)escape_byte(out + n, (unsigned char)*text++);
	strcpy(out + n, *text ? "..." : "");
	return out;
}

uint64_t parse_number(const char *option, const char *text)
{
	char *end;
	uint64_t value;

	errno = 0;
	value = strtoull(text, &end, 0);
	if (errno || end == text || *end || *text == '-')
		die(TEST_TROUBLE, "'%s' is not a number for %s", text, option);
	return value;
}

uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
