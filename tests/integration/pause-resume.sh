#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# While it is paused nothing is copied, the workload goes on, and the backlog grows;
# resumed, it converges.
. "$(dirname "${BASH_SOURCE[0]}")/../lib/common.sh"

test_begin 120
make_target dir
make_tree dir "$SHM/source" 2000 50 1
start_ferryfs "$SHM/source" "$TARGET"
start_writer 1 mix
start_writer 2 churn
wait_converged 60

ferry pause || fail "'ferry pause' failed"
status_is paused true || fail "status does not say that it is paused"
sleep 1
touch "$T/paused"
before=$(find "$TARGET_DIR" -printf '%p %s %C@\n' | sort | md5sum)
sleep 3
after=$(find "$TARGET_DIR" -printf '%p %s %C@\n' | sort | md5sum)
[[ $before == "$after" ]] || fail "the target changed while it was paused"
(($(status_get backlog.objects) + $(status_get backlog.names) > 0)) ||
	fail "no backlog after writing for 3 s"
writers_are_alive

ferry resume || fail "'ferry resume' failed"
wait_converged 60
stop_writers
ferry failover || fail "the failover was refused"
stop_ferryfs
compare_trees "$SHM/source" "$TARGET_DIR" "${CMP[@]}"
test_end
