#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# How many messages the kernel sends for what: none for what it has cached, and no more than
# known for the rest. Round trips are what a FUSE file system costs.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

FILES=100
METADATA=$FERRYFS_BINARY_DIR/tests/bench/metadata

requests()
{
	local word value _

	read -r word value _ <<<"$(overlay_ask stats)"
	[[ $word == requests ]] || fail "no statistics"
	printf '%s\n' "$value"
}

# costs MOST WHAT COMMAND...: at most MOST messages for each of the files; FORGETs and RELEASEs
# are asynchronous and may come with the next.
costs()
{
	local most=$1 what=$2 before after
	shift 2

	before=$(requests)
	"$@" >/dev/null
	after=$(requests)
	printf '%s: %d messages for %d files\n' "$what" $((after - before)) $FILES
	((after - before <= most * FILES + 20)) || fail "$what: more than $most messages a file"
}

overlay_begin
overlay_start
mkdir "$DIR/mnt/d"
# GETATTR of the parent, LOOKUP, MKNOD, GETXATTR of the capability, WRITE
costs 5 'create, write, close' "$METADATA" create "$DIR/mnt/d" $FILES 0
costs 1 'the first reading' "$METADATA" read "$DIR/mnt/d" $FILES 0
costs 0 'open, read, close' "$METADATA" read "$DIR/mnt/d" $FILES 0
costs 1 'the first stat after reading' "$METADATA" stat "$DIR/mnt/d" $FILES 0
costs 0 'stat' "$METADATA" stat "$DIR/mnt/d" $FILES 0
costs 0 'the first listing' find "$DIR/mnt/d" -type f
for ((i = 0; i < FILES; i++)); do
	mkdir "$DIR/mnt/d/dir$i"
done
costs 6 'the first walk' find "$DIR/mnt/d" -type f
costs 3 'the second walk, which asks for the times of access' find "$DIR/mnt/d" -type f
costs 2 'a walk' find "$DIR/mnt/d" -type f # OPENDIR and RELEASEDIR
rmdir "$DIR"/mnt/d/dir*
# GETATTR of the parent, UNLINK, FORGET
costs 3 'unlink' "$METADATA" unlink "$DIR/mnt/d" $FILES 0
overlay_stop
