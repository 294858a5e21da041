#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The overlay over a directory of the local file system, with no target: every case of
# `parity` says the same there and in a plain directory beside it.
set -euo pipefail

PROGRAMS=$FERRYFS_BINARY_DIR/tests/parity

skip()
{
	printf 'skipped: %s\n' "$1"
	exit 77
}

clean_up()
{
	if [[ -n $PID ]]; then
		exec {SERVER_IN}>&- # at the end of its input it unmounts
		for _ in {1..50}; do
			kill -0 "$PID" 2>/dev/null || break
			sleep 0.1
		done
		! kill -0 "$PID" 2>/dev/null || umount -f -l "$DIR/mnt"
	fi
	rm -rf --one-file-system "$DIR"
}

# One line to the server, one line back.
ask()
{
	local answer

	printf '%s\n' "$1" >&"$SERVER_IN"
	read -r -t 20 answer <&"$SERVER_OUT"
	printf '%s\n' "$answer"
}

start()
{
	local line

	coproc SERVER { exec "$PROGRAMS/mount_overlay" "$DIR/state" "$DIR/source" "$DIR/mnt"; }
	PID=$SERVER_PID SERVER_IN=${SERVER[1]} SERVER_OUT=${SERVER[0]}
	read -r -t 20 line <&"$SERVER_OUT"
	[[ $line == ready ]]
}

[[ $EUID -eq 0 ]] || skip 'needs root'
[[ -c /dev/fuse ]] || skip 'no /dev/fuse'
PID=
DIR=$(realpath "$(mktemp -d -t parity.XXXXXX)")
trap clean_up EXIT
chmod 755 "$DIR"
mkdir "$DIR/source" "$DIR/plain" "$DIR/mnt"
start
chmod 777 "$DIR/mnt" "$DIR/plain"
timeout 240 "$PROGRAMS/parity" "$DIR/plain" "$DIR/mnt" "$@"

# What the mount shows is what is below it, and nothing is left of what was unlinked.
diff <(cd "$DIR/mnt" && find . -printf '%P %i %m %n %U:%G %y %s %T@ %l\n' | sort) \
	<(cd "$DIR/source" && find . -printf '%P %i %m %n %U:%G %y %s %T@ %l\n' | sort)
ask stats
[[ $(ask stats) == *' orphans 0' ]]
[[ $(ask unmount) == ok ]]
wait "$PID"
PID=
