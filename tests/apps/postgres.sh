#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# PostgreSQL 15 with its data on the mount, pgbench at work. It is stopped like by a crash
# and recovers, goes through a failover that no client may notice, and crashes and recovers
# again. After each: the sums of pgbench's tables agree, and each transaction that a client
# was told is committed has its row of history. At the end checksums, indexes, and heap are
# sound, and both the target and the source as it was at the freeze start by themselves.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

PG=/usr/lib/postgresql/15/bin
CLIENTS=4
SCALE=$(long_or_short 20 1)
PHASE_S=$(long_or_short 60 2)
CRASHES=0

as_postgres()
{
	runuser -u postgres -- env -C / "$@"
}

# pg_start DIR
pg_start()
{
	local pid

	as_postgres "$PG/pg_ctl" -D "$1" -w -t 60 -l "$T/pg/log" -o "-k $T/pg -c listen_addresses='' \
		-c shared_buffers=16MB -c checkpoint_timeout=30s -c max_wal_size=64MB \
		-c wal_writer_delay=10ms -c bgwriter_delay=10ms" start >"$T/pg_ctl" ||
		fail "PostgreSQL does not start: $(cat "$T/pg_ctl"; tail -n 30 "$T/pg/log")"
	read -r pid <"$1/postmaster.pid"
	HELPERS+=("$pid")
}

# pg_stop DIR fast|immediate
pg_stop()
{
	as_postgres "$PG/pg_ctl" -D "$1" -w -t 60 -m "$2" stop >"$T/pg_ctl" ||
		fail "PostgreSQL does not stop: $(cat "$T/pg_ctl")"
}

query()
{
	as_postgres "$PG/psql" -h "$T/pg" -d postgres -XAtq -v ON_ERROR_STOP=1 -c "$1"
}

# start_bench NAME SECONDS: notes each transaction when it was told of its commit.
start_bench()
{
	as_postgres "$PG/pgbench" -h "$T/pg" -n -c "$CLIENTS" -j 2 -T "$2" --random-seed="$SEED" \
		--log --log-prefix="$T/pg/acks.$1" postgres >"$T/bench.$1" 2>&1 &
	BENCH=$!
	HELPERS+=("$BENCH")
}

acknowledged()
{
	cat "$T"/pg/acks.* | wc -l
}

# check_bank ACKNOWLEDGED: of one transaction a client, a crash may have hidden the outcome.
check_bank()
{
	local sums rows

	sums=$(query "select (select sum(abalance) from pgbench_accounts),
		(select sum(tbalance) from pgbench_tellers),
		(select sum(bbalance) from pgbench_branches),
		(select coalesce(sum(delta), 0) from pgbench_history)")
	[[ $(tr '|' '\n' <<<"$sums" | uniq | wc -l) == 1 ]] || fail "the sums differ: $sums"
	rows=$(query "select count(*) from pgbench_history")
	say "$1 transactions acknowledged, $rows are there"
	((rows >= $1)) || fail "$(($1 - rows)) acknowledged transactions are lost"
	[[ -n ${2:-} ]] || ((rows <= $1 + CRASHES * CLIENTS)) || fail "there are too many"
}

crash_and_recover()
{
	pg_stop "$DATA" immediate
	wait "$BENCH" || true # its clients were thrown out
	CRASHES=$((CRASHES + 1))
	pg_start "$DATA"
	grep -q 'not properly shut down' "$T/pg/log" || fail "there was no recovery from a crash"
	check_bank "$(acknowledged)"
}

[[ -x $PG/pgbench ]] || {
	echo "needs postgresql-15" >&2
	exit 77
}
apps_begin 200
DATA=$WORK/data
mkdir "$T/pg" "$SHM/pg"
install -d -o postgres -g postgres -m 700 "$DATA"
chown postgres: "$T/pg" "$SHM/pg"
as_postgres "$PG/initdb" -D "$DATA" -k -A trust --no-locale -E UTF8 --no-sync >"$T/initdb" 2>&1 ||
	fail "initdb: $(cat "$T/initdb")"
pg_start "$DATA"
as_postgres "$PG/pgbench" -h "$T/pg" -q -i -s "$SCALE" postgres >"$T/init" 2>&1 ||
	fail "pgbench -i: $(cat "$T/init")"
query "create extension amcheck"
say "made a database of $(du -sm "$DATA" | cut -f1) MiB"

start_bench crash 600
sleep "$PHASE_S"
crash_and_recover

start_bench failover "$((PHASE_S * 3))"
sleep "$PHASE_S"
before=$(acknowledged)
apps_failover
[[ $(process_state "$BENCH") != Z ]] || fail "pgbench has ended too early"
helper_ends "$BENCH" "pgbench"
! grep -E 'ERROR|FATAL|PANIC|abort' "$T/bench.failover" || fail "a client saw an error"
! grep -E 'PANIC|could not (read|write|open|fsync|stat)|invalid page' "$T/pg/log" ||
	fail "the server saw an error"
check_bank "$(acknowledged)"

start_bench again 600
sleep "$PHASE_S"
crash_and_recover
as_postgres "$PG/pg_amcheck" -h "$T/pg" --all --heapallindexed --parent-check >"$T/amcheck" 2>&1 ||
	fail "pg_amcheck: $(cat "$T/amcheck")"
total=$(acknowledged)
pg_stop "$DATA" fast
as_postgres "$PG/pg_checksums" --check -D "$DATA" >"$T/checksums" || fail "$(cat "$T/checksums")"

say "on the source, as by a crash:"
cp -a "$BELOW/data" "$SHM/pg/source"
rm -f "$SHM/pg/source/postmaster.pid"
pg_start "$SHM/pg/source"
check_bank "$before" up-to-the-freeze
pg_stop "$SHM/pg/source" fast
say "on the target:"
cp -a "$BEYOND/data" "$SHM/pg/target"
as_postgres "$PG/pg_checksums" --check -D "$SHM/pg/target" >"$T/checksums" ||
	fail "$(cat "$T/checksums")"
pg_start "$SHM/pg/target"
check_bank "$total"
pg_stop "$SHM/pg/target" fast
apps_end
