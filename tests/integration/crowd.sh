#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# crowd.sh dir|nfs SECONDS: crowds on the same names, for so long each. Nobody ever sees
# a name that the workload has not made, neither on the source nor on the target; a file
# without a name appears on the target when it gets one; what was saved last is there.
. "$(dirname "${BASH_SOURCE[0]}")/../lib/common.sh"

KIND=$1
SECONDS_EACH=$2
CROWD=$BINARY/tests/parity/crowd

# Looks at both sides all the time for names that nobody has made.
watch_names()
{
	while [[ ! -e $T/watched-enough ]]; do
		find "$SHM/source" "$TARGET_DIR" \( -name '.nfs*' -o -name '.fuse_hidden*' \
			-o -name '.ferryfs*' -o -name '*~' \) ! -path "$TARGET_DIR/$LIMBO" -print 2>/dev/null
		sleep 0.05
	done >"$T/strange"
}

# named_files DIR: what `crowd nameless` has named is there, and right.
named_files()
{
	local i

	[[ $(find "$1" -name 'named-*' | wc -l) == 10 ]] || fail "in '$1': $(ls -A "$1")"
	for ((i = 0; i < 20; i += 4)); do
		[[ $(cat "$1/named-$i") == "nameless $i" && $(cat "$1/named-$((i + 1))") == "nameless $((i + 1))" ]] ||
			fail "'$1/named-$i' is not what was written"
	done
}

test_begin $((180 + 8 * SECONDS_EACH))
make_target "$KIND"
mkdir "$SHM/source" "$T/mount"
start_ferryfs "$SHM/source" "$TARGET" --at "$T/mount"
mkdir "$MOUNT"/{unlinked,saved,owners,nameless,later}
watch_names &
HELPERS+=($!)

bounded 300 "$CROWD" "$MOUNT/unlinked" unlinked "$SECONDS_EACH"
[[ -z $(ls -A "$MOUNT/unlinked") ]] || fail "left: $(ls -A "$MOUNT/unlinked")"
bounded 300 "$CROWD" "$MOUNT/saved" saved $((SECONDS_EACH * 500))
bounded 300 "$CROWD" "$MOUNT/owners" owners $((SECONDS_EACH * 200))
[[ -z $(find "$MOUNT/owners" -mindepth 1 -uid 0 ! -name end) ]] || fail "something is root's"

# ---- without a name ----
"$CROWD" "$MOUNT/nameless" nameless "$T/ready" "$T/go" &
pid=$!
wait_for 30 "the files to be open" test -e "$T/ready"
wait_converged 60
[[ -z $(ls -A "$TARGET_DIR/nameless") ]] || fail "has a name: $(ls -A "$TARGET_DIR/nameless")"
touch "$T/go"
wait "$pid" || fail "files without names"
wait_converged 60
wait_for 10 "the names on the target" test -e "$TARGET_DIR/nameless/named-17"
named_files "$TARGET_DIR/nameless"

# ---- through the failover ----
"$CROWD" "$MOUNT/later" nameless "$T/ready2" "$T/go2" &
pid=$!
wait_for 30 "the files to be open" test -e "$T/ready2"
ferry failover --max-freeze 10s || fail "the failover was refused"
compare_trees "$SHM/source" "$TARGET_DIR" "${CMP[@]}"
touch "$T/go2"
wait "$pid" || fail "files without names after the failover"
named_files "$MOUNT/later"
named_files "$TARGET_DIR/later"
[[ $(cat "$TARGET_DIR/saved/saved") == "saved $((SECONDS_EACH * 500))" ]] || fail "not what was saved last"
[[ ! -e $TARGET_DIR/saved/saved.tmp ]] || fail "left: the temporary name"
bounded 300 "$CROWD" "$MOUNT/unlinked" unlinked "$SECONDS_EACH"
[[ -z $(ls -A "$MOUNT/unlinked") ]] || fail "left: $(ls -A "$MOUNT/unlinked")"
[[ -z $(ls -A "$TARGET_DIR/unlinked") ]] || fail "left: $(ls -A "$TARGET_DIR/unlinked")"

touch "$T/watched-enough"
wait "${HELPERS[0]}" || true
HELPERS=()
[[ ! -s $T/strange ]] || fail "seen: $(sort -u "$T/strange" | head)"
stop_ferryfs
[[ -z $(find "$TARGET_DIR" -path "$TARGET_DIR/$LIMBO/*") ]] || fail "limbo is not empty"
test_end
