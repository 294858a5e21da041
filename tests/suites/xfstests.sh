#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# xfstests.sh [generic/NNN]...: the group `quick` of xfstests' generic tests, on ext4, then on
# mounts of ferryfs. Many say by themselves that a file system is not for them (no block
# device, no quota). DIR/xfstests is the built source tree. It needs /sbin/mount.fuse, in
# whose place mount(8) is given our mount.ferryfs, and users of its own: both in our
# namespace only.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

LIMIT_S=900	# generic/069 makes three million writes
CHUNK=20	# tests that one run of `check` makes

# They take the machine's time, not the file system's, are for the devices below it, or for
# what the FUSE protocol has no request for: reflinks, extent maps.
LEFT_OUT='dangerous|shutdown|soak|stress|thin|dedupe|quota|freeze|encrypt|verity|swap|mkfs|log|recoveryloop|clone|fiemap|fiexchange|atomicwrites|casefold'

prepare()
{
	cp -a "$SUITES/xfstests" "$T/xfstests"
	sed -i "s/exec \.\/\$seq/exec timeout -k 10 $LIMIT_S .\/\$seq/" "$T/xfstests/check"
	sed -i 's/fuse.ceph-fuse\/ceph-fuse/fuse.ferryfs\/fuse/' "$T/xfstests/common/rc"
	mkdir -p "$T"/mnt/{test,scratch} "$T"/source/{test,scratch} "$T/target/copies" "$T/results"
	chmod 777 "$T"/source/{test,scratch}

	cp /etc/passwd "$T/passwd"
	cp /etc/group "$T/group"
	local id=7500 user
	for user in fsgqa fsgqa2 123456-fsgqa; do
		id=$((id + 1))
		grep -q "^$user:" "$T/passwd" ||
			printf '%s:*:%d:%d::/tmp:/bin/bash\n' "$user" $id $id >>"$T/passwd"
		grep -q "^$user:" "$T/group" || printf '%s:x:%d:\n' "$user" $id >>"$T/group"
	done
	mount --bind "$T/passwd" /etc/passwd
	mount --bind "$T/group" /etc/group
	[[ -e /sbin/mount.fuse ]] || fail "there is no /sbin/mount.fuse (package fuse3)"
	mount --bind "$HERE/mount.ferryfs" "$(realpath /sbin/mount.fuse)"
	# Some of them take paths of temporary files apart at a dot.
	mount --bind "$TMPDIR" /mnt
	export TMPDIR=/mnt
	export FERRYFS FERRY SUITE_SOURCES=$T/source SUITE_COPIES=$T/target/copies
}

list_tests()
{
	awk -v out="(^| )($LEFT_OUT)( |$)" '/ quick( |$)/ && $0 !~ out { print "generic/" $1 }' \
		"$T/xfstests/tests/generic/group.list"
}

# write_config FSTYP TEST_DEV SCRATCH_DEV [SUBTYPE]
write_config()
{
	cat >"$T/config" <<-END
		export FSTYP=$1
		export TEST_DEV=$2 SCRATCH_DEV=$3
		export TEST_DIR=$T/mnt/test SCRATCH_MNT=$T/mnt/scratch
		export RESULT_BASE=$T/results/$SIDE
		export FUSE_SUBTYP=${4:-}
	END
	export HOST_OPTIONS=$T/config
}

# names LABEL OUTPUT: what the summary of `check` names after that label.
names()
{
	sed -n "s/^$1: *//p" "$2" | tr ' ' '\n' | sed '/^$/d' | sort -u
}

run_chunk()
{
	local output=$T/out/check name

	(cd "$T/xfstests" && suite_run $((CHUNK * LIMIT_S)) "$output" ./check "$@") || true
	names Ran "$output" >"$T/ran"
	names Failures "$output" >"$T/failures"
	names 'Not run' "$output" >"$T/not-run"
	for name; do
		if grep -qxF "$name" "$T/failures"; then
			suite_note "$SIDE" failed "$name"
			printf '%s: %s failed\n' "$SIDE" "$name"
			[[ $SIDE == plain ]] ||
				sed -n "\\,^$name ,,\\,^generic/,p" "$output" | head -n 25
		elif grep -qxF "$name" "$T/not-run"; then
			suite_note "$SIDE" skipped "$name"
		elif grep -qxF "$name" "$T/ran"; then
			suite_note "$SIDE" passed "$name"
		else
			suite_note "$SIDE" failed "$name"
			printf '%s: %s was not come to: %s\n' "$SIDE" "$name" "$(tail -n 2 "$output")"
		fi
	done
	umount "$T/mnt/scratch" "$T/mnt/test" 2>/dev/null || true
}

run_tests()
{
	local tests

	mkdir -p "$T/results/$SIDE"
	while mapfile -t -n "$CHUNK" tests && ((${#tests[@]} > 0)); do
		run_chunk "${tests[@]}"
	done <"$1"
	say "$SIDE: $(suite_count "$SIDE")"
}

suite_needs xfstests/check xfstests/tests/generic/group.list
suite_begin 7200
prepare
if (($#)); then
	printf '%s\n' "$@"
else
	list_tests
fi >"$T/tests"
say "$(wc -l <"$T/tests") tests"

SIDE=mount
write_config fuse "$NAME-test" "$NAME-scratch" .ferryfs
run_tests "$T/tests"

# What cannot run on the mount, or passes there, says nothing more on ext4.
SIDE=plain
loop_disk plain-test
loop_disk plain-scratch
umount "$T/plain-test" "$T/plain-scratch"
write_config ext4 "${LOOPS[-2]}" "${LOOPS[-1]}"
noted mount passed >"$T/useful"
noted mount failed >>"$T/useful"
run_tests "$T/useful"
suite_end
