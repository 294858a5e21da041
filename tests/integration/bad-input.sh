#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# What ferryfs must refuse: with a clear error that names the thing, exit code 1, and
# nothing mounted, written or left behind.
. "$(dirname "${BASH_SOURCE[0]}")/../lib/common.sh"

CASES=0

# All that a refused start could leave: mounts, sockets, processes, files.
snapshot()
{
	mounts_below
	ls -A /run/ferryfs 2>/dev/null | grep -F "$NAME" || true
	pgrep -f -- "ferryfs .*$NAME" || true
	find "$T" -path "$T/out" -prune -o -path '*/proc/*' -prune -o -path "$T/server*" -prune -o \
		-path "$T/other-state*" -prune -o -type d -printf '%p\n' -o -printf '%p %y %s %T@\n' | sort
}

# refused PATTERN ARGUMENT...: ferryfs with these arguments fails, and says PATTERN.
refused()
{
	local pattern=$1 status=0
	shift

	snapshot >"$T/out/before"
	bounded 60 "$FERRYFS" --name "$NAME" --state "$T/state" "$@" >"$T/out/log" 2>&1 || status=$?
	snapshot >"$T/out/after"
	((status == 1)) || fail "exit code $status, not 1: ferryfs $*: $(cat "$T/out/log")"
	grep -qE -- "$pattern" "$T/out/log" || fail "ferryfs $* says: $(cat "$T/out/log")"
	diff -u "$T/out/before" "$T/out/after" || fail "ferryfs $* left something behind"
	((++CASES))
	printf '  %s\n' "$(grep -E -- "$pattern" "$T/out/log" | head -n 1)"
}

usage_error()
{
	local status=0

	bounded 10 "$FERRYFS" "$@" >"$T/out/log" 2>&1 || status=$?
	((status == 2)) || fail "exit code $status, not 2: ferryfs $*"
	[[ -s $T/out/log ]] || fail "ferryfs $* says nothing"
	((++CASES))
}

try_usage()
{
	usage_error
	usage_error "$S"
	usage_error "$S" "$D" "$D"
	usage_error --nonsense "$S" "$D"
	usage_error --name ../x "$S" "$D"
	usage_error --workers 0 "$S" "$D"
	usage_error "$S" smb://host/share
	usage_error nfs://host/export "$D"
}

try_source()
{
	refused "SOURCE '$T/missing'" "$T/missing" "$D"
	refused 'is not a directory' "$T/file" "$D"
	mkdir "$T/proc"
	mount -t proc proc "$T/proc"
	refused 'handles' "$T/proc/sys" "$D"
	umount "$T/proc"
	rmdir "$T/proc"
	mount -t tmpfs nested "$S/sub"
	refused 'mounted in it' "$S" "$D"
	umount "$S/sub"
}

try_overlap()
{
	mkdir "$S/in" "$T/bound"
	refused 'is inside SOURCE' "$S" "$S/in"
	refused 'is inside TARGET' "$S/in" "$S"
	refused 'same directory' "$S" "$S"
	mount --bind "$S/in" "$T/bound"
	refused 'is inside SOURCE' "$S" "$T/bound"
	umount "$T/bound"
	mount --bind "$S" "$T/bound"
	refused 'same directory' "$S" "$T/bound"
	umount "$T/bound"
	ln -s "$S/in" "$T/link"
	refused 'is inside SOURCE' "$S" "$T/link"
	rm "$T/link"
	rmdir "$S/in" "$T/bound"
	refused 'mount point' --at "$S/sub" "$S" "$D"
	refused 'mount point' --at "$D" "$S" "$D"
	refused 'not empty' --at "$T/full" "$S" "$D"
	refused 'state directory' --state "$S/state" "$S" "$D"
	refused 'state directory' --state "$D/state" "$S" "$D"
	refused 'log' --log "$S/log" "$S" "$D"
	refused 'log' --log "$T/missing/log" "$S" "$D"
}

try_target()
{
	refused "TARGET '$T/missing'" "$S" "$T/missing"
	refused 'TARGET .* is not a directory' "$S" "$T/file"
	refused 'is not empty' "$S" "$T/full"
	refused 'adopt' --adopt "$S" "$T/full"

	mkdir "$T/ro" "$T/brim"
	mount -t tmpfs -o ro read-only "$T/ro"
	refused '[Rr]ead-only' "$S" "$T/ro"
	umount "$T/ro"
	# Full of blocks: an empty directory, for all the room is beside it.
	mount -t tmpfs -o size=64k,mode=755 small "$T/brim"
	mkdir "$T/brim/target"
	head -c 1M /dev/zero >"$T/brim/filler" 2>/dev/null || true
	refused 'No space left|full' "$S" "$T/brim/target"
	umount "$T/brim"
	rmdir "$T/ro" "$T/brim"
}

