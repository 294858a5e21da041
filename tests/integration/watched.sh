#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Who looks at a mount all the time while it comes, changes sides and goes, is answered;
# inotify tells what is done through it before and after the failover; and it gives out no
# file handles, which nobody could follow (so NFS cannot export it), and says so.
. "$(dirname "${BASH_SOURCE[0]}")/../lib/common.sh"

CROWD=$BINARY/tests/parity/crowd

some_changes()
{
	echo x >"$MOUNT/d/$1"
	chmod 600 "$MOUNT/d/$1"
	mv "$MOUNT/d/$1" "$MOUNT/d/$1-moved"
	rm "$MOUNT/d/$1-moved"
}

# What inotify says of them: create, modify, attrib, from, to, delete.
expected()
{
	printf '%s\n' "100 $1" "2 $1" "4 $1" "40 $1" "80 $1-moved" "200 $1-moved"
}

test_begin 100
make_target dir
mkdir -p "$SHM/source/d"

# ---- looked at from before the mount until after it ----
lookers=()
for i in 1 2 3 4; do
	"$CROWD" "$SHM/source" looked "$T/looked" >"$T/looks.$i" 2>&1 &
	lookers+=($!)
done
HELPERS=("${lookers[@]}")
start_ferryfs "$SHM/source" "$TARGET"

"$CROWD" "$MOUNT/d" watched "$T/ready" "$T/go" >"$T/events" &
watcher=$!
HELPERS+=("$watcher")
wait_for 20 "the watch" test -e "$T/ready"
some_changes before
wait_converged 30
ferry failover --max-freeze 5s || fail "the failover was refused"
some_changes after
touch "$T/go"
wait "$watcher"
diff "$T/events" <(expected before; expected after) || fail "inotify says something else"

mkdir "$MOUNT/handles"
"$CROWD" "$MOUNT/handles" handles || fail "file handles"

touch "$T/looked"
for i in 1 2 3 4; do
	wait "${lookers[i - 1]}" || fail "a looker: $(cat "$T/looks.$i")"
done
HELPERS=()
say "looks: $(cat "$T"/looks.* | tr '\n' ' ')"
stop_ferryfs
test_end
