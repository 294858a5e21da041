#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# baseline.sh [FILES [ROUNDS]]: how long the baseline copy to a directory on tmpfs takes,
# journal and state on a disk, against `cp -a` of the same tree. The two take turns; the
# ratio of the medians is what counts (wanted: at most 1.5). No test: it needs a quiet
# machine.
. "$(dirname "${BASH_SOURCE[0]}")/../lib/common.sh"

FILES=${1:-50000}
ROUNDS=${2:-5}
RATIO_WANTED=1.5

now_ms()
{
	date +%s%3N
}

median()
{
	printf '%s\n' "$@" | sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}

# Asked seldom and in one process: asking takes time from the copy.
is_copied()
{
	local status

	status=$("$FERRY" status "$NAME" --json)
	[[ $status == *'"done": true'* && $status =~ '"backlog": {'[[:space:]]+'"objects": 0,' ]]
}

# Prints ms. The clock starts before ferryfs does, as it does for cp.
copy_with_ferryfs()
{
	local start

	mkdir "$SHM/target"
	start=$(now_ms)
	start_ferryfs "$SHM/source" "$SHM/target" >/dev/null
	until is_copied; do
		sleep 0.1
	done
	TOOK_MS=$(($(now_ms) - start))
	stop_ferryfs
	rm -rf "$T/state" "$SHM/target"
}

copy_with_cp()
{
	local start

	mkdir "$SHM/target"
	start=$(now_ms)
	cp -a "$SHM/source/." "$SHM/target"
	TOOK_MS=$(($(now_ms) - start))
	rm -rf "$SHM/target"
}

test_begin 1800
make_tree dir "$SHM/source" "$FILES" $((FILES / 49)) 1
ferryfs_ms=() cp_ms=()
for ((round = 0; round < ROUNDS; round++)); do
	copy_with_cp
	cp_ms+=("$TOOK_MS")
	copy_with_ferryfs
	ferryfs_ms+=("$TOOK_MS")
	say "cp -a ${cp_ms[-1]} ms, ferryfs ${ferryfs_ms[-1]} ms"
done
printf 'medians of %s rounds: cp -a %s ms, ferryfs %s ms, ratio %s (wanted: at most %s)\n' \
	"$ROUNDS" "$(median "${cp_ms[@]}")" "$(median "${ferryfs_ms[@]}")" \
	"$(awk -v a="$(median "${ferryfs_ms[@]}")" -v b="$(median "${cp_ms[@]}")" \
		'BEGIN { printf "%.2f", a / b }')" "$RATIO_WANTED"
test_end
