#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A failover that cannot be done within --max-freeze is refused or thaws, and nothing has
# happened: neither to the workload, nor to the state. Here the server of the target
# stands still in the middle of it.
. "$(dirname "${BASH_SOURCE[0]}")/../lib/common.sh"

THAW_MS_MAX=3000	# for --max-freeze 1s

test_begin 180
make_target nfs
make_tree nfs "$SHM/source" 2000 50 1
start_ferryfs "$SHM/source" "$TARGET"
start_writer 1 mix
start_writer 2 random8k --size 8388608
wait_converged 100

kill -STOP "$(cat "$T/server/pid")"
status=0
ferry failover --max-freeze 1s >"$T/refused" 2>&1 || status=$?
kill -CONT "$(cat "$T/server/pid")"
((status == 1)) || fail "a failover to a server that stands still ended with $status"
[[ -s $T/refused ]] || fail "it was refused without a reason"
say "refused: $(cat "$T/refused")"
status_is active source || fail "it failed over all the same"
writers_are_alive
sleep 2
stop_writers
stall_ms=$(longest_stall_ms 2)
say "held for $stall_ms ms"
((stall_ms <= THAW_MS_MAX)) || fail "a write was held for $stall_ms ms by --max-freeze 1s"
check_writers "$SHM/source"

start_writer 1 mix
start_writer 2 random8k --size 8388608
wait_converged 100
ferry failover --max-freeze 2s || fail "the second failover was refused"
sleep 2
stop_writers
stop_ferryfs
check_writers "$TARGET_DIR"
test_end
