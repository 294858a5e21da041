#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Freezing: changes wait and nothing else does, a client that waits can be killed, all
# that waited is done after the thaw, and a storm of clients notices nothing.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

STORM_S=${STORM_S:-15}

overlay_begin

# ---- one client ----
overlay_start
echo before >"$DIR/mnt/f"
[[ $(overlay_ask 'freeze 5000') == ok ]]
{ echo after >"$DIR/mnt/new"; } 2>/dev/null &
writer=$!
wait_for_stat parked 1
[[ $(timeout 5 cat "$DIR/mnt/f") == before ]]
timeout 5 stat -c '' "$DIR/mnt/f"
timeout 5 df "$DIR/mnt" >"$DIR/df"
[[ ! -e $DIR/source/new ]] || fail 'a change was made while frozen'
[[ $(overlay_ask thaw) == ok ]]
wait "$writer"
[[ $(cat "$DIR/source/new") == after ]]

# ---- one of each kind ----
list_source()
{
	(cd "$DIR/source/changes" && find . -printf '%P %m %U:%G %n %s %T@ %C@ %l\n' | sort)
	(cd "$DIR/source/changes" && find . -type f -print0 | sort -z | xargs -0 cat | cksum)
}
mkdir "$DIR/mnt/changes" "$DIR/done"
kinds=$("$PROGRAMS/changes" "$DIR/mnt/changes" prepare)
list_source >"$DIR/before"
[[ $(overlay_ask 'freeze 20000') == ok ]]
"$PROGRAMS/changes" "$DIR/mnt/changes" run "$DIR/done" >"$DIR/kinds" &
writer=$!
wait_for_stat parked "$kinds"
[[ -z $(ls "$DIR/done") ]] || fail "made while frozen: kind $(ls "$DIR/done")"
diff "$DIR/before" <(list_source) || fail 'a change was made while frozen'
[[ $(overlay_ask thaw) == ok ]]
wait "$writer" || fail 'not all changes were made after the thaw'
(($(ls "$DIR/done" | wc -l) == kinds))

# ---- it can be killed, and then has done nothing ----
[[ $(overlay_ask 'freeze 5000') == ok ]]
touch "$DIR/mnt/killed" &
writer=$!
wait_for_stat parked 1
kill -KILL "$writer"
wait "$writer" 2>/dev/null || true
wait_for_stat parked 0
[[ $(overlay_ask thaw) == ok ]]
[[ ! -e $DIR/mnt/killed ]] || fail 'what was interrupted was done'

# ---- an unlinked file that is closed while frozen ends after the thaw ----
exec 9<>"$DIR/mnt/f"
rm "$DIR/mnt/f"
wait_for_stat orphans 1
[[ $(overlay_ask 'freeze 5000') == ok ]]
exec 9>&-
wait_for_stat parked 1
[[ " $(overlay_ask stats) " == *' orphans 1 '* ]]
[[ $(overlay_ask thaw) == ok ]]
wait_for_stat orphans 0

# ---- many ----
timeout 100 "$PROGRAMS/storm" "$DIR/mnt" "$STORM_S" &
storm=$!
while kill -0 "$storm" 2>/dev/null; do
	[[ $(overlay_ask 'freeze 10000') == ok ]] || fail 'cannot freeze'
	sleep "0.0$((RANDOM % 10))"
	[[ $(overlay_ask thaw) == ok ]]
	sleep "0.0$((RANDOM % 10))"
done
wait "$storm" || fail 'the storm'
wait_for_stat orphans 0
overlay_stop
[[ -z $(find "$DIR/source" -name '.f*') ]] || fail 'something of ours is left'

# ---- unlinked files without descriptors for them go to limbo, and leave it ----
FILES_MAX=200 overlay_start
timeout 60 "$PROGRAMS/storm" "$DIR/mnt" hold 600
[[ -d $(echo "$DIR"/source/.ferryfs-limbo-*) ]] || fail 'no limbo was needed'
[[ -z $(ls -A "$DIR/mnt" | grep limbo) ]] || fail 'limbo shows'
! mkdir "$DIR/mnt/.ferryfs-limbo-test" 2>/dev/null || fail 'limbo can be made'
wait_for_stat orphans 0
[[ -z $(ls -A "$DIR"/source/.ferryfs-limbo-*) ]] || fail 'limbo is not empty'
overlay_stop
[[ ! -e $(echo "$DIR"/source/.ferryfs-limbo-*) ]] || fail 'limbo is left'

# ---- an abort while frozen frees the client and ends the server ----
overlay_start
echo x >"$DIR/mnt/f"
[[ $(overlay_ask 'freeze 5000') == ok ]]
touch "$DIR/mnt/aborted" 2>/dev/null &
writer=$!
wait_for_stat parked 1
umount -f -l "$DIR/mnt"
! wait "$writer" || fail 'a change succeeded after the abort'
wait_for_end || fail 'the server does not end'
wait "$PID" || fail 'the server ended badly'
PID=
[[ ! -e $DIR/source/aborted ]]
