/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/text.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/cleanup.h"

#define DURATION_S_MAX (10.0 * 366 * 24 * 3600)

int text_parse_duration(const char *text, uint64_t *ret_ms)
{
	static const struct {
		const char *unit;
		double seconds;
	} units[] = { { "", 1 },   { "ms", 0.001 }, { "s", 1 },
		      { "m", 60 }, { "min", 60 },   { "h", 3600 } };
	double value;
	char *end;

	/* strtod() would take a sign, spaces, "inf", hexadecimal, and an exponent. */
	if (!isdigit((unsigned char)text[0]))
		return -EINVAL;
	value = strtod(text, &end);
	if (end != text + strspn(text, "0123456789."))
		return -EINVAL;
	for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
		if (strcmp(end, units[i].unit) != 0)
			continue;
		value *= units[i].seconds;
		if (!(value <= DURATION_S_MAX))
			return -ERANGE;
		*ret_ms = (uint64_t)llround(value * 1000);
		return 0;
	}
	return -EINVAL;
}

int text_parse_count(const char *text, unsigned min, unsigned max, unsigned *ret_count)
{
	unsigned long long value;

	if (text[0] == '\0' || text[strspn(text, "0123456789")] != '\0')
		return -EINVAL;
	errno = 0;
	value = strtoull(text, NULL, 10);
	if (errno != 0 || value < min || value > max)
		return -ERANGE;
	*ret_count = (unsigned)value;
	return 0;
}

const char *text_put_count(char buffer[static TEXT_NUMBER_BYTES], uint64_t count)
{
	char digits[TEXT_NUMBER_BYTES];
	int length = snprintf(digits, sizeof(digits), "%llu", (unsigned long long)count);
	char *out = buffer;

	for (int i = 0; i < length; i++) {
		if (i > 0 && (length - i) % 3 == 0)
			*out++ = ',';
		*out++ = digits[i];
	}
	*out = '\0';
	return buffer;
}

const char *text_put_bytes(char buffer[static TEXT_NUMBER_BYTES], uint64_t bytes)
{
	static const char *const units[] = { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	double value = (double)bytes / 1024;
	size_t unit = 0;

	if (bytes < 1024) {
		(void)snprintf(buffer, TEXT_NUMBER_BYTES, "%u B", (unsigned)bytes);
		return buffer;
	}
	/* 1023.95 would be printed as "1024.0". */
	while (value >= 1023.95 && unit + 1 < ARRAY_SIZE(units)) {
		value /= 1024;
		unit++;
	}
	(void)snprintf(buffer, TEXT_NUMBER_BYTES, "%.1f %s", value, units[unit]);
	return buffer;
}

const char *text_put_duration(char buffer[static TEXT_NUMBER_BYTES], uint64_t ms)
{
	unsigned long long s = (ms + 500) / 1000;

	if (ms < 1000)
		(void)snprintf(buffer, TEXT_NUMBER_BYTES, "%u ms", (unsigned)ms);
	else if (ms < 59950)
		(void)snprintf(buffer, TEXT_NUMBER_BYTES, "%.1f s", (double)ms / 1000);
	else if (s < 3600)
		(void)snprintf(buffer, TEXT_NUMBER_BYTES, "%llu min %llu s", s / 60, s % 60);
	else if (s < 48 * 3600)
		(void)snprintf(buffer, TEXT_NUMBER_BYTES, "%llu h %llu min", s / 3600, s / 60 % 60);
	else
		(void)snprintf(buffer, TEXT_NUMBER_BYTES, "%llu d %llu h", s / 86400,
			       s / 3600 % 24);
	return buffer;
}

static bool is_name_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '.' || c == '_' || c == '-';
}

bool text_is_name(const char *name)
{
	size_t length = strlen(name);

	if (length == 0 || length > TEXT_NAME_MAX || strchr("._-", name[0]))
		return false;
	for (size_t i = 0; i < length; i++) {
		if (!is_name_char(name[i]))
			return false;
	}
	return true;
}

