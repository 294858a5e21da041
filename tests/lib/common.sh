# SPDX-License-Identifier: Apache-2.0
#
# What the integration tests share. To be sourced first:
#
#	. "$(dirname "${BASH_SOURCE[0]}")/../lib/common.sh"
#	test_begin LIMIT_S	a directory of its own in $T, with a tmpfs in $SHM
#	test_end		all is gone that the test started, or it fails
#
# A test fails by `fail`, by any command that fails, or when LIMIT_S is over. However it
# ends, writers, mounts, servers, loop devices and files of it are removed.
# FERRYFS_TEST_KEEP=1 keeps the files of a test that failed.
set -euo pipefail
shopt -s inherit_errexit

LIB=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$LIB/../.." && pwd)
BINARY=${FERRYFS_BINARY_DIR:-$ROOT/build/release}
FERRYFS=${FERRYFS_BIN:-$BINARY/ferryfs}
FERRY=${FERRY_BIN:-$BINARY/ferry}
TOOLS=$BINARY/tests/lib
LIMBO='.ferryfs-limbo-*'	# ours, in the root of the passive side

# A write may be held by a failover for so long: what is aimed at, and what a test still
# accepts, for a machine that is busy with other things than this.
FREEZE_MS_WANTED=300
FREEZE_MS_MAX=1500

. "$LIB/ganesha.sh"

T=
SHM=
NAME=
MOUNT=
DAEMON_PID=
WRITERS=()		# "id mode pid"
WRITER_OPTIONS=()
SERVER_DIRS=()
LOOPS=()
HELPERS=()		# pids

say()
{
	printf '[%4d s] %s\n' "$SECONDS" "$*"
}

fail()
{
	printf 'FAILED: %s\n' "$*" >&2
	exit 1
}

need_tools()
{
	local tool

	[[ $EUID -eq 0 ]] || {
		echo "needs root" >&2
		exit 77
	}
	[[ -e /dev/fuse ]] || {
		echo "needs /dev/fuse" >&2
		exit 77
	}
	for tool in "$FERRYFS" "$FERRY" "$TOOLS/treecmp" "$TOOLS/maketree" "$TOOLS/writer"; do
		[[ -x $tool ]] || fail "'$tool' is not built"
	done
}

# ---- beginning and end --------------------------------------------------------

test_begin()
{
	local limit_s=$1 script

	script=$(basename "$0" .sh)
	need_tools
	T=$(realpath "$(mktemp -d -t "ferryfs-$script.XXXXXX")")
	chmod 755 "$T"
	NAME=$script-$$
	SHM=$T/shm
	mkdir "$SHM" "$T/records"
	trap 'test_cleanup $?' EXIT
	trap 'echo "FAILED: interrupted" >&2; exit 1' INT TERM HUP
	mount -t tmpfs -o mode=755,size=75%,nr_inodes=0 ferryfs-test "$SHM"
	watch_time "$limit_s" &
	WATCHDOG=$!
	say "$script in '$T'"
}

# A mount that hangs holds whoever touches it: only an abort sets them free, and us.
watch_time()
{
	trap - EXIT INT TERM HUP
	read -rt "$1" <> <(:) || true
	printf 'FAILED: not done after %s s\n' "$1" >&2
	mounts_of_fuse | while read -r mount; do
		umount -f "$mount" 2>/dev/null || true
	done
	kill -TERM $$
}

# What is mounted below $T, the last one first.
mounts_below()
{
	findmnt -rn -o TARGET,FSTYPE | awk -v top="$T/" 'index($1, top) == 1' | tac
}

mounts_of_fuse()
{
	mounts_below | awk '$2 ~ /^fuse/ { print $1 }'
}

end_process()
{
	local pid=$1 i

	kill -TERM "$pid" 2>/dev/null || return 0
	for ((i = 0; i < 40; i++)); do
		[[ -e /proc/$pid ]] && [[ $(process_state "$pid") != Z ]] || return 0
		sleep 0.05
	done
	kill -KILL "$pid" 2>/dev/null || true
}

process_state()
{
	sed 's/.*) //; s/ .*//' "/proc/$1/stat" 2>/dev/null || echo Z
}

show_state()
{
	local log=$T/state/ferryfs.log

	[[ ! -e $log ]] || {
		printf -- '--- the last lines of the log:\n'
		tail -n 40 "$log"
	}
	[[ -z $DAEMON_PID || ! -e /proc/$DAEMON_PID ]] || {
		printf -- '--- status:\n'
		timeout -k 1 5 "$FERRY" status "$NAME" --json || true
	}
} >&2

