/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/store/nfs_url.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int parse_port(const char *text, size_t length, uint16_t *ret_port)
{
	unsigned long port = 0;

	if (length == 0 || length > 5)
		return -EINVAL;
	for (size_t i = 0; i < length; i++) {
		if (!isdigit((unsigned char)text[i]))
			return -EINVAL;
		port = port * 10 + (unsigned long)(text[i] - '0');
	}
	if (port == 0 || port > UINT16_MAX)
		return -EINVAL;
	*ret_port = (uint16_t)port;
	return 0;
}

/* "key=value" pairs, joined by '&'. */
static int parse_options(const char *text, struct nfsurl *url, const char **ret_why)
{
	static const char nfs[] = "nfsport=", mount[] = "mountport=", version[] = "version=3";

	while (*text) {
		size_t length = strcspn(text, "&");
		int r = 0;

		if (strncmp(text, nfs, strlen(nfs)) == 0)
			r = parse_port(text + strlen(nfs), length - strlen(nfs), &url->nfs_port);
		else if (strncmp(text, mount, strlen(mount)) == 0)
			r = parse_port(text + strlen(mount), length - strlen(mount),
				       &url->mount_port);
		else if (length != strlen(version) || strncmp(text, version, length) != 0) {
			*ret_why = "the options are nfsport=N, mountport=N and version=3";
			return -EINVAL;
		}
		if (r < 0) {
			*ret_why = "a port is a number from 1 to 65535";
			return r;
		}
		text += length;
		if (*text == '&')
			text++;
	}
	return 0;
}

/* "host", "host:port", "[address]" or "[address]:port". */
static int parse_host(const char *text, size_t length, struct nfsurl *url, const char **ret_why)
{
	const char *host = text, *end = text + length, *port;
	size_t host_length;

	if (length > 0 && *text == '[') {
		const char *close = memchr(text, ']', length);

		if (!close) {
			*ret_why = "the ']' after the address is missing";
			return -EINVAL;
		}
		host = text + 1;
		host_length = (size_t)(close - host);
		port = close + 1;
		if (port < end && *port != ':') {
			*ret_why = "only ':' and a port may follow the ']'";
			return -EINVAL;
		}
	} else {
		port = memchr(text, ':', length);
		if (!port)
			port = end;
		host_length = (size_t)(port - host);
	}
	if (host_length == 0) {
		*ret_why = "the host is missing";
		return -EINVAL;
	}
	if (host_length >= sizeof(url->host)) {
		*ret_why = "the host is too long";
		return -ENAMETOOLONG;
	}
	memcpy(url->host, host, host_length);
	url->host[host_length] = '\0';

	if (port < end && parse_port(port + 1, (size_t)(end - port - 1), &url->nfs_port) < 0) {
		*ret_why = "a port is a number from 1 to 65535";
		return -EINVAL;
	}
	return 0;
}

int nfsurl_parse(const char *text, struct nfsurl *ret_url, const char **ret_why)
{
	static const char scheme[] = "nfs://";
	struct nfsurl url = { 0 };
	const char *host, *export, *options;
	size_t length;
	int r;

	assert(text && ret_url && ret_why);

	if (strncmp(text, scheme, strlen(scheme)) != 0) {
		*ret_why = "it does not begin with 'nfs://'";
		return -EINVAL;
	}
	host = text + strlen(scheme);
	export = strchr(host, '/');
	if (!export) {
		*ret_why = "the path of the export is missing";
		return -EINVAL;
	}
	options = strchr(export, '?');
	length = options ? (size_t)(options - export) : strlen(export);
	while (length > 1 && export[length - 1] == '/')
		length--;
	if (length >= sizeof(url.export)) {
		*ret_why = "the path of the export is too long";
		return -ENAMETOOLONG;
	}
	memcpy(url.export, export, length);

	r = parse_host(host, (size_t)(export - host), &url, ret_why);
	if (r < 0)
		return r;
	r = options ? parse_options(options + 1, &url, ret_why) : 0;
	if (r < 0)
		return r;

	*ret_url = url;
	return 0;
}

void nfsurl_format(const struct nfsurl *url, char *buffer, size_t size)
{
	bool is_ipv6 = strchr(url->host, ':');
	char port[8] = "";

	assert(size > 0);
	/* Two servers of one host differ in the port. */
	if (url->nfs_port != 0 && url->nfs_port != 2049)
		(void)snprintf(port, sizeof(port), ":%u", url->nfs_port);
	(void)snprintf(buffer, size, "nfs://%s%s%s%s%s", is_ipv6 ? "[" : "", url->host,
		       is_ipv6 ? "]" : "", port,
		       url->export); /* cut: only ever shown or compared */
}
