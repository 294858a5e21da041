#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# overlay-memory.sh [FILES]: what the kernel forgets the overlay forgets too, memory and
# descriptors stay bounded however often a tree is walked; fsync and O_SYNC come through;
# and a large directory is listed, and removed to the last.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

FILES=${1:-6000}

stat_of()
{
	local stats
	stats=" $(overlay_ask stats)"
	stats=${stats#* "$1" }
	printf '%s\n' "${stats%% *}"
}

resident_kib()
{
	awk '$1 == "VmRSS:" { print $2 }' "/proc/$PID/status"
}

walk()
{
	local found

	found=$(find "$DIR/mnt/d" -type f -size -1k -printf '.\n' | wc -l)
	((found == FILES)) || fail "$found files of $FILES were found"
	(($(stat_of nodes) >= FILES)) || fail 'the walk was not seen'
	# Dentries and inodes of all file systems: there is no way to name one.
	sync
	for i in {1..20}; do
		echo 2 >/proc/sys/vm/drop_caches
		(($(stat_of nodes) > FILES / 10)) || return 0
		sleep 0.2
	done
	fail "$(stat_of nodes) nodes are left"
}

overlay_begin
mkdir "$DIR/source/d"
(cd "$DIR/source/d" && seq -f '%06.0f' "$FILES" | xargs touch)
overlay_start

walk
first=$(resident_kib)
walk
walk
walk
last=$(resident_kib)
((last <= first + first / 4 + 4096)) || fail "memory grows from $first to $last KiB"
descriptors=$(ls "/proc/$PID/fd" | wc -l)
((descriptors < 1024)) || fail "$descriptors descriptors are open"

# ---- what is to be durable comes through ----
changes_of()
{
	local before
	before=$(stat_of changes)
	"$@" 2>/dev/null
	echo $(($(stat_of changes) - before))
}

echo x >"$DIR/mnt/f"
plain=$(changes_of dd if=/dev/zero of="$DIR/mnt/f" bs=4k count=4 conv=notrunc)
synced=$(changes_of dd if=/dev/zero of="$DIR/mnt/f" bs=4k count=4 conv=notrunc,fsync)
each=$(changes_of dd if=/dev/zero of="$DIR/mnt/f" bs=4k count=4 conv=notrunc oflag=sync)
data=$(changes_of dd if=/dev/zero of="$DIR/mnt/f" bs=4k count=4 conv=notrunc oflag=dsync)
((synced == plain + 1)) || fail "fsync: $synced changes instead of $plain + 1"
((each == plain + 4 && data == plain + 4)) || fail "O_SYNC: $each, O_DSYNC: $data instead of $plain + 4"
[[ $(changes_of sync "$DIR/mnt/d") == 1 ]] || fail 'fsync of a directory'

# ---- a large directory goes to the last entry ----
find "$DIR/mnt/d" -name '*[02468]' -delete
(($(ls "$DIR/mnt/d" | wc -l) == FILES / 2)) || fail 'not half of the files is left'
rm -rf "$DIR/mnt/d"
[[ ! -e $DIR/mnt/d && ! -e $DIR/source/d ]] || fail "left: $(ls "$DIR/mnt/d" | wc -l)"
overlay_stop
