/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/rpc_proxy.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	RECORD_BYTES_MAX = 2 * 1024 * 1024,
	LINKS_MAX = 4096,
	JUKEBOX = 10008,
	WORD_XID = 1, /* in units of 4 bytes, the record mark being 0 */
	WORD_PROCEDURE = 6,
};

struct rpc_proxy {
	int listen_fd;
	uint16_t port, server_port;
	atomic_int swallow_procedure; /* -1: none */
	atomic_bool has_swallowed;
	atomic_ullong cut_after;
	atomic_uint cut_count, jukebox_left;
	atomic_bool is_stopping;
	pthread_t acceptor;
	pthread_t links[LINKS_MAX];
	unsigned link_count;
};

/* One connection, from the client to the server. */
struct link {
	struct rpc_proxy *proxy;
	int client_fd, server_fd;
	bool is_swallowing;
	uint32_t swallow_xid;
	uint64_t replied_bytes;
	unsigned char record[RECORD_BYTES_MAX];
};

static bool read_full(int fd, void *buffer, size_t size)
{
	for (size_t done = 0; done < size;) {
		ssize_t n = read(fd, (char *)buffer + done, size - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		done += (size_t)n;
	}
	return true;
}

static bool write_full(int fd, const void *buffer, size_t size)
{
	for (size_t done = 0; done < size;) {
		ssize_t n = send(fd, (const char *)buffer + done, size - done, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		done += (size_t)n;
	}
	return true;
}

static uint32_t word(const unsigned char *record, unsigned index)
{
	uint32_t value;

	memcpy(&value, record + index * 4, 4);
	return ntohl(value);
}

/* One message with its mark; its size, or 0. */
static size_t read_record(int fd, unsigned char *record)
{
	size_t size;

	if (!read_full(fd, record, 4))
		return 0;
	size = word(record, 0) & 0x7fffffff;
	if (size == 0 || size > RECORD_BYTES_MAX - 4 || !read_full(fd, record + 4, size))
		return 0;
	return size + 4;
}

/* An accepted reply with that status and nothing more to say: fits every procedure. */
static bool answer_jukebox(struct link *link, uint32_t xid)
{
	uint32_t reply[] = { htonl(0x80000000u | 40), htonl(xid), htonl(1), 0, 0, 0, 0,
			     htonl(JUKEBOX),	      0,	  0,	    0 };

	_Static_assert(sizeof(reply) == 44, "the mark says 40 more");
	return write_full(link->client_fd, reply, sizeof(reply));
}

static bool pass_call(struct link *link)
{
	struct rpc_proxy *proxy = link->proxy;
	size_t size = read_record(link->client_fd, link->record);
	uint32_t xid, procedure;
	unsigned left;

	if (size < (WORD_PROCEDURE + 1) * 4)
		return false;
	xid = word(link->record, WORD_XID);
	procedure = word(link->record, WORD_PROCEDURE);
	for (left = atomic_load(&proxy->jukebox_left); left > 0 && procedure != 0;)
		if (atomic_compare_exchange_weak(&proxy->jukebox_left, &left, left - 1))
			return answer_jukebox(link, xid);
	if (!link->is_swallowing) {
		int wanted = (int)procedure;

		if (atomic_compare_exchange_strong(&proxy->swallow_procedure, &wanted, -1)) {
			link->is_swallowing = true;
			link->swallow_xid = xid;
		}
	}
	return write_full(link->server_fd, link->record, size);
}

static bool pass_reply(struct link *link)
{
	struct rpc_proxy *proxy = link->proxy;
	size_t size = read_record(link->server_fd, link->record);
	uint64_t cut_after = atomic_load(&proxy->cut_after);

	if (size < 8)
		return false;
	if (link->is_swallowing && word(link->record, WORD_XID) == link->swallow_xid) {
		atomic_store(&proxy->has_swallowed, true);
		return false;
	}
	if (cut_after > 0 && link->replied_bytes + size > cut_after) {
		(void)!write_full(link->client_fd, link->record, size / 2); /* it is cut anyway */
		atomic_fetch_add(&proxy->cut_count, 1);
		return false;
	}
	link->replied_bytes += size;
	return write_full(link->client_fd, link->record, size);
}

static void *run_link(void *private)
{
	struct link *link = private;
	struct pollfd fds[2] = { { .fd = link->client_fd, .events = POLLIN },
				 { .fd = link->server_fd, .events = POLLIN } };
	bool is_open = true;

	while (is_open && !atomic_load(&link->proxy->is_stopping)) {
		if (poll(fds, 2, 100) <= 0)
			continue;
		if (fds[0].revents)
			is_open = pass_call(link);
		if (is_open && fds[1].revents)
			is_open = pass_reply(link);
	}
	close(link->client_fd);
	close(link->server_fd);
	free(link);
	return NULL;
}

static int tcp_socket(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	if (fd >= 0)
		(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)); /* speed only */
	return fd;
}

static struct sockaddr_in loopback(uint16_t port)
{
	return (struct sockaddr_in){ .sin_family = AF_INET,
				     .sin_port = htons(port),
				     .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
}

static void accept_link(struct rpc_proxy *proxy, int client_fd)
{
	struct sockaddr_in server = loopback(proxy->server_port);
	struct link *link = calloc(1, sizeof(*link));
	int server_fd = tcp_socket(), one = 1;

	if (!link || server_fd < 0 || proxy->link_count == LINKS_MAX ||
	    connect(server_fd, (struct sockaddr *)&server, sizeof(server)) < 0)
		goto refuse;
	(void)setsockopt(client_fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)); /* speed only */
	link->proxy = proxy;
	link->client_fd = client_fd;
	link->server_fd = server_fd;
	if (pthread_create(&proxy->links[proxy->link_count], NULL, run_link, link) != 0)
		goto refuse;
	proxy->link_count++;
	return;
refuse:
	free(link);
	close(client_fd);
	if (server_fd >= 0)
		close(server_fd);
}

static void *run_acceptor(void *private)
{
	struct rpc_proxy *proxy = private;
	struct pollfd fd = { .fd = proxy->listen_fd, .events = POLLIN };

	while (!atomic_load(&proxy->is_stopping)) {
		int client_fd;

		if (poll(&fd, 1, 50) <= 0)
			continue;
		client_fd = accept4(proxy->listen_fd, NULL, NULL, SOCK_CLOEXEC);
		if (client_fd >= 0)
			accept_link(proxy, client_fd);
	}
	return NULL;
}

struct rpc_proxy *rpc_proxy_new(uint16_t server_port)
{
	struct rpc_proxy *proxy = calloc(1, sizeof(*proxy));
	struct sockaddr_in address = loopback(0);
	socklen_t length = sizeof(address);

	if (!proxy)
		return NULL;
	proxy->server_port = server_port;
	atomic_init(&proxy->swallow_procedure, -1);
	proxy->listen_fd = tcp_socket();
	if (proxy->listen_fd < 0 ||
	    bind(proxy->listen_fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    listen(proxy->listen_fd, 64) < 0 ||
	    getsockname(proxy->listen_fd, (struct sockaddr *)&address, &length) < 0 ||
	    pthread_create(&proxy->acceptor, NULL, run_acceptor, proxy) != 0) {
		if (proxy->listen_fd >= 0)
			close(proxy->listen_fd);
		free(proxy);
		return NULL;
	}
	proxy->port = ntohs(address.sin_port);
	return proxy;
}

struct rpc_proxy *rpc_proxy_free(struct rpc_proxy *proxy)
{
	if (!proxy)
		return NULL;
	atomic_store(&proxy->is_stopping, true);
	pthread_join(proxy->acceptor, NULL);
	for (unsigned i = 0; i < proxy->link_count; i++)
		pthread_join(proxy->links[i], NULL);
	close(proxy->listen_fd);
	free(proxy);
	return NULL;
}

uint16_t rpc_proxy_port(const struct rpc_proxy *proxy)
{
	return proxy->port;
}

void rpc_proxy_swallow(struct rpc_proxy *proxy, unsigned procedure)
{
	atomic_store(&proxy->has_swallowed, false);
	atomic_store(&proxy->swallow_procedure, (int)procedure);
}

bool rpc_proxy_has_swallowed(struct rpc_proxy *proxy)
{
	return atomic_load(&proxy->has_swallowed);
}

void rpc_proxy_cut_after(struct rpc_proxy *proxy, uint64_t bytes)
{
	atomic_store(&proxy->cut_after, bytes);
}

unsigned rpc_proxy_cut_count(struct rpc_proxy *proxy)
{
	return atomic_load(&proxy->cut_count);
}

void rpc_proxy_jukebox(struct rpc_proxy *proxy, unsigned count)
{
	atomic_store(&proxy->jukebox_left, count);
}

unsigned rpc_proxy_jukebox_left(struct rpc_proxy *proxy)
{
	return atomic_load(&proxy->jukebox_left);
}
