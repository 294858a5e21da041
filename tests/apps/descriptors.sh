#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# descriptors.sh LIMIT: with no more than LIMIT descriptors the daemon serves a program that
# holds 5,000 files open, 3,000 of them unlinked, through a failover, and the migration goes
# on: what does not fit is done more slowly, never refused.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

LIMIT=$1

# What is to be there is.
check_files()
{
	local name text

	while read -r name text; do
		[[ $(<"$1/$name") == "$text" ]] || fail "'$1/$name' is not '$text': $(head -c 200 "$1/$name")"
	done <"$T/expected"
	[[ $(find "$1" -type f | wc -l) == $(wc -l <"$T/expected") ]] || fail "'$1' has other files"
}

MOST=0

count_descriptors()
{
	local count

	count=$(find "/proc/$DAEMON_PID/fd" -mindepth 1 | wc -l)
	((count <= MOST)) || MOST=$count
}

start_limited()
{
	local original=$FERRYFS

	printf '#!/bin/bash\nulimit -n %d && exec "%s" "$@"\n' "$LIMIT" "$original" >"$T/limited"
	chmod +x "$T/limited"
	FERRYFS=$T/limited
	apps_start
	FERRYFS=$original
	grep -q "^Max open files *$LIMIT *$LIMIT " "/proc/$DAEMON_PID/limits" || fail "it has another limit"
}
is_ready_or_gone()
{
	count_descriptors
	[[ -e $T/ready || $(process_state "$PROGRAM") == Z ]]
}

test_begin 150
hard=$(ulimit -Hn)
[[ $hard == unlimited ]] || ((hard >= LIMIT && hard >= 5200)) || {
	echo "no $LIMIT descriptors are allowed here" >&2
	exit 77
}
start_limited
helper "$ROOT/tests/apps/open_files.py" "$WORK" "$T/ready" "$T/go" >"$T/expected" 2>"$T/complaints"
PROGRAM=${HELPERS[-1]}
wait_for 60 "5,000 open files" is_ready_or_gone
[[ -e $T/ready ]] || fail "the program failed: $(cat "$T/complaints")"
sleep 1
count_descriptors
find "$MOUNT" -type f -exec head -qc 1 '{}' + | wc -c >"$T/read"
count_descriptors
apps_failover
count_descriptors
touch "$T/go"
wait "$PROGRAM" || fail "the program failed: $(cat "$T/complaints")"
HELPERS=()
count_descriptors
say "$MOST descriptors at most of $LIMIT"
! grep -i 'too many open files' "$T/state/ferryfs.log" || fail "the log complains"
check_files "$WORK"
check_files "$BEYOND"
apps_end