test_cleanup()
{
	local status=$1 mount

	trap - EXIT
	trap '' INT TERM HUP PIPE # whatever comes, to the end
	set +e
	((status == 0 || status == 77)) || show_state
	exec 2>/dev/null # what is killed below need not be announced
	kill "$WATCHDOG" 2>/dev/null
	cd /
	for entry in "${WRITERS[@]}"; do
		kill -KILL "${entry##* }" 2>/dev/null
	done
	for pid in "${HELPERS[@]}"; do
		kill -KILL "$pid" 2>/dev/null
	done
	mounts_of_fuse | while read -r mount; do
		umount -f -l "$mount" 2>/dev/null || umount -l "$mount" 2>/dev/null
	done
	[[ -z $DAEMON_PID ]] || end_process "$DAEMON_PID"
	for dir in "${SERVER_DIRS[@]}"; do
		ganesha_stop "$dir"
	done
	if ((status != 0)) && [[ ${FERRYFS_TEST_KEEP:-} == 1 ]]; then
		printf "kept: '%s'\n" "$T"
		exit "$status"
	fi
	mounts_below | while read -r mount _; do
		umount -l "$mount" 2>/dev/null
	done
	for loop in "${LOOPS[@]}"; do
		losetup -d "$loop" 2>/dev/null
	done
	rm -f "/run/ferryfs/$NAME.sock"
	[[ -z $T ]] || rm -rf --one-file-system "$T"
	wait 2>/dev/null
	exit "$status"
}

# Everything ended as it should: nothing of it may be left.
test_end()
{
	local left

	left=$(mounts_of_fuse)
	[[ -z $left ]] || fail "left mounted: $left"
	[[ ! -e /run/ferryfs/$NAME.sock ]] || fail "left: the control socket"
	[[ -z $DAEMON_PID || ! -e /proc/$DAEMON_PID ]] || fail "left running: the daemon"
	say "passed"
}

# ---- waiting ------------------------------------------------------------------

# wait_for SECONDS WHAT COMMAND...: until the command succeeds.
wait_for()
{
	local limit_s=$1 what=$2 end
	shift 2

	end=$((SECONDS + limit_s))
	until "$@"; do
		((SECONDS < end)) || fail "waited $limit_s s for $what"
		sleep 0.1
	done
}

# bounded SECONDS COMMAND...
bounded()
{
	local limit_s=$1
	shift
	timeout -k 5 "$limit_s" "$@"
}

# ---- ferryfs ------------------------------------------------------------------

# start_ferryfs SOURCE TARGET [OPTION]...
start_ferryfs()
{
	local source=$1 target=$2
	shift 2

	MOUNT=$source
	[[ ${1:-} != --at ]] || MOUNT=$2
	bounded 60 "$FERRYFS" --name "$NAME" --state "$T/state" "$@" "$source" "$target" ||
		fail "ferryfs did not start"
	findmnt -n -t fuse.ferryfs "$MOUNT" >/dev/null || fail "'$MOUNT' is not mounted"
	DAEMON_PID=$(status_get pid)
}

ferry()
{
	local command=$1
	shift
	bounded "${FERRY_LIMIT_S:-300}" "$FERRY" "$command" "$NAME" "$@"
}

# status_get FIELD: "phase", "backlog.names"; booleans are "true" and "false".
status_get()
{
	bounded 20 "$FERRY" status "$NAME" --json | python3 -c '
import json, sys
value = json.load(sys.stdin)
for key in sys.argv[1].split("."):
    value = value[key]
print(value if isinstance(value, str) else json.dumps(value))' "$1"
}

status_is()
{
	[[ $(status_get "$1") == "$2" ]]
}

wait_converged()
{
	FERRY_LIMIT_S=$(($1 + 10)) ferry wait --converged --timeout "${1}s" ||
		fail "not converged after $1 s"
}

# Ends the daemon in order.
stop_ferryfs()
{
	ferry stop || fail "'ferry stop' failed"
	wait_for 20 "the daemon to end" daemon_is_gone
	! findmnt -n -t fuse.ferryfs "$MOUNT" >/dev/null || fail "'$MOUNT' is still mounted"
	DAEMON_PID=
}

daemon_is_gone()
{
	[[ ! -e /proc/$DAEMON_PID || $(process_state "$DAEMON_PID") == Z ]]
}

# As a crash would: nothing is drained, and the dead mount is what an admin clears away.
kill_ferryfs()
{
	kill -KILL "$DAEMON_PID"
	wait_for 20 "the killed daemon to be gone" daemon_is_gone
	umount -l "$MOUNT" 2>/dev/null || true
	! findmnt -n -t fuse.ferryfs "$MOUNT" >/dev/null || fail "the dead mount does not go away"
	DAEMON_PID=
}

# ---- targets ------------------------------------------------------------------

