#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# migrate.sh dir|nfs flat|tree: a data set of everything a file system can hold arrives
# complete while four writers change it. They stop, the failover is made, and an
# independent comparison of source and target finds no difference.
. "$(dirname "${BASH_SOURCE[0]}")/../lib/common.sh"

KIND=$1
SHAPE=$2
SEED=${FERRYFS_SEED:-$RANDOM}
CONVERGE_S=10		# the writers go on for so long after the baseline

if [[ $SHAPE == flat ]]; then
	FILES=${FERRYFS_FILES:-50000} DIRS=flat SHARED=flat
else
	FILES=${FERRYFS_FILES:-48000} DIRS=${FERRYFS_DIRS:-976} SHARED=deep
fi

test_begin 420
make_target "$KIND"
make_tree "$KIND" "$SHM/source" "$FILES" "$DIRS" "$SEED"
start_ferryfs "$SHM/source" "$TARGET"

WRITER_OPTIONS+=(--shared "$SHARED" --writers 4 --seed "$SEED")
for id in 1 2 3; do
	start_writer $id mix
done
start_writer 4 churn
wait_for 300 "the baseline" status_is baseline.done true
say "the baseline is done: $(status_get baseline)"
# Names of one inode are one object.
(($(status_get baseline.objects_done) >= FILES * 9 / 10)) || fail "it was said too early"
sleep "$CONVERGE_S"
writers_are_alive
stop_writers
check_writers "$MOUNT"

ferry failover --max-freeze 10s || fail "the failover was refused"
say "failed over, frozen for $(status_get last_freeze_ms) ms"
status_is phase guard || fail "phase is '$(status_get phase)', not 'guard'"
if [[ $KIND == nfs ]]; then
	(($(status_get not_carried.xattrs) > 0)) || fail "status names no xattrs as not carried"
	(($(status_get not_carried.acls) > 0)) || fail "status names no ACLs as not carried"
else
	status_is not_carried.xattrs 0 || fail "status says that xattrs were not carried"
fi
status_is errors.count 0 || fail "errors: $(status_get errors)"
stop_ferryfs

compare_trees "$SHM/source" "$TARGET_DIR" "${CMP[@]}"
check_writers "$TARGET_DIR"
test_end
