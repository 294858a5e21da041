#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The NFS store against real servers: one as a target should be, which the program also
# kills and stops, and some that lack what a target needs.
#
# Usage: store-nfs.sh PROGRAM [FILTER]
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/../lib/ganesha.sh"

TEMPORARY=$(mktemp -d -t store-nfs.XXXXXX)

clean_up()
{
	local name

	for name in good squashed read-only full; do
		ganesha_stop "$TEMPORARY/$name"
	done
	if mountpoint -q "$TEMPORARY/full-export"; then
		umount "$TEMPORARY/full-export"
	fi
	rm -rf "$TEMPORARY"
}

# A file system of a few blocks, filled to the brim.
make_full()
{
	truncate -s 8M "$TEMPORARY/full-image"
	mkfs.ext4 -q -N 64 "$TEMPORARY/full-image"
	mkdir "$TEMPORARY/full-export"
	mount -o loop "$TEMPORARY/full-image" "$TEMPORARY/full-export" || return
	dd if=/dev/zero of="$TEMPORARY/full-export/filler" bs=4k status=none 2>/dev/null || true
	sync -f "$TEMPORARY/full-export"
}

main()
{
	ganesha_available || exit 77
	trap clean_up EXIT
	trap 'exit 143' TERM INT

	ganesha_start "$TEMPORARY/good" "$TEMPORARY/export" restart=1
	export NFS_URL=$GANESHA_URL NFS_DIR=$TEMPORARY/good
	ganesha_start "$TEMPORARY/squashed" "$TEMPORARY/squashed-export" squash=Root_Squash
	chmod 1777 "$TEMPORARY/squashed-export"
	export NFS_SQUASHED_URL=$GANESHA_URL
	ganesha_start "$TEMPORARY/read-only" "$TEMPORARY/read-only-export" access=RO
	export NFS_READ_ONLY_URL=$GANESHA_URL
	if make_full; then
		ganesha_start "$TEMPORARY/full" "$TEMPORARY/full-export"
		export NFS_FULL_URL=$GANESHA_URL
	else
		printf 'no loop device: not tried with a full target\n'
	fi
	"$@"
}

main "$@"
