#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# memory.sh OBJECTS: the daemon's resident memory stays below 256 MiB, through a
# baseline copy, with all of the tree walked on the mount.
. "$(dirname "${BASH_SOURCE[0]}")/../lib/common.sh"

OBJECTS=$1
RSS_KIB_MAX=$((256 * 1024))

resident_kib()
{
	awk '$1 == "VmHWM:" { print $2 }' "/proc/$DAEMON_PID/status"
}

test_begin 900
make_target dir
make_tree dir "$SHM/source" "$OBJECTS" $((OBJECTS / 500)) 1
start_ferryfs "$SHM/source" "$TARGET"
find "$MOUNT" -printf '%s\n' | wc -l
wait_for 600 "the baseline" status_is baseline.done true
wait_converged 100
find "$MOUNT" -printf '%s\n' | wc -l
say "resident at most: $(resident_kib) KiB with $OBJECTS objects"
(($(resident_kib) <= RSS_KIB_MAX)) || fail "more than $RSS_KIB_MAX KiB"
stop_ferryfs
test_end
