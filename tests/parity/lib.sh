# SPDX-License-Identifier: Apache-2.0
#
# An overlay without a target, for tests: to be sourced.
#
#	overlay_begin		a directory of its own in $DIR, with source, plain, mnt
#	overlay_start		mounts $DIR/source at $DIR/mnt; with FILES_MAX descriptors
#	overlay_ask LINE	one line to the server, its answer to stdout
#	overlay_stop		unmounts; the server has to end well
set -euo pipefail

PROGRAMS=$FERRYFS_BINARY_DIR/tests/parity
DIR=
PID=

skip()
{
	printf 'skipped: %s\n' "$1"
	exit 77
}

fail()
{
	printf 'FAILED: %s\n' "$1"
	exit 1
}

overlay_clean_up()
{
	if [[ -n $PID ]]; then
		exec {SERVER_IN}>&- # at the end of its input it unmounts
		wait_for_end || umount -f -l "$DIR/mnt" || true
		kill -KILL "$PID" 2>/dev/null || true # should another mount namespace have it
	fi
	umount -l "$DIR/source" "$DIR/plain" 2>/dev/null || true # where a test has mounted there
	rm -rf --one-file-system "$DIR"
}

wait_for_end()
{
	local i

	for ((i = 0; i < 100; i++)); do
		kill -0 "$PID" 2>/dev/null || return 0
		sleep 0.1
	done
	return 1
}

overlay_begin()
{
	[[ $EUID -eq 0 ]] || skip 'needs root'
	[[ -c /dev/fuse ]] || skip 'no /dev/fuse'
	DIR=$(realpath "$(mktemp -d -t overlay.XXXXXX)")
	trap overlay_clean_up EXIT
	chmod 755 "$DIR"
	mkdir "$DIR/source" "$DIR/plain" "$DIR/mnt"
	chmod 777 "$DIR/source" "$DIR/plain"
}

overlay_start()
{
	local line

	coproc SERVER {
		ulimit -n "${FILES_MAX:-1024}"
		exec "$PROGRAMS/mount_overlay" "$DIR/state" "$DIR/source" "$DIR/mnt"
	}
	PID=$SERVER_PID SERVER_IN=${SERVER[1]} SERVER_OUT=${SERVER[0]}
	read -r -t 20 line <&"$SERVER_OUT"
	[[ $line == ready ]]
}

overlay_ask()
{
	local answer

	printf '%s\n' "$1" >&"$SERVER_IN"
	read -r -t 20 answer <&"$SERVER_OUT"
	printf '%s\n' "$answer"
}

overlay_stop()
{
	local i

	for ((i = 0; i < 50; i++)); do
		[[ $(overlay_ask unmount) != ok ]] || break
		sleep 0.1
	done
	((i < 50)) || fail 'cannot unmount'
	wait_for_end || fail 'the server does not end: is the mount in another namespace too?'
	wait "$PID"
	PID=
}

# Waits until the word after WORD in the statistics is COUNT.
wait_for_stat()
{
	local i

	for ((i = 0; i < 100; i++)); do
		[[ " $(overlay_ask stats) " != *" $1 $2 "* ]] || return 0
		sleep 0.1
	done
	fail "not '$1 $2' but '$(overlay_ask stats)'"
}
