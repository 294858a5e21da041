#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# handles.sh dir|nfs: what a program has open, mapped, locked or entered goes on working
# through the failover, with the same inode numbers.
. "$(dirname "${BASH_SOURCE[0]}")/../lib/common.sh"

# Each file that $T/handles names has its two lines.
check_lines()
{
	local name

	while read -r name; do
		[[ $(cat "$1/$name") == "$name: first"$'\n'"$name: second" ]] ||
			fail "'$1/$name' is not what was written: $(head -c 200 "$1/$name")"
	done <"$T/handles"
}

test_begin 120
make_target "$1"
mkdir -p "$SHM/source/work"
start_ferryfs "$SHM/source" "$TARGET"

"$TOOLS/handles" "$MOUNT/work" --ready "$T/ready" --go "$T/go" >"$T/handles" 2>"$T/complaints" &
HELPERS+=($!)
wait_for 30 "the files to be open" test -e "$T/ready"
wait_converged 30
ferry failover --max-freeze 5s || fail "the failover was refused"
touch "$T/go"
wait "${HELPERS[0]}" || fail "$(cat "$T/complaints")"
HELPERS=()
check_lines "$MOUNT/work"
find "$MOUNT" -name '.ferryfs*' -o -name '.nfs*' -o -name '.fuse_hidden*' >"$T/shown"
[[ ! -s $T/shown ]] || fail "shows in the mount: $(cat "$T/shown")"
stop_ferryfs
check_lines "$TARGET_DIR/work"
test_end
