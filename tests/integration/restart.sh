#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# restart.sh disk|nfs: kill -9 of the daemon in the baseline, in converge and in the drain of
# a failover, and a start after each. Nothing acknowledged is lost, and what was
# there before is not copied again: on the target, an object's ctime tells.
. "$(dirname "${BASH_SOURCE[0]}")/../lib/common.sh"

KIND=$1
SEED=${FERRYFS_SEED:-$RANDOM}
FILES=${FERRYFS_FILES:-20000}
COMMIT_LAG=6000		# copied, but not yet committed and cleared when it was killed
LOST_MOUNT=3		# exit code of writers whose mount went away
TRIES=6
HOLD_DOWN_S=3		# for late writes of the killed; the default takes a minute each time

start_all_writers()
{
	WRITERS=()
	start_writer 1 mix --may-lose-mount
	start_writer 2 churn --may-lose-mount
	start_writer 3 append --may-lose-mount
	start_writer 4 random8k --may-lose-mount --size 8388608
}

# kill_and_restart WHAT: with the writers at work.
kill_and_restart()
{
	say "kill -9 in $1: $(timeout 5 "$FERRY" status "$NAME" --json | head -c 400 | tr '\n' ' ')"
	kill_ferryfs
	stop_writers $LOST_MOUNT >/dev/null
	sleep 0.1
	touch "$T/restarted"
	start_ferryfs "$SHM/source" "$TARGET" --hold-down $HOLD_DOWN_S
}

# Prints the first phase in which the failover of process PID holds the workload, or its end.
phase_seen_in_failover()
{
	local status

	while [[ -e /proc/$1 ]]; do
		status=$("$FERRY" status "$NAME" --json)
		case $status in
			*'"phase": "drain"'*) echo drain; return ;;
			*'"phase": "guard"'*) break ;;
		esac
	done
	echo guard
}

copied_again()
{
	find "$TARGET_DIR/still" -newerct "$(stat -c %y "$T/restarted")" "$@" | wc -l
}

copied_is_at_least()
{
	(($(status_get baseline.objects_done) >= $1))
}

test_begin 420
make_target "$KIND"
make_tree "$KIND" "$SHM/source/still" "$FILES" 200 "$SEED"
WRITER_OPTIONS+=(--seed "$SEED")
start_ferryfs "$SHM/source" "$TARGET" --hold-down $HOLD_DOWN_S
start_all_writers

wait_for 100 "a third of the baseline" copied_is_at_least $((FILES / 3))
kill_and_restart baseline
check_writers "$SHM/source"
there=$(find "$TARGET_DIR/still" ! -type d ! -newerct "$(stat -c %y "$T/restarted")" | wc -l)
start_all_writers
wait_converged 200
again=$(copied_again ! -type d)
total=$(find "$TARGET_DIR/still" ! -type d | wc -l)
say "$there of $total objects were there, $again were made or touched after the start"
((again <= total - there + COMMIT_LAG)) || fail "too much was copied again"
writers_are_alive

sleep 2
kill_and_restart converge
start_all_writers
wait_converged 120
again=$(copied_again)
say "$again objects of $total were touched after the start in converge"
((again == 0)) || fail "what was not marked was copied again"

# Tried until it was seen in the drain and had not flipped yet: that lasts some 10 to 100 ms.
hits=0
for ((try = 0; try < TRIES && hits == 0; try++)); do
	sleep 1
	"$FERRY" failover "$NAME" --max-freeze 5s >"$T/failover" 2>&1 &
	pid=$!
	seen=$(phase_seen_in_failover "$pid")
	kill_and_restart "a failover, in $seen"
	wait "$pid" || true
	say "$(cat "$T/failover")"
	say "then active: $(status_get active), phase $(status_get phase)"
	check_writers "$MOUNT"
	start_all_writers
	[[ $(status_get active) == source ]] || break
	wait_converged 120
	[[ $seen != drain ]] || hits=$((hits + 1))
done
say "killed in the drain: $hits of $try"
writers_are_alive
[[ $(status_get active) == target ]] || ferry failover --max-freeze 5s || fail "the failover was refused"
sleep 2
stop_writers
check_writers "$MOUNT"
stop_ferryfs
check_writers "$TARGET_DIR"
compare_trees "$SHM/source/still" "$TARGET_DIR/still" "${CMP[@]}"
test_end
