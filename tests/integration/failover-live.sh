#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# failover-live.sh dir|nfs: writers go on through the failover and after it. What was
# acknowledged to them is on the target, byte for byte, and none of them was held for
# long: random8k times each of its 2,000 writes a second.
. "$(dirname "${BASH_SOURCE[0]}")/../lib/common.sh"

KIND=$1
SEED=${FERRYFS_SEED:-$RANDOM}
FILES=${FERRYFS_FILES:-48000}
DIRS=${FERRYFS_DIRS:-976}
AFTER_S=8

test_begin 340
make_target "$KIND"
make_tree "$KIND" "$SHM/source" "$FILES" "$DIRS" "$SEED"
start_ferryfs "$SHM/source" "$TARGET"

WRITER_OPTIONS+=(--shared deep --writers 4 --seed "$SEED")
start_writer 1 mix
start_writer 2 mix
start_writer 3 churn
start_writer 4 append
start_writer 5 random8k
wait_converged 200
writers_are_alive
say "converged: $(status_get backlog)"
ferry failover --max-freeze 2s || fail "the failover was refused"
say "failed over, frozen for $(status_get last_freeze_ms) ms"
sleep "$AFTER_S"
writers_are_alive
stop_writers
check_writers "$MOUNT"
status_is phase guard || fail "phase is '$(status_get phase)', not 'guard'"
stop_ferryfs
check_writers "$TARGET_DIR"

stall_ms=$(longest_stall_ms 5)
say "freeze seen by a writer of 8 KiB, 2,000 a second: $stall_ms ms (wanted: $FREEZE_MS_WANTED)"
((stall_ms <= FREEZE_MS_MAX)) || fail "a write took $stall_ms ms"
test_end
