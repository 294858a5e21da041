#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# walk.sh FILES: what the kernel knows of a tree costs the daemon memory while the kernel
# knows it, and no longer: after a walk over FILES files, and when the kernel has dropped
# its caches, resident memory is back, but for what the journal has filled its bounds with. No descriptor is kept for a file
# because it was looked at, and few because it was read.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

FILES=$1
NODE_BYTES=40			# given back for each object, at least
KEPT_KIB_MAX=$((96 * 1024))	# by the journal, beside 1.3 times what was used before
DESCRIPTORS_MAX=2000
TURNS=$((FILES > 1000000 ? 1 : 2))

resident_kib()
{
	awk '$1 == "VmRSS:" { print $2 }' "/proc/$DAEMON_PID/status"
}

descriptors()
{
	find "/proc/$DAEMON_PID/fd" -mindepth 1 | wc -l
}

nodes()
{
	status_get served.nodes
}

kernel_has_forgotten()
{
	echo 2 >/proc/sys/vm/drop_caches
	(($(nodes) < FILES / 50))
}

memory_is_back()
{
	local now_kib

	now_kib=$(resident_kib)
	((now_kib <= MOST_KIB - MOST_NODES * NODE_BYTES / 1024)) &&
		((now_kib <= BEFORE_KIB * 13 / 10 + KEPT_KIB_MAX))
}

# The kernel may drop some while it looks at others: what counts is the most at a time.
walk()
{
	local now

	MOST_KIB=0
	MOST_NODES=0
	helper "$APPS/many" --walk "$WORK" >"$T/seen"
	while [[ $(process_state "${HELPERS[-1]}") != Z ]]; do
		sleep 0.3
		now=$(nodes)
		((now <= MOST_NODES)) || MOST_NODES=$now
		now=$(resident_kib)
		((now <= MOST_KIB)) || MOST_KIB=$now
	done
	helper_ends "${HELPERS[-1]}" "the walk"
	(($(<"$T/seen") == FILES + (FILES + 999) / 1000)) || fail "$(<"$T/seen") objects were seen"
}

test_begin "$((FILES / 3000 + 120))"
[[ -w /proc/sys/vm/drop_caches ]] || {
	echo "cannot make the kernel drop its caches" >&2
	exit 77
}
apps_start
ferry pause # the copies are not what is measured, and need room
"$APPS/many" "$BELOW" "$FILES"
find "$MOUNT/ballast" >"$T/found"
wait_for 30 "the kernel to forget" kernel_has_forgotten
BEFORE_KIB=$(resident_kib)
say "$BEFORE_KIB KiB before"

for ((turn = 1; turn <= TURNS; turn++)); do
	walk
	find "$MOUNT/ballast" -type f -size -64k -exec head -qc 1 '{}' + | wc -c >"$T/read"
	count=$(descriptors)
	say "walk $turn: $MOST_KIB KiB for $MOST_NODES nodes, $count descriptors"
	((count <= DESCRIPTORS_MAX)) || fail "$count descriptors are open"
	((MOST_NODES >= FILES / 2)) || fail "the kernel knew $MOST_NODES objects only"
	wait_for 120 "the kernel to forget" kernel_has_forgotten
	wait_for 5 "memory to be given back" memory_is_back
	say "$(resident_kib) KiB for $(nodes) nodes, $(descriptors) descriptors"
done
stop_ferryfs
test_end
