#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# SQLite in each of its journal modes, three clients at a database, through a failover.
# Some of them are killed, before it, after it, and at the end, and others take their place.
# No database is damaged, no acknowledged transaction lost: on the mount, on the target, and
# up to the freeze on the source, which is left as by a crash.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

MODES=(wal delete truncate persist)
CLIENTS=3
PHASE_S=$(long_or_short 30 1.5)

LAST_ID=0
declare -A CLIENT=()	# pid -> mode

start_client()
{
	local mode=$1 pid

	LAST_ID=$((LAST_ID + 1))
	"$APPS/sqlite_client" "$WORK/$mode.db" --mode "$mode" --id "$LAST_ID" \
		--acks "$T/acks/$mode/$LAST_ID" --until "$T/done" >"$T/client.$LAST_ID" 2>&1 &
	pid=$!
	HELPERS+=("$pid")
	CLIENT[$pid]=$mode
}

clients_are_well()
{
	local pid

	for pid in "${!CLIENT[@]}"; do
		[[ $(process_state "$pid") != Z ]] ||
			fail "a client of '${CLIENT[$pid]}' ended: $(head -c 2000 "$T"/client.*)"
	done
}

# Kills one of each database, whatever it does; with --replace, another comes.
kill_clients()
{
	local pid mode

	clients_are_well
	for mode in "${MODES[@]}"; do
		for pid in "${!CLIENT[@]}"; do
			[[ ${CLIENT[$pid]} == "$mode" ]] || continue
			kill -KILL "$pid"
			wait "$pid" 2>/dev/null || true
			unset "CLIENT[$pid]"
			[[ ${1:-} != --replace ]] || start_client "$mode"
			break
		done
	done
}

# check_databases DIR ACKS: copied first, as looking recovers.
check_databases()
{
	local mode

	rm -rf "$T/copy"
	mkdir "$T/copy"
	cp "$1"/*.db* "$T/copy/"
	rm -f "$T"/copy/*-shm # an index of the log, of those who have it open; made anew
	for mode in "${MODES[@]}"; do
		bounded 60 "$APPS/sqlite_client" "$T/copy/$mode.db" --check "$2/$mode" >"$T/checked" ||
			fail "$mode: '$1' is wrong: $(cat "$T/checked")"
		say "$mode: $(cat "$T/checked")"
	done
}

apps_begin 150
for mode in "${MODES[@]}"; do
	mkdir -p "$T/acks/$mode"
	"$APPS/sqlite_client" "$WORK/$mode.db" --make "$mode"
	for ((i = 0; i < CLIENTS; i++)); do
		start_client "$mode"
	done
done
sleep "$PHASE_S"
kill_clients --replace
sleep "$PHASE_S"
clients_are_well
cp -r "$T/acks" "$T/acks-before"
apps_failover
kill_clients --replace
sleep "$PHASE_S"
kill_clients
touch "$T/done"
for pid in "${!CLIENT[@]}"; do
	wait "$pid" || fail "a client of '${CLIENT[$pid]}' failed: $(cat "$T"/client.*)"
done
say "on the mount:"
check_databases "$WORK" "$T/acks"
say "on the source:"
check_databases "$BELOW" "$T/acks-before"
say "on the target:"
check_databases "$BEYOND" "$T/acks"
apps_end