make_disk()
{
	truncate -s 4G "$T/disk.image"
	mkfs.ext4 -q -E lazy_itable_init=1 "$T/disk.image" || fail "cannot make a file system"
	LOOPS+=("$(losetup -f --show "$T/disk.image")")
	mkdir "$T/disk"
	mount "${LOOPS[-1]}" "$T/disk" || fail "cannot mount a loop device"
}

# make_target dir|disk|nfs: sets TARGET, as ferryfs takes it, TARGET_DIR, where its files
# are, and CMP, how to compare with it. A disk has commits that take time, dir has none.
make_target()
{
	TARGET_DIR=$SHM/target
	if [[ $1 == disk ]]; then
		make_disk
		TARGET_DIR=$T/disk/target
	fi
	mkdir "$TARGET_DIR"
	case $1 in
	dir | disk)
		TARGET=$TARGET_DIR
		CMP=(--ignore "$LIMBO")
		;;
	nfs)
		ganesha_available || exit 77
		SERVER_DIRS+=("$T/server")
		ganesha_start "$T/server" "$TARGET_DIR" || fail "the NFS server did not start"
		TARGET=$GANESHA_URL
		# nfs-ganesha takes the times of a symlink, says that all is well, and does nothing.
		CMP=(--ignore "$LIMBO" --no-xattr --no-symlink-times)
		WRITER_OPTIONS+=(--no-xattr --no-symlink-times)
		;;
	*)
		fail "no such kind of target: '$1'"
		;;
	esac
}

# make_tree KIND DIR FILES DIRS SEED: data that the kind of target can hold.
make_tree()
{
	local options=()

	# NFSv3 has no times before 1970; libnfs sends name and target of a symlink in 4 KiB.
	[[ $1 != nfs ]] || options+=(--no-negative-times --symlink-max 3500)
	[[ $4 != flat ]] || options+=(--flat)
	mkdir -p "$2"
	"$TOOLS/maketree" "$2" --files "$3" --dirs "${4/flat/20}" --seed "$5" "${options[@]}"
	say "made $3 files in '$2', seed $5"
}

# Exits 0 if they are equal.
compare_trees()
{
	bounded 300 "$TOOLS/treecmp" "$@" >"$T/treecmp.out" || {
		head -n 40 "$T/treecmp.out" >&2
		tail -n 1 "$T/treecmp.out" >&2
		fail "'$1' and '$2' differ"
	}
	say "equal: $(tail -n 1 "$T/treecmp.out")"
}

# ---- writers ------------------------------------------------------------------

# start_writer ID MODE [OPTION]...: works until stop_writers, or goes on where it ended.
start_writer()
{
	local id=$1 mode=$2
	shift 2

	rm -f "$T/stop"
	"$TOOLS/writer" "$MOUNT" --id "$id" --mode "$mode" --record "$T/records/$id" \
		--until-file "$T/stop" "${WRITER_OPTIONS[@]}" "$@" >"$T/writer.$id" 2>&1 &
	WRITERS+=("$id $mode $!")
}

writers_are_alive()
{
	local entry

	for entry in "${WRITERS[@]}"; do
		[[ -e /proc/${entry##* } && $(process_state "${entry##* }") != Z ]] ||
			fail "writer ${entry%% *} ended early: $(tail -n 20 "$T/writer.${entry%% *}")"
	done
}

# Lets them end in order; fails if one has something to complain of. $1: the exit code
# that is allowed beside 0.
stop_writers()
{
	local entry id status

	touch "$T/stop"
	for entry in "${WRITERS[@]}"; do
		id=${entry%% *}
		status=0
		wait "${entry##* }" || status=$?
		((status == 0 || status == ${1:-0})) ||
			fail "writer $id ended with $status: $(cat "$T/writer.$id")"
		tail -n 30 "$T/writer.$id"
	done
	STOPPED_WRITERS=("${WRITERS[@]}")
	WRITERS=()
	rm -f "$T/stop"
}

# check_writers DIR: what the stopped ones were told is written is there.
check_writers()
{
	local entry id mode

	for entry in "${STOPPED_WRITERS[@]}"; do
		read -r id mode _ <<<"$entry"
		bounded 120 "$TOOLS/writer" --check "$1" --id "$id" --mode "$mode" \
			--record "$T/records/$id" "${WRITER_OPTIONS[@]}" ||
			fail "writer $id finds '$1' wrong"
	done
	say "all that was acknowledged is in '$1'"
}

# The longest time that a write of random8k took, in ms, of the writer with this id.
longest_stall_ms()
{
	sed -n 's/^longest_stall_us=//p' "$T/writer.$1" | awk '{ print int(($1 + 999) / 1000) }'
}
