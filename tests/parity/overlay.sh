#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# overlay.sh [opens-full|writeback]: the overlay over a directory of the local file system, with
# no target: every case of `parity` says the same there and in a plain directory beside it.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

FACTS='%P %i %m %n %U:%G %y %s %l'
TIMES=' %T@'
case ${1:-} in
opens-full) export OVERLAY_OPENS_FULL=1 ;;
writeback)
	export OVERLAY_WRITEBACK=1
	TIMES= # the kernel keeps its own, and gives those of a file just made as they are
	;;
esac
overlay_begin
overlay_start
timeout 280 "$PROGRAMS/parity" "$DIR/plain" "$DIR/mnt"

# What the mount shows is what is below it, and nothing is left of what was unlinked.
list()
{
	(cd "$1" && find . -printf "$FACTS$TIMES\n" | sort)
}
sync -f "$DIR/mnt"
diff <(list "$DIR/mnt") <(list "$DIR/source")
wait_for_stat orphans 0
overlay_stop
