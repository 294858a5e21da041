#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# kill -9 again and again while it copies: it cleans up after itself, whatever it had begun.
# Then all is removed, and nothing is left on the target but an empty limbo.
. "$(dirname "${BASH_SOURCE[0]}")/../lib/common.sh"

KILLS=4

test_begin 200
make_target dir
make_tree dir "$SHM/source/a" 1500 50 "${FERRYFS_SEED:-$RANDOM}"
for ((i = 0; i < KILLS; i++)); do
	start_ferryfs "$SHM/source" "$TARGET" --hold-down 1
	mv "$MOUNT/a" "$MOUNT/b"
	sleep "0.$((RANDOM % 5))"
	mkdir "$MOUNT/more$i"
	for file in "$MOUNT"/b/*; do
		[[ ! -f $file ]] || ln "$file" "$MOUNT/more$i"
	done
	mv "$MOUNT/b" "$MOUNT/a"
	sleep "0.$((RANDOM % 5))"
	kill_ferryfs
done
start_ferryfs "$SHM/source" "$TARGET" --hold-down 1
wait_converged 60
left=$(ls -A "$TARGET_DIR" | grep -vE '^(a|more[0-9]|\.ferryfs-limbo-.*)$' || true)
[[ -z $left ]] || fail "on the target: $left"
rm -rf "$MOUNT"/*
[[ -z $(ls -A "$MOUNT") ]] || fail "left in the mount: $(ls -A "$MOUNT")"
wait_converged 60
wait_for 20 "the target to be empty" eval '[[ -z $(find "$TARGET_DIR" -mindepth 1 ! -path "$TARGET_DIR/$LIMBO" 2>/dev/null) ]]'
ferry failover || fail "the failover was refused"
[[ -z $(find "$TARGET_DIR" -mindepth 1 ! -path "$TARGET_DIR/$LIMBO" -o -path "$TARGET_DIR/$LIMBO/*") ]] ||
	fail "left: $(find "$TARGET_DIR" | head)"
stop_ferryfs
[[ -z $(ls -A "$SHM/source") ]] || fail "left on the source: $(ls -A "$SHM/source")"
test_end
