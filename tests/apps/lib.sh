# SPDX-License-Identifier: Apache-2.0
#
# What the tests with real applications share. To be sourced in place of common.sh, which
# says what ends a test and cleans up after it.
#
#	apps_begin LIMIT_S [OPTION]...	as test_begin, and the daemon runs and migrates
#	apps_failover			under whatever load there is
#	apps_end			nothing was lost, and all ends in order
#
# The application's directory is $WORK, on the mount; beside it is a tree that keeps the
# migration busy. $BELOW is what stands on the source there, $BEYOND on the target.
. "$(dirname "${BASH_SOURCE[0]}")/../lib/common.sh"

APPS=$BINARY/tests/apps
SEED=${FERRYFS_SEED:-$RANDOM}
BALLAST=${FERRYFS_FILES:-3000}
FAILOVER_MS_MAX=10000

WORK=
BELOW=
BEYOND=

# long_or_short LONG SHORT: how much of something, by FERRYFS_LONG.
long_or_short()
{
	[[ -n ${FERRYFS_LONG:-} ]] && echo "$1" || echo "$2"
}

apps_begin()
{
	local limit_s=$1
	shift

	test_begin "$limit_s"
	apps_start "$@"
}

apps_start()
{
	trap 'apps_cleanup $?' EXIT
	make_target dir
	make_tree dir "$SHM/source/ballast" "$BALLAST" 60 "$SEED"
	mkdir "$SHM/source/work" "$T/bare"
	mount --bind "$SHM" "$T/bare" # a way past the mount
	start_ferryfs "$SHM/source" "$TARGET" "$@"
	WORK=$MOUNT/work
	BELOW=$T/bare/source/work
	BEYOND=$T/bare/target/work
}

# Programs have children, which common.sh knows nothing of.
apps_cleanup()
{
	local status=$1

	set +e
	mapfile -t HELPERS < <(process_tree "${HELPERS[@]}")
	test_cleanup "$status"
}

process_tree()
{
	local pid

	for pid in "$@"; do
		printf '%s\n' "$pid"
		process_tree $(pgrep -P "$pid")
	done
}

# helper COMMAND...: in the background, ended with the test.
helper()
{
	"$@" &
	HELPERS+=($!)
}

# helper_ends PID WHAT: waits for one that is to end by itself, and well.
helper_ends()
{
	local status=0

	wait "$1" || status=$?
	((status == 0)) || fail "$2 ended with $status"
	helper_drop "$1"
}

# helpers_kill PID...: without a warning, with their children.
helpers_kill()
{
	local pid

	for pid in "$@"; do
		{
			kill -KILL $(process_tree "$pid") || true
			wait "$pid" || true
		} 2>/dev/null
		helper_drop "$pid"
	done
}

helper_drop()
{
	local pid left=()

	for pid in "${HELPERS[@]}"; do
		[[ $pid == "$1" ]] || left+=("$pid")
	done
	HELPERS=("${left[@]}")
}

# Everything of the source that a change would change.
fingerprint()
{
	find "$T/bare/source" -printf '%P %i %y %m %U %G %n %s %T@ %C@ %l\n' | sort
}

apps_failover()
{
	wait_for 100 "the baseline" status_is baseline.done true
	ferry failover --max-freeze "${FAILOVER_MS_MAX}ms" || fail "the failover was refused"
	say "failed over, frozen for $(status_get last_freeze_ms) ms"
	status_is phase guard || fail "phase is '$(status_get phase)', not 'guard'"
	fingerprint >"$T/flipped"
}

# To be called when nobody writes any more.
apps_end()
{
	status_is errors.count 0 || fail "errors: $(status_get errors)"
	compare_trees "$MOUNT" "$T/bare/target" "${CMP[@]}"
	stop_ferryfs
	say "stopped"
	fingerprint | diff "$T/flipped" - >"$T/changed" ||
		fail "the source was changed after the flip: $(head -n 20 "$T/changed")"
	compare_trees "$SHM/source/ballast" "$TARGET_DIR/ballast" "${CMP[@]}"
	"$ROOT/tests/apps/unchanged.py" "$BELOW" "$BEYOND" >"$T/unchanged" ||
		fail "what was not changed is not as on the source: $(tail -n 20 "$T/unchanged")"
	say "$(tail -n 1 "$T/unchanged")"
	umount "$T/bare"
	test_end
}
