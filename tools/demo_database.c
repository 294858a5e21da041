/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A SQLite database in WAL mode under constant transactions: each adds an order and
 * moves money between two accounts, so that a torn or lost one shows. Its
 * shared-memory file is a shared writable map.
 */
#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#include "tools/demo_workload.h"
#include "util/cleanup.h"

enum { ACCOUNTS = 16, PAUSE_MS = 2, BUSY_MS = 30000 };

#define DATABASE "shop.db"

static int sql_failed(struct part *part, sqlite3 *db, const char *what)
{
	fprintf(stderr, "demo_workload: %s: %s: %s\n", part->kind->name, what, sqlite3_errmsg(db));
	atomic_store(part->is_over, true);
	return -1;
}

static int execute(struct part *part, sqlite3 *db, const char *sql)
{
	return sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : sql_failed(part, db, sql);
}

static int open_database(struct part *part, sqlite3 **ret_db)
{
	char path[512];

	(void)snprintf(path, sizeof(path), "%s/" DATABASE,
		       part->dir); /* a cut path fails to open */
	if (sqlite3_open(path, ret_db) != SQLITE_OK)
		return sql_failed(part, *ret_db, path);
	sqlite3_busy_timeout(*ret_db, BUSY_MS);
	return 0;
}

static int make_tables(struct part *part, sqlite3 *db)
{
	char sql[128];
	int r;

	r = execute(part, db,
		    "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
		    "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, text BLOB);"
		    "CREATE TABLE IF NOT EXISTS accounts (id INTEGER PRIMARY KEY, money INTEGER);");
	for (int i = 0; i < ACCOUNTS && r == 0; i++) {
		(void)snprintf(sql, sizeof(sql), "INSERT OR IGNORE INTO accounts VALUES (%d, 1000)",
			       i);
		r = execute(part, db, sql);
	}
	return r;
}

static int transact(struct part *part, sqlite3 *db, uint64_t id)
{
	unsigned from = (unsigned)(id * 7 % ACCOUNTS), to = (unsigned)(id * 11 + 3) % ACCOUNTS;
	char sql[512];

	(void)snprintf(sql, sizeof(sql),
		       "BEGIN IMMEDIATE;"
		       "INSERT INTO orders VALUES (%llu, randomblob(%u));"
		       "UPDATE accounts SET money = money - 1 WHERE id = %u;"
		       "UPDATE accounts SET money = money + 1 WHERE id = %u;"
		       "COMMIT",
		       (unsigned long long)id, (unsigned)(id % 400 + 50), from,
		       to); /* always fits */
	return execute(part, db, sql);
}

static int run(struct part *part)
{
	uint64_t id = part_recall(part);
	sqlite3 *db = NULL;
	int r;

	r = open_database(part, &db);
	if (r == 0)
		r = make_tables(part, db);
	while (r == 0 && !atomic_load(part->is_over)) {
		part_begin(part);
		r = transact(part, db, id + 1);
		part_end(part);
		if (r == 0)
			id++;
		part_pause(PAUSE_MS);
	}
	if (sqlite3_close(db) != SQLITE_OK)
		r = sql_failed(part, db, "close");
	return part_remember(part, id) < 0 ? -1 : r;
}

/* The first column of the first row, as text. */
static int query(struct part *part, sqlite3 *db, const char *sql, char *ret_text, size_t size)
{
	sqlite3_stmt *statement = NULL;
	int r = -1;

	if (sqlite3_prepare_v2(db, sql, -1, &statement, NULL) == SQLITE_OK &&
	    sqlite3_step(statement) == SQLITE_ROW) {
		(void)snprintf(ret_text, size, "%s",
			       (const char *)sqlite3_column_text(statement, 0)); /* cut is fine */
		r = 0;
	} else {
		(void)sql_failed(part, db, sql);
	}
	(void)sqlite3_finalize(statement); /* repeats the error */
	return r;
}

static int verify(struct part *part)
{
	char check[256], count[32], last[32], money[32], expected[32], whole[32];
	uint64_t id = part_recall(part);
	sqlite3 *db = NULL;
	int r;

	r = open_database(part, &db);
	if (r == 0)
		r = query(part, db, "PRAGMA integrity_check", check, sizeof(check));
	if (r == 0)
		r = query(part, db, "SELECT count(*) FROM orders", count, sizeof(count));
	if (r == 0)
		r = query(part, db, "SELECT ifnull(max(id), 0) FROM orders", last, sizeof(last));
	if (r == 0)
		r = query(part, db, "SELECT sum(money) FROM accounts", money, sizeof(money));
	(void)sqlite3_close(db); /* only read */
	if (r < 0)
		return r;
	(void)snprintf(expected, sizeof(expected), "%llu",
		       (unsigned long long)id); /* always fits */
	(void)snprintf(whole, sizeof(whole), "%d", ACCOUNTS * 1000);
	printf("integrity_check: %s; %s of %s transactions, money %s of %s\n", check, count,
	       expected, money, whole);
	return strcmp(check, "ok") == 0 && strcmp(count, expected) == 0 &&
			       strcmp(last, expected) == 0 && strcmp(money, whole) == 0
		       ? 0
		       : -1;
}

const struct part_kind part_database = { "database", run, verify };
