#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# tar, with ACLs, xattrs and holes: a tree of everything goes into the mount and out of it
# again, before a failover, in its midst, and after it; --compare finds no difference.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

COUNT=$(long_or_short 40000 1500)
TAR=(tar --acls --xattrs "--xattrs-include=*" --sparse --numeric-owner)
pack()
{
	"${TAR[@]}" -C "$1" -cf "$2" . 2>"$T/said" || fail "tar -c of '$1': $(head "$T/said")"
}

unpack()
{
	mkdir -p "$2"
	"${TAR[@]}" -C "$2" -xpf "$1" 2>"$T/said.$BASHPID" || fail "tar -x to '$2': $(head "$T/said.$BASHPID")"
}

compare()
{
	"${TAR[@]}" -C "$2" --compare -f "$1" >"$T/said" 2>&1 || fail "'$2' is not '$1': $(head "$T/said")"
}

apps_begin 120
make_tree dir "$SHM/made" "$COUNT" 40 "$SEED"
# Holes are read by tar like anything else.
find "$SHM/made" -type f -size +32M -delete
for i in 1 2 3; do
	dd if=/dev/urandom of="$SHM/made/sparse-$i" bs=5000 count=1 seek=$((i * 700)) status=none
	truncate -s 16M "$SHM/made/sparse-$i"
done
# What tar cannot carry is taken out by a turn through it.
pack "$SHM/made" "$T/first.tar"
unpack "$T/first.tar" "$SHM/plain"
pack "$SHM/plain" "$T/plain.tar"

unpack "$T/plain.tar" "$WORK/before"
compare "$T/plain.tar" "$WORK/before"
compare_trees "$SHM/plain" "$WORK/before"
pack "$WORK/before" "$T/before.tar"
compare "$T/before.tar" "$SHM/plain"

helper unpack "$T/plain.tar" "$WORK/during"
into=${HELPERS[-1]}
helper pack "$WORK/before" "$T/during.tar"
out=${HELPERS[-1]}
apps_failover
helper_ends "$into" "tar -x"
helper_ends "$out" "tar -c"
compare "$T/plain.tar" "$WORK/during"
compare_trees "$SHM/plain" "$WORK/during"
compare_trees "$SHM/plain" "$BEYOND/during"
compare "$T/during.tar" "$SHM/plain"

unpack "$T/plain.tar" "$WORK/after"
for dir in "$WORK/after" "$BEYOND/during" "$BEYOND/before"; do
	kib=$(du -ck "$dir"/sparse-? | tail -n 1 | cut -f1)
	((kib < 1024)) || fail "$kib KiB are where there should be holes in '$dir'"
done
compare_trees "$SHM/plain" "$WORK/after"
compare_trees "$SHM/plain" "$BEYOND/before"
compare_trees "$SHM/plain" "$BELOW/before"
apps_end
