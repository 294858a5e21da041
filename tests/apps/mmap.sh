#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Programs that map files shared and store into them, half of them with msync, through a
# failover. The mount always shows what was stored; the source has what was synced before the
# freeze; the target has all of it when the maps are gone.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

FILES=2
PHASE_S=$(long_or_short 30 2)

# check_maps DIR [OPTION]...: without --least or --synced exactly.
check_maps()
{
	local dir=$1 i option=() copy
	shift

	for ((i = 0; i < FILES; i++)); do
		option=()
		[[ $# -eq 0 ]] || option=("$1" "$2/$i")
		"$APPS/mapper" "$dir/$i" --state "$T/state.d/$i" --check "${option[@]}" >"$T/checked" 2>&1 ||
			fail "'$dir/$i' is wrong: $(head "$T/checked")"
	done
}

apps_begin 90
mkdir "$T/state.d"
for ((i = 0; i < FILES; i++)); do
	for ((id = 0; id < 4; id++)); do
		sync=()
		((id % 2 == 0)) || sync=(--sync)
		helper "$APPS/mapper" "$WORK/$i" --state "$T/state.d/$i" --id "$id" --until "$T/done" \
			--cold "$T/cold" "${sync[@]}" >"$T/mapper.$i.$id" 2>&1
	done
done
sleep "$PHASE_S"
wait_for 60 "the baseline" status_is baseline.done true
cp -r "$T/state.d" "$T/before"
check_maps "$WORK" --least "$T/before"
check_maps "$BELOW" --synced "$T/before"
touch "$T/cold" # from here on half of it is not stored into any more
sleep 0.5
apps_failover
# What is on the source now was stored by then.
check_maps "$BELOW" --synced "$T/before"
cp -r "$T/state.d" "$T/after"
check_maps "$WORK" --least "$T/after"
sleep "$PHASE_S"
touch "$T/done"
for pid in "${HELPERS[@]}"; do
	helper_ends "$pid" "a mapper"
done
say "rounds of each: $(cat "$T"/mapper.* | cut -d' ' -f1 | tr '\n' ' ')"
check_maps "$WORK"
sync -f "$WORK" # what is stored without a sync is written when the kernel likes
check_maps "$BEYOND"
apps_end
