#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A server that is gone for a while: the workload goes on, status says "degraded", a
# failover is refused, and nothing that was to be copied is forgotten.
. "$(dirname "${BASH_SOURCE[0]}")/../lib/common.sh"

GONE_S=${FERRYFS_GONE_S:-8}

test_begin 300
TARGET_DIR=$SHM/target
SERVER_DIRS+=("$T/server")
mkdir "$TARGET_DIR"
ganesha_available || exit 77
ganesha_start "$T/server" "$TARGET_DIR" restart=1 || fail "the NFS server did not start"
TARGET=$GANESHA_URL
CMP=(--ignore "$LIMBO" --no-xattr --no-symlink-times)
WRITER_OPTIONS+=(--no-xattr --no-symlink-times)
make_tree nfs "$SHM/source" 2000 40 1
start_ferryfs "$SHM/source" "$TARGET" --hold-down 2
start_writer 1 mix
start_writer 2 random8k --size 8388608
wait_for 60 "the baseline" status_is baseline.done true
touch "$T/server/hold"
kill -KILL "$(cat "$T/server/pid")"
wait_for 60 "status 'degraded'" status_is phase degraded
say "degraded: $(status_get errors.last)"
status=0
ferry failover --max-freeze 1s >"$T/refused" 2>&1 || status=$?
((status == 1)) || fail "a failover to a target that is gone ended with $status"
sleep "$GONE_S"
writers_are_alive
rm "$T/server/hold"
wait_converged 120
stop_writers
(($(longest_stall_ms 2) <= FREEZE_MS_MAX)) || fail "a write took $(longest_stall_ms 2) ms"
ferry failover --max-freeze 10s || fail "the failover was refused"
compare_trees "$SHM/source" "$TARGET_DIR" "${CMP[@]}"
check_writers "$MOUNT"
stop_ferryfs
test_end
