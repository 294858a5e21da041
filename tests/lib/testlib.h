/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * What the test programs share: ending with a message, bytes and random numbers
 * that follow from a seed, and names printed so that any byte can be told.
 * Not thread-safe where it says so.
 */

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include "util/attr.h"

enum { TEST_TROUBLE = 2 }; /* exit code: the test itself could not go on, or usage */

/* Prints "program: message" to stderr and exits with @code. */
void die(int code, const char *format, ...) PRINTF_LIKE(2, 3) __attribute__((noreturn));
/* As die(TEST_TROUBLE), with the text of errno after a colon. */
void die_errno(const char *format, ...) PRINTF_LIKE(1, 2) __attribute__((noreturn));

/* malloc() and friends that do not return NULL. */
void *xrealloc(void *p, size_t size);
void *xcalloc(size_t count, size_t size);
char *xstrdup(const char *text);

/* SplitMix64: small, and the same everywhere. */
struct rng {
	uint64_t state;
};

uint64_t rng_next(struct rng *rng);
/* 0 <= result < @bound; 0 if @bound is 0. */
uint64_t rng_below(struct rng *rng, uint64_t bound);

/* The bytes at @offset of the endless stream that @seed stands for. */
void fill_bytes(void *buffer, size_t size, uint64_t seed, uint64_t offset);

uint64_t hash_bytes(const void *bytes, size_t size);

/* Prints @size bytes; what is not printable ASCII, and the backslash, as \xNN. */
void print_escaped(FILE *out, const void *bytes, size_t size);
/* The same into one of a few static buffers, for messages. Not thread-safe. */
const char *escaped(const char *text);

/* The value of a decimal, hexadecimal (0x) or octal option, or die(). */
uint64_t parse_number(const char *option, const char *text);

uint64_t now_ns(void);
