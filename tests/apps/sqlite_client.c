/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sqlite_client DATABASE --make MODE
 * sqlite_client DATABASE --mode MODE --id N --acks FILE --until FILE
 * sqlite_client DATABASE --check DIR
 *
 * A bank: each transaction moves money between two accounts and notes (client, sequence
 * number). What COMMIT has acknowledged is written to the file --acks, eight bytes that
 * grow, outside of the database; ends when the file --until is there. With --mode, a journal
 * mode of SQLite, several clients may use one database.
 *
 * --check: the database is sound, no money was lost or made, each client's notes have no
 * gap, and reach at least as far as its file in DIR, named by its id, says.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/testlib.h"

enum { ACCOUNTS = 64, MONEY = 1000, BUSY_MS = 60000 };

static sqlite3 *db;

static void sql_die(const char *what)
{
	die(1, "%s: %s (%d)", what, sqlite3_errmsg(db), sqlite3_extended_errcode(db));
}

static void execute(const char *sql)
{
	if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
		sql_die(sql);
}

static sqlite3_stmt *prepare(const char *sql)
{
	sqlite3_stmt *statement;

	if (sqlite3_prepare_v2(db, sql, -1, &statement, NULL) != SQLITE_OK)
		sql_die(sql);
	return statement;
}

static void open_database(const char *path, int flags)
{
	if (sqlite3_open_v2(path, &db, flags, NULL) != SQLITE_OK)
		sql_die(path);
	sqlite3_busy_timeout(db, BUSY_MS);
}

static int64_t number_of(const char *sql)
{
	sqlite3_stmt *statement = prepare(sql);
	int64_t number;

	if (sqlite3_step(statement) != SQLITE_ROW)
		sql_die(sql);
	number = sqlite3_column_int64(statement, 0);
	sqlite3_finalize(statement);
	return number;
}

/* ---- the bank ------------------------------------------------------------ */

static void set_mode(const char *mode)
{
	sqlite3_stmt *statement;
	char sql[64];

	snprintf(sql, sizeof(sql), "PRAGMA journal_mode = %s", mode);
	statement = prepare(sql);
	if (sqlite3_step(statement) != SQLITE_ROW)
		sql_die(sql);
	if (strcasecmp((const char *)sqlite3_column_text(statement, 0), mode) != 0)
		die(1, "journal mode is '%s', not '%s'", sqlite3_column_text(statement, 0), mode);
	sqlite3_finalize(statement);
}

static void make(const char *mode)
{
	sqlite3_stmt *statement;

	set_mode(mode);
	execute("CREATE TABLE account (id INTEGER PRIMARY KEY, money INTEGER, text BLOB);"
		"CREATE TABLE note (client INTEGER, seq INTEGER, text BLOB, PRIMARY KEY (client, seq));"
		"CREATE INDEX by_text ON note (text);"
		"BEGIN");
	statement = prepare("INSERT INTO account VALUES (?, ?, zeroblob(3000))");
	for (int i = 0; i < ACCOUNTS; i++) {
		sqlite3_bind_int(statement, 1, i);
		sqlite3_bind_int(statement, 2, MONEY);
		if (sqlite3_step(statement) != SQLITE_DONE)
			sql_die("INSERT");
		sqlite3_reset(statement);
	}
	sqlite3_finalize(statement);
	execute("COMMIT");
}

static void transact(struct rng *rng, unsigned id, uint64_t seq)
{
	unsigned from = (unsigned)rng_below(rng, ACCOUNTS), to = (unsigned)rng_below(rng, ACCOUNTS);
	char sql[640];

	/* Several pages of each kind, and the halves of the move far from each other. */
	snprintf(sql, sizeof(sql),
		 "BEGIN IMMEDIATE;"
		 "UPDATE account SET money = money - 7, text = randomblob(3000) WHERE id = %u;"
		 "INSERT INTO note VALUES (%u, %llu, randomblob(%u));"
		 "UPDATE account SET money = money + 7 WHERE id = %u;"
		 "COMMIT",
		 from, id, (unsigned long long)seq, (unsigned)rng_below(rng, 500), to);
	execute(sql);
}

