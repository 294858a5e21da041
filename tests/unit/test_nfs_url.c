/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "fs/store/nfs_url.h"

static void takes_apart_what_is_an_address(void **state)
{
	static const struct {
		const char *text, *host, *export, *identity;
		uint16_t nfs_port, mount_port;
	} cases[] = {
		{ "nfs://h/e", "h", "/e", "nfs://h/e", 0, 0 },
		{ "nfs://h/", "h", "/", "nfs://h/", 0, 0 },
		{ "nfs://h/a/b//", "h", "/a/b", "nfs://h/a/b", 0, 0 },
		{ "nfs://h:2049/e", "h", "/e", "nfs://h/e", 2049, 0 },
		{ "nfs://h/e?nfsport=1&mountport=65535", "h", "/e", "nfs://h:1/e", 1, 65535 },
		{ "nfs://h/e?version=3", "h", "/e", "nfs://h/e", 0, 0 },
		{ "nfs://[::1]/e", "::1", "/e", "nfs://[::1]/e", 0, 0 },
		{ "nfs://[fe80::1]:77/e e", "fe80::1", "/e e", "nfs://[fe80::1]:77/e e", 77, 0 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct nfsurl url;
		const char *why;
		char text[2048];

		assert_int_equal(nfsurl_parse(cases[i].text, &url, &why), 0);
		assert_string_equal(url.host, cases[i].host);
		assert_string_equal(url.export, cases[i].export);
		assert_int_equal(url.nfs_port, cases[i].nfs_port);
		assert_int_equal(url.mount_port, cases[i].mount_port);
		nfsurl_format(&url, text, sizeof(text));
		assert_string_equal(text, cases[i].identity);
	}
}

static void refuses_what_is_none_and_says_why(void **state)
{
	static const char *const cases[] = {
		"",
		"/path",
		"http://h/e",
		"nfs://",
		"nfs://h",
		"nfs:///e",
		"nfs://h:/e",
		"nfs://h:0/e",
		"nfs://h:65536/e",
		"nfs://h:x/e",
		"nfs://h:123456/e",
		"nfs://[::1/e",
		"nfs://[::1]x/e",
		"nfs://[]/e",
		"nfs://h/e?nfsport=",
		"nfs://h/e?nfsport=-1",
		"nfs://h/e?version=4",
		"nfs://h/e?autoreconnect=1",
		"nfs://h/e?nfsport=1&&",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct nfsurl url;
		const char *why = NULL;

		assert_int_equal(nfsurl_parse(cases[i], &url, &why), -EINVAL);
		assert_non_null(why);
	}
}

static void refuses_what_is_too_long(void **state)
{
	char text[4096] = "nfs://h/";
	struct nfsurl url;
	const char *why;

	(void)state;
	memset(text + strlen(text), 'x', NFSURL_EXPORT_MAX);
	assert_int_equal(nfsurl_parse(text, &url, &why), -ENAMETOOLONG);
	memset(text, 'x', sizeof(text) - 1);
	memcpy(text, "nfs://", 6);
	strcpy(text + 6 + NFSURL_HOST_MAX, "/e");
	assert_int_equal(nfsurl_parse(text, &url, &why), -ENAMETOOLONG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(takes_apart_what_is_an_address),
		cmocka_unit_test(refuses_what_is_none_and_says_why),
		cmocka_unit_test(refuses_what_is_too_long),
	};

	return cmocka_run_group_tests_name("nfs_url", tests, NULL, NULL);
}
