#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A target that fills up does not touch the workload: status says "degraded" and why, and
# the copy goes on when there is space again.
. "$(dirname "${BASH_SOURCE[0]}")/../lib/common.sh"

test_begin 180
truncate -s 256M "$T/disk"
LOOPS+=("$(losetup -f --show "$T/disk")")
mkfs.ext4 -q -m 0 -b 4096 -N 20000 "${LOOPS[0]}"
mkdir "$T/small"
mount "${LOOPS[0]}" "$T/small"
mkdir "$T/small/target"
fallocate -l 170M "$T/small/ballast"
TARGET_DIR=$T/small/target

make_tree dir "$SHM/source" 1000 20 1
for i in {1..10}; do
	head -c 10M /dev/urandom >"$SHM/source/large.$i"
done
start_ferryfs "$SHM/source" "$TARGET_DIR"
start_writer 1 mix
start_writer 2 random8k --size 8388608
wait_for 60 "status 'degraded'" status_is phase degraded
[[ $(status_get errors.last) == *space* ]] || fail "no word of space: $(status_get errors.last)"
say "degraded: $(status_get errors.last)"
status=0
ferry failover --max-freeze 1s >"$T/refused" 2>&1 || status=$?
((status == 1)) || fail "a failover to a full target ended with $status"
sleep 3
writers_are_alive

rm "$T/small/ballast"
wait_converged 90
stop_writers
(($(longest_stall_ms 2) <= FREEZE_MS_MAX)) || fail "a write took $(longest_stall_ms 2) ms"
ferry failover || fail "the failover was refused"
stop_ferryfs
compare_trees "$SHM/source" "$TARGET_DIR" --ignore "$LIMBO"
check_writers "$TARGET_DIR"
umount "$T/small"
test_end