static void run(const char *mode, unsigned id, const char *acks, const char *until)
{
	struct rng rng = { .state = id };
	int fd = open(acks, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0)
		die_errno("%s", acks);
	set_mode(mode);
	execute("PRAGMA synchronous = FULL");
	for (uint64_t seq = 1; access(until, F_OK) < 0; seq++) {
		transact(&rng, id, seq);
		if (pwrite(fd, &seq, sizeof(seq), 0) != sizeof(seq))
			die_errno("%s", acks);
	}
	close(fd);
	if (sqlite3_close(db) != SQLITE_OK)
		sql_die("close");
}

/* ---- the auditor --------------------------------------------------------- */

static unsigned wrong;

static void check_sound(void)
{
	sqlite3_stmt *statement = prepare("PRAGMA integrity_check");
	int64_t money = number_of("SELECT sum(money) FROM account");

	while (sqlite3_step(statement) == SQLITE_ROW) {
		const char *text = (const char *)sqlite3_column_text(statement, 0);

		if (strcmp(text, "ok") == 0)
			continue;
		printf("integrity_check: %s\n", text);
		wrong++;
	}
	if (sqlite3_finalize(statement) != SQLITE_OK)
		sql_die("integrity_check");
	if (money != ACCOUNTS * MONEY) {
		printf("there is %lld money, not %d\n", (long long)money, ACCOUNTS * MONEY);
		wrong++;
	}
}

static void check_client(const char *dir, const char *name, uint64_t *ret_acked)
{
	uint64_t acked = 0;
	char path[4096], sql[128];
	int64_t count, last;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, &acked, sizeof(acked)) < 0)
		die_errno("%s", path);
	close(fd);
	snprintf(sql, sizeof(sql), "SELECT count(*) FROM note WHERE client = %s", name);
	count = number_of(sql);
	snprintf(sql, sizeof(sql), "SELECT ifnull(max(seq), 0) FROM note WHERE client = %s", name);
	last = number_of(sql);
	if (count != last || last < (int64_t)acked) {
		printf("client %s: %llu acknowledged, %lld noted, up to %lld\n", name,
		       (unsigned long long)acked, (long long)count, (long long)last);
		wrong++;
	}
	*ret_acked += acked;
}

static void check(const char *dir)
{
	DIR *acks = opendir(dir);
	uint64_t acked = 0;
	const struct dirent *entry;

	if (!acks)
		die_errno("%s", dir);
	check_sound();
	while ((entry = readdir(acks))) {
		if (entry->d_name[0] != '.')
			check_client(dir, entry->d_name, &acked);
	}
	closedir(acks);
	printf("%llu transactions acknowledged, %lld noted\n", (unsigned long long)acked,
	       (long long)number_of("SELECT count(*) FROM note"));
	if (acked == 0)
		die(1, "no transaction was acknowledged");
	if (wrong)
		die(1, "%u wrong", wrong);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "make", required_argument, NULL, 'm' },
		{ "mode", required_argument, NULL, 'j' },
		{ "id", required_argument, NULL, 'i' },
		{ "acks", required_argument, NULL, 'a' },
		{ "until", required_argument, NULL, 'u' },
		{ "check", required_argument, NULL, 'c' },
		{ 0 },
	};
	const char *made = NULL, *mode = NULL, *acks = NULL, *until = NULL, *checked = NULL;
	unsigned id = 0;
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		switch (option) {
		case 'm':
			made = optarg;
			break;
		case 'j':
			mode = optarg;
			break;
		case 'i':
			id = (unsigned)parse_number("--id", optarg);
			break;
		case 'a':
			acks = optarg;
			break;
		case 'u':
			until = optarg;
			break;
		case 'c':
			checked = optarg;
			break;
		default:
			return TEST_TROUBLE;
		}
	}
	if (optind != argc - 1 || !(made || checked || (mode && acks && until)))
		die(TEST_TROUBLE, "usage: see sqlite_client.c");
	open_database(argv[optind], SQLITE_OPEN_READWRITE | (made ? SQLITE_OPEN_CREATE : 0));
	if (made)
		make(made);
	else if (checked)
		check(checked);
	else
		run(mode, id, acks, until);
	return 0;
}
