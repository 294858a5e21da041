/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Text as people type and read it: durations, counts, sizes, names of migrations,
 * and bytes that may not be text at all. Pure functions, thread-safe.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/attr.h"

enum {
	TEXT_NAME_MAX = 64,	/* bytes of a migration's name: fits a socket's path */
	TEXT_NUMBER_BYTES = 32, /* room for any text that text_put_*() makes */
};

/* "500ms", "2s", "1.5s", "3m", "1h"; a bare number is seconds. -EINVAL, or -ERANGE
 * beyond ten years. */
int text_parse_duration(const char *text, uint64_t *ret_ms) MUST_CHECK;

/* A whole decimal number in [@min, @max]: 0, -EINVAL or -ERANGE. */
int text_parse_count(const char *text, unsigned min, unsigned max, unsigned *ret_count) MUST_CHECK;

/* "1,234,567"; "1.5 MiB"; "34 ms", "2.1 s", "3 min 20 s", "2 h 5 min". Return @buffer. */
const char *text_put_count(char buffer[static TEXT_NUMBER_BYTES], uint64_t count);
const char *text_put_bytes(char buffer[static TEXT_NUMBER_BYTES], uint64_t bytes);
const char *text_put_duration(char buffer[static TEXT_NUMBER_BYTES], uint64_t ms);

/* Letters, digits, '.', '_' and '-', the first a letter or digit; 1 to TEXT_NAME_MAX. */
bool text_is_name(const char *name);

/* The default name of a migration: "/srv/data" is "srv-data". What a name cannot have
 * becomes '_'. -EINVAL when nothing is left, -ENAMETOOLONG. */
int text_name_from_path(const char *path, char ret_name[static TEXT_NAME_MAX + 1]) MUST_CHECK;

/* How many bytes of a UTF-8 character stand at @text, 0 if it is not one. */
size_t text_utf8_length(const char *text);

/* @bytes made safe for a terminal and for JSON: what is not UTF-8, and control
 * characters, become \xHH, a backslash becomes two. NULL: no memory. The caller frees. */
char *text_escape(const char *bytes);
/* The same for the eyes alone: backslashes stay as they are. */
char *text_printable(const char *bytes);
/* The reverse of text_escape(). NULL: no memory, or (errno is EINVAL) not made by text_escape(). */
char *text_unescape(const char *text);

/* How many letters have to be changed, added or removed (at most 32 are looked at). */
unsigned text_distance(const char *a, const char *b);
