#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# parity-target.sh dir|nfs: every case of the parity suite while the target follows, and
# once more after the failover. What the cases leave behind is the same on both sides.
. "$(dirname "${BASH_SOURCE[0]}")/../lib/common.sh"

PARITY=$BINARY/tests/parity/parity

# Names that only ferryfs, libfuse, or a kernel's NFS client would make.
no_strange_names()
{
	find "$@" \( -name '.ferryfs*' -o -name '.nfs*' -o -name '.fuse_hidden*' \) \
		! -path "$TARGET_DIR/$LIMBO" >"$T/strange"
	[[ ! -s $T/strange ]] || fail "not the workload's: $(head "$T/strange")"
}

# What the mount shows is what the target has, but for inode numbers.
list()
{
	(cd "$1" && find . -name "$LIMBO" -prune -o -printf '%P %m %U:%G %y %s %n %l\n' | sort)
}

# The limits of the two kinds of target differ from those of the source: only where both
# sides are local file systems is all the same after the failover.
run_cases()
{
	mkdir -m 777 "$SHM/plain/$1" "$MOUNT/$1"
	timeout 200 "$PARITY" "$SHM/plain/$1" "$MOUNT/$1" >"$T/parity" ||
		fail "$1: $(tail -n 1 "$T/parity"), $(grep -v "^ok" "$T/parity")"
	say "$1: $(tail -n 1 "$T/parity")"
}

test_begin 500
make_target "$1"
mkdir "$SHM/source" "$SHM/plain"
start_ferryfs "$SHM/source" "$TARGET" --at "$(mkdir "$T/mount" && echo "$T/mount")"
run_cases before
wait_converged 60
no_strange_names "$SHM/source" "$TARGET_DIR"
ferry failover --max-freeze 10s || fail "the failover was refused"
compare_trees "$SHM/source" "$TARGET_DIR" "${CMP[@]}"
if [[ $1 == dir ]]; then
	run_cases after
	no_strange_names "$MOUNT" "$TARGET_DIR"
	[[ -z $(diff <(list "$MOUNT") <(list "$TARGET_DIR")) ]] ||
		fail "$(diff <(list "$MOUNT") <(list "$TARGET_DIR") | head)"
fi
stop_ferryfs
test_end
