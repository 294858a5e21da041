#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Locks between processes, by flock(1) and by fcntl, are held through a failover: who was
# refused before is refused after it, who waited goes on waiting, and gets the lock when its
# holder gives it back or is killed, not before.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# hold FILE READY KIND START LENGTH: holds a record lock until it is killed.
hold()
{
	exec python3 -c '
import fcntl, os, sys, time
name, ready, kind, start, length = sys.argv[1:]
fd = os.open(name, os.O_RDWR)
fcntl.lockf(fd, getattr(fcntl, kind), int(length), int(start))
os.write(fd, b"held")
open(ready, "w").close()
time.sleep(3600)' "$@"
}

# tries PHASE: reads lines "EXPECTED: FILE KIND START LENGTH", tries each record lock, and
# gives it back.
tries()
{
	python3 -c '
import fcntl, os, struct, sys
for line in sys.stdin:
    expected, rest = line.strip().split(": ")
    name, kind, start, length = rest.split()
    fd = os.open(name, os.O_RDWR)
    try:
        fcntl.lockf(fd, getattr(fcntl, kind) | fcntl.LOCK_NB, int(length), int(start))
        said = "got"
    except BlockingIOError:
        lock = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, int(start), int(length), 0)
        holder = struct.unpack("hhqqi", fcntl.fcntl(fd, fcntl.F_GETLK, lock))[4]
        said = f"refused for {holder}"
    os.close(fd)
    if said != expected:
        sys.exit(f"a lock of {rest} says \"{said}\", not \"{expected}\"")' ||
		fail "$1: locks are not as they should be"
}

# What holds as long as all of the first are held.
check_locks()
{
	! flock -n "$WORK/flock" true || fail "$1: flock got what is held"
	! flock -n -s "$WORK/flock" true || fail "$1: a shared flock got what is held"
	flock -n -s "$WORK/shared" true || fail "$1: a shared flock did not get what is shared"
	! flock -n "$WORK/shared" true || fail "$1: an exclusive flock got what is shared"
	tries "$1" <<-EOF
		refused for $HOLDER: $WORK/records LOCK_EX 50 100
		refused for $HOLDER: $WORK/records LOCK_SH 99 1
		got: $WORK/records LOCK_EX 100 100
		got: $WORK/records LOCK_SH 200 100
		refused for $READER: $WORK/records LOCK_EX 299 1
		refused for $GONE: $WORK/unlinked.2 LOCK_EX 0 0
	EOF
	[[ ! -e $T/got-flock && ! -e $T/got-records ]] || fail "$1: who waits has got it"
	[[ -e /proc/$FLOCKER && -e /proc/$HOLDER ]] || fail "$1: a holder has ended"
}

apps_begin 90
touch "$WORK"/{flock,shared,records,unlinked}
ln "$WORK/unlinked" "$WORK/unlinked.2"
helper flock "$WORK/flock" sh -c "echo held >>'$WORK/flock'; touch '$T/ready-flock'; exec sleep 3600"
FLOCKER=${HELPERS[-1]}
helper flock -s "$WORK/shared" sh -c "touch '$T/ready-shared'; exec sleep 3600"
helper hold "$WORK/records" "$T/ready-records" LOCK_EX 0 100
HOLDER=${HELPERS[-1]}
helper hold "$WORK/records" "$T/ready-reader" LOCK_SH 200 100
READER=${HELPERS[-1]}
helper hold "$WORK/unlinked" "$T/ready-unlinked" LOCK_EX 0 0
GONE=${HELPERS[-1]}
for name in flock shared records reader unlinked; do
	wait_for 20 "the lock of $name" test -e "$T/ready-$name"
done
rm "$WORK/unlinked"
helper flock "$WORK/flock" touch "$T/got-flock"
FLOCK_WAITER=${HELPERS[-1]}
helper hold "$WORK/records" "$T/got-records" LOCK_EX 20 10
RECORD_WAITER=${HELPERS[-1]}
sleep 0.5
check_locks before
apps_failover
check_locks after

helpers_kill "$HOLDER"
wait_for 20 "a record lock of a killed holder" test -e "$T/got-records"
tries "the holder is killed" <<EOF
refused for $RECORD_WAITER: $WORK/records LOCK_EX 0 100
got: $WORK/records LOCK_EX 30 70
EOF
[[ ! -e $T/got-flock ]] || fail "who waits for a flock has got it too early"
# Its child has the lock too.
helpers_kill "$FLOCKER"
helper_ends "$FLOCK_WAITER" "flock"
[[ -e $T/got-flock ]] || fail "a flock was not got in the end"
helpers_kill "${HELPERS[@]}"
tries "all are gone" <<<"got: $WORK/records LOCK_EX 0 0"
[[ $(cat "$BEYOND/flock" "$BEYOND/unlinked.2") == held$'\n'held ]] || fail "the target has other contents"
apps_end