try_nfs()
{
	refused 'refused|cannot' "$S" 'nfs://127.0.0.1/export?nfsport=1&mountport=1'
	refused 'nfs://' "$S" 'nfs://'
	refused 'nfs://|export' "$S" 'nfs://127.0.0.1'
	ganesha_available 2>/dev/null || return 0

	mkdir "$SHM/squashed" "$SHM/ro" "$SHM/full"
	chmod 1777 "$SHM/squashed"
	mkdir "$SHM/full/content"
	SERVER_DIRS+=("$T/server1" "$T/server2" "$T/server3")
	ganesha_start "$T/server1" "$SHM/squashed" squash=Root_Squash
	refused 'squash' "$S" "$GANESHA_URL"
	refused "export|mount" "$S" "${GANESHA_URL/export/nothing-here}"
	ganesha_start "$T/server2" "$SHM/ro" access=RO
	refused '[Rr]ead-only' "$S" "$GANESHA_URL"
	ganesha_start "$T/server3" "$SHM/full"
	refused 'is not empty' "$S" "$GANESHA_URL"
}

try_state()
{
	mkdir "$T/strange" "$T/open"
	touch "$T/strange/something"
	refused 'no state directory' --state "$T/strange" "$S" "$D"
	chmod 777 "$T/open"
	refused 'written by others' --state "$T/open" "$S" "$D"
	refused 'state directory' --state "$T/file" "$S" "$D"
	rm -r "$T/strange" "$T/open"

	# State of one pair does not serve another one.
	bounded 60 "$FERRYFS" --name "$NAME-1" --state "$T/other-state" "$T/other" "$T/other-target"
	bounded 30 "$FERRY" stop "$NAME-1"
	refused 'another pair|belongs to' --state "$T/other-state" "$S" "$D"
	refused 'another pair|belongs to' --state "$T/other-state" "$T/other" "$D"

	# Nobody knows which side counts.
	mv "$T/other-state/phase" "$T/out/phase"
	refused 'phase record .* is gone' --state "$T/other-state" "$T/other" "$T/other-target"
	head -c 8192 /dev/zero >"$T/other-state/phase"
	refused 'phase record .* is damaged' --state "$T/other-state" "$T/other" "$T/other-target"
	mv "$T/out/phase" "$T/other-state/phase"
}

# While one is running.
try_second()
{
	bounded 60 "$FERRYFS" --name "$NAME-1" --state "$T/other-state" "$T/other" "$T/other-target"
	refused 'already being migrated' "$T/other" "$D"
	refused 'already being migrated' --name "$NAME-1" "$T/other" "$D"
	refused 'is the name of' --name "$NAME-1" "$S" "$D"
	refused 'in use by process' --state "$T/other-state" "$S" "$D"
	refused 'inside the mount|in the way' "$T/other/sub" "$D"
	refused 'in the way' "$S" "$T/other-target/sub"
	refused 'in the way|already being migrated' "$S" "$T/other"
	refused 'in the way' "$T/other-target/sub" "$D"
	bounded 30 "$FERRY" status "$NAME-1" >/dev/null || fail "the one that runs was disturbed"
	bounded 30 "$FERRY" stop "$NAME-1"
}

try_user()
{
	cp "$FERRYFS" "$T/out/ferryfs"
	chmod 755 "$T/out"
	FERRYFS="$T/out/as-nobody"
	printf '#!/bin/sh\nexec setpriv --reuid 65534 --clear-groups %q "$@"\n' "$T/out/ferryfs" >"$FERRYFS"
	chmod 755 "$FERRYFS"
	refused 'only root' "$S" "$D"
}

main()
{
	test_begin 240
	S=$T/source D=$T/target
	mkdir -p "$T/out" "$S/sub" "$D" "$T/full" "$T/other/sub" "$T/other-target"
	echo content | tee "$S/file" "$T/full/something" "$T/other/file" "$T/file" >/dev/null
	try_usage
	try_source
	try_overlap
	try_target
	try_nfs
	try_state
	try_second
	try_user
	say "$CASES cases"
	test_end
}

main
