#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# fsstress of xfstests: processes that do whatever a file system can do to one tree,
# while it is migrated. After each round the mount is compared with the tree beneath it;
# after a failover, with the target; one failover is made amid the operations.
# DIR/xfstests holds the built source tree (here: ltp/fsstress).
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

SEED=${FERRYFS_SEED:-$RANDOM}
OPERATIONS=${FERRYFS_FSSTRESS_OPERATIONS:-1500}	# of each process
LIMIT_S=400

# NAME PROCESSES OPTION...
ROUNDS=(
	"one 1"
	"four 4"
	"sixteen 16"
	"names 8 -f creat=20 -f link=10 -f rename=20 -f rexchange=20 -f unlink=10 -f rmdir=5 -f mkdir=10"
	"data 8 -f write=20 -f mwrite=20 -f dwrite=20 -f awrite=10 -f truncate=20 -f punch=10 -f zero=10 -f collapse=10 -f insert=10 -f copyrange=10"
	"attributes 8 -f chown=20 -f setfattr=20 -f removefattr=10 -f setattr=10 -f creat=10 -f symlink=10"
)

stress()
{
	local seed=$1 name=$2 processes=$3
	shift 3

	mkdir -p "$WORK/$name"
	suite_run "$LIMIT_S" "$T/out/$name" "$SUITES/xfstests/ltp/fsstress" -d "$WORK/$name" \
		-n "$OPERATIONS" -p "$processes" -s "$seed" "$@"
}

# judge NAME STATUS DIR: the round of that name has ended, and the mount shows what is in DIR.
judge()
{
	local outcome=passed

	(($2 == 0)) || outcome=failed
	bounded 300 "$TOOLS/treecmp" "$MOUNT" "$3" --ignore "$LIMBO" >"$T/treecmp.out" ||
		outcome=failed
	suite_note mount "$outcome" "$1"
	[[ $outcome == passed ]] || {
		printf '%s: ended with %d; of it and of the comparison:\n' "$1" "$2"
		tail -n 10 "$T/out/$1"
		tail -n 20 "$T/treecmp.out"
	}
	say "$1: $outcome"
}

rounds()
{
	local round status i=0

	for round in "${ROUNDS[@]}"; do
		i=$((i + 1))
		status=0
		stress $((SEED + i)) $round || status=$?
		judge "${round%% *}" "$status" "$BENEATH"
	done
}

# The operations go on from the target.
round_with_failover()
{
	local status=0 pid

	stress "$SEED" failover 8 &
	pid=$!
	HELPERS+=("$pid")
	sleep 3
	ferry failover --max-freeze 20s || fail "the failover was refused"
	[[ -e /proc/$pid ]] || say "the operations were over before the failover"
	wait "$pid" || status=$?
	judge failover "$status" "$TARGET_DIR"
}

suite_needs xfstests/ltp/fsstress
suite_begin 3000
say "seed $SEED"
suite_mount
rounds
suite_unmount

rm -rf "${T:?}/source/served" "${T:?}/target/copy" "${T:?}/state"
suite_mount
round_with_failover
stop_ferryfs
suite_end
