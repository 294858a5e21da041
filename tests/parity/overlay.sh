#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The overlay over a directory of the local file system, with no target: every case of
# `parity` says the same there and in a plain directory beside it.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

overlay_begin
overlay_start
timeout 280 "$PROGRAMS/parity" "$DIR/plain" "$DIR/mnt" "$@"

# What the mount shows is what is below it, and nothing is left of what was unlinked.
list()
{
	(cd "$1" && find . -printf '%P %i %m %n %U:%G %y %s %T@ %l\n' | sort)
}
diff <(list "$DIR/mnt") <(list "$DIR/source")
wait_for_stat orphans 0
overlay_stop
