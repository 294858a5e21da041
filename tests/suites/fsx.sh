#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# fsx of xfstests: random operations on one file, each compared with a copy in memory.
# One profile after the other, each with an own seed, while the file is migrated.
# DIR/xfstests holds the built source tree (here: ltp/fsx).
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

OPERATIONS=${FERRYFS_FSX_OPERATIONS:-20000}
SEED=${FERRYFS_SEED:-$RANDOM}
LIMIT_S=300

# NAME OPTION...; -N and -S are added.
PROFILES=(
	"buffered -R -W"
	"mapped"
	"mapped-synced -y"
	"mapped-dropped -f"
	"large -l 16000000 -o 1000000"
	"no-fallocate -F -H -z -C -I"
	"punch-collapse-insert -l 1000000 -o 200000"
	"append-truncate -l 600000 -t 1 -w 1 -r 1 -s 1"
	"page-aligned -r 4096 -w 4096 -t 4096"
	"direct -Z -R -W -r 4096 -w 4096"
	"direct-blocks -Z -R -W -r 512 -w 512 -t 512"
	"direct-aio -A -Z -R -W -r 4096 -w 4096"
	"aio -A"
	"uring -U"
	"lite -L"
	"checked -X -N 2000"
	"polluted -e 1"
)

run_profiles()
{
	local profile name i=0

	for profile in "${PROFILES[@]}"; do
		name=${profile%% *}
		profile+=" "
		i=$((i + 1))
		# --lite works on a file that is there.
		head -c 262144 /dev/zero >"$WORK/$name"
		if suite_run "$LIMIT_S" "$T/out/fsx" "$SUITES/xfstests/ltp/fsx" -q \
			-N "$OPERATIONS" -S $((SEED + i)) -P "$T/out" ${profile#* } "$WORK/$name"; then
			suite_note "$SIDE" passed "$name"
		else
			suite_note "$SIDE" failed "$name"
			printf '%s: %s, seed %d:\n' "$SIDE" "$name" $((SEED + i))
			tail -n 20 "$T/out/fsx"
		fi
	done
	say "$SIDE: $(suite_count "$SIDE")"
}

suite_needs xfstests/ltp/fsx
suite_begin 2400
say "seed $SEED"
suite_plain
run_profiles
suite_mount
run_profiles
suite_unmount
suite_end