int text_name_from_path(const char *path, char ret_name[static TEXT_NAME_MAX + 1])
{
	char name[TEXT_NAME_MAX + 1];
	size_t length = 0;

	for (; *path; path++) {
		char c = *path == '/' ? '-' : is_name_char(*path) ? *path : '_';

		if (length == 0 && strchr("._-", c))
			continue;
		if (length == TEXT_NAME_MAX)
			return -ENAMETOOLONG;
		name[length++] = c;
	}
	name[length] = '\0';
	if (!text_is_name(name))
		return -EINVAL;
	memcpy(ret_name, name, length + 1);
	return 0;
}

size_t text_utf8_length(const char *text)
{
	const unsigned char *s = (const unsigned char *)text;
	unsigned long code;
	size_t length;

	if (s[0] < 0x80)
		return s[0] != 0;
	if (s[0] >= 0xc2 && s[0] <= 0xdf) {
		length = 2;
		code = s[0] & 0x1f;
	} else if (s[0] >= 0xe0 && s[0] <= 0xef) {
		length = 3;
		code = s[0] & 0x0f;
	} else if (s[0] >= 0xf0 && s[0] <= 0xf4) {
		length = 4;
		code = s[0] & 0x07;
	} else {
		return 0;
	}
	for (size_t i = 1; i < length; i++) {
		if ((s[i] & 0xc0) != 0x80) /* a NUL ends it here too */
			return 0;
		code = code << 6 | (s[i] & 0x3f);
	}
	if ((length == 3 && code < 0x800) || (length == 4 && code < 0x10000) || code > 0x10ffff ||
	    (code >= 0xd800 && code <= 0xdfff))
		return 0;
	return length;
}

/* C1 controls drive terminals as well as those below a space do. */
static bool is_control(const char *text, size_t length)
{
	const unsigned char *s = (const unsigned char *)text;

	return (length == 1 && (s[0] < 0x20 || s[0] == 0x7f)) ||
	       (length == 2 && s[0] == 0xc2 && s[1] < 0xa0);
}

static char *escape(const char *bytes, bool is_reversible)
{
	static const char hex[] = "0123456789abcdef";
	char *text = malloc(4 * strlen(bytes) + 1);
	char *out = text;

	if (!text)
		return NULL;
	while (*bytes) {
		size_t length = text_utf8_length(bytes);

		if (*bytes == '\\' && is_reversible) {
			*out++ = '\\';
			*out++ = *bytes++;
		} else if (length > 0 && !is_control(bytes, length)) {
			memcpy(out, bytes, length);
			out += length;
			bytes += length;
		} else {
			unsigned char byte = (unsigned char)*bytes++;

			*out++ = '\\';
			*out++ = 'x';
			*out++ = hex[byte >> 4];
			*out++ = hex[byte & 15];
		}
	}
	*out = '\0';
	return text;
}

char *text_escape(const char *bytes)
{
	return escape(bytes, /* is_reversible= */ true);
}

char *text_printable(const char *bytes)
{
	return escape(bytes, /* is_reversible= */ false);
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

char *text_unescape(const char *text)
{
	_cleanup_free_ char *bytes = malloc(strlen(text) + 1);
	char *out = bytes;

	if (!bytes)
		return NULL;
	while (*text) {
		int high, low;

		if (*text != '\\') {
			*out++ = *text++;
		} else if (text[1] == '\\') {
			*out++ = '\\';
			text += 2;
		} else if (text[1] == 'x' && (high = hex_digit(text[2])) >= 0 &&
			   (low = hex_digit(text[3])) >= 0 && (high | low) != 0) {
			*out++ = (char)(high << 4 | low);
			text += 4;
		} else {
			errno = EINVAL;
			return NULL;
		}
	}
	*out = '\0';
	return TAKE_PTR(bytes);
}

unsigned text_distance(const char *a, const char *b)
{
	enum { LETTERS_MAX = 32 };
	size_t a_length = strnlen(a, LETTERS_MAX), b_length = strnlen(b, LETTERS_MAX);
	unsigned row[LETTERS_MAX + 1];

	for (size_t j = 0; j <= b_length; j++)
		row[j] = (unsigned)j;
	for (size_t i = 1; i <= a_length; i++) {
		unsigned diagonal = row[0];

		row[0] = (unsigned)i;
		for (size_t j = 1; j <= b_length; j++) {
			unsigned above = row[j];
			unsigned best = diagonal + (a[i - 1] != b[j - 1]);

			if (above + 1 < best)
				best = above + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			diagonal = above;
			row[j] = best;
		}
	}
	return row[b_length];
}
