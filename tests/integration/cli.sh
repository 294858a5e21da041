#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# ferry and the daemon's life: every command, what it prints and how it exits, and the
# ways in which a daemon ends.
. "$(dirname "${BASH_SOURCE[0]}")/../lib/common.sh"

FIELDS='name source target mount phase backlog.objects backlog.names backlog.bytes backlog.scans
baseline.objects_seen baseline.objects_done baseline.bytes_seen baseline.bytes_done baseline.done
rates.dirty_bytes_s rates.drain_bytes_s rates.objects_s eta_s predicted_freeze_ms last_freeze_ms
seq.latest seq.synced errors.count errors.last'

# exits CODE PATTERN COMMAND...: PATTERN in what it prints, on whichever stream.
exits()
{
	local code=$1 pattern=$2 status=0
	shift 2

	bounded 60 "$@" >"$T/out" 2>&1 || status=$?
	((status == code)) || fail "exit code $status, not $code: $*: $(cat "$T/out")"
	[[ -z $pattern ]] || grep -qE -- "$pattern" "$T/out" || fail "'$*' says: $(cat "$T/out")"
}

start()
{
	start_ferryfs "$T/source" "$T/target" "$@"
}

# The mount goes away by itself.
expect_end()
{
	wait_for 20 "the daemon to end" daemon_is_gone
	! findmnt -n -t fuse.ferryfs "$MOUNT" >/dev/null || fail "'$MOUNT' is still mounted"
	[[ ! -e /run/ferryfs/$NAME.sock ]] || fail "left: the control socket"
	DAEMON_PID=
}

try_usage()
{
	exits 2 'command is missing' "$FERRY"
	exits 0 'Usage' "$FERRY" --help
	exits 0 '^ferry [0-9]' "$FERRY" --version
	exits 0 '^ferryfs [0-9]' "$FERRYFS" --version
	exits 0 'Usage' "$FERRYFS" --help
	exits 2 "is 'status' meant" "$FERRY" statsu
	exits 2 'no command' "$FERRY" xyzzy-it
	exits 2 'no option' "$FERRY" status --nonsense
	exits 2 'cannot be the name' "$FERRY" status .etc
	exits 2 'what to wait for' "$FERRY" wait "$NAME"
	exits 2 'timeout' "$FERRY" wait "$NAME" --converged --timeout soon
	exits 2 'max-freeze' "$FERRY" failover "$NAME" --max-freeze 0
	exits 2 'takes a PATH' "$FERRY" explain
	exits 1 'not running' "$FERRY" status "$NAME"
	exits 1 'not running' "$FERRY" stop "$NAME"
	exits 1 'no migration has' "$FERRY" status ../nowhere
}

try_status()
{
	wait_converged 30
	"$FERRY" status "$NAME" --json | python3 -c '
import functools, json, sys
status = json.load(sys.stdin)
for field in sys.argv[1:]:
    functools.reduce(lambda value, key: value[key], field.split("."), status)' $FIELDS
	[[ $(status_get source) == "$T/source" ]] || fail "another source"
	wait_for 20 "the phase" status_is phase converge
	exits 0 'mount +/' "$FERRY" status "$NAME"
	[[ $(wc -l <"$T/out") -le 24 && $(wc -L <"$T/out") -le 200 ]] || fail "the status is no screen: $(cat "$T/out")"
	exits 0 'backlog' "$FERRY" status "$T/source/"
	exits 0 "$NAME .*converge" "$FERRY" list
	exits 0 "\"name\": \"$NAME\"" "$FERRY" list --json
	(($(timeout 2.5 "$FERRY" status "$NAME" --watch | grep -c '^'"$NAME") >= 2)) || fail "--watch does not repeat"
	[[ $(stat -c %a:%u "/run/ferryfs/$NAME.sock") == 600:0 ]] || fail "the socket is open to others"
	[[ $(stat -c %a:%u /run/ferryfs) == 700:0 ]] || fail "the sockets' directory is open to others"
	[[ $(stat -c %a "$T/state") == 700 ]] || fail "the state is open to others"
	# With one migration it need not be named; with several it has to be. (A developer's
	# machine may have others.)
	if "$FERRY" status >"$T/out" 2>&1; then
		grep -q backlog "$T/out" || fail "'ferry status' says: $(cat "$T/out")"
	else
		exits 2 'name one' "$FERRY" status
	fi
}

try_pause()
{
	exits 0 '' "$FERRY" pause "$NAME"
	status_is paused true || fail "not paused"
	exits 0 'PAUSED' "$FERRY" status "$NAME"
	head -c 300M /dev/zero | tr '\0' x >"$MOUNT/big"
	exits 1 'has not converged.*paused' "$FERRY" wait "$NAME" --converged --timeout 1s
	exits 1 'paused' "$FERRY" failover "$NAME"
	exits 0 'data: .* to copy' "$FERRY" explain "$NAME" big
	exits 0 '' "$FERRY" resume "$NAME"
	wait_converged 60
	rm "$MOUNT/big"
}

try_explain()
{
	local strange=$'new\nline \xff'

	echo x >"$MOUNT/dir/$strange"
	ln -s dir "$MOUNT/link"
	wait_for 30 "an empty backlog" backlog_is_empty
	exits 0 'file, object [0-9]+' "$FERRY" explain "$NAME" "dir/$strange"
	exits 0 'both sides are equal' "$FERRY" explain "$NAME" "$MOUNT/dir//$strange"
	exits 0 'target +dir/new\\x0aline \\xff' "$FERRY" explain "$NAME" "./dir/$strange"
	exits 0 '"kind": "directory"' "$FERRY" explain "$NAME" dir --json
	exits 0 'symlink' "$FERRY" explain "$NAME" link
	exits 0 'directory, object 1$' "$FERRY" explain "$NAME" "$MOUNT"
	exits 0 'nothing of this name on the source' "$FERRY" explain "$NAME" missing
	exits 1 'cannot be found' "$FERRY" explain "$NAME" missing/x
	exits 1 'cannot be found' "$FERRY" explain "$NAME" link/x
	exits 1 'not below' "$FERRY" explain "$NAME" /etc/passwd
	exits 1 "'\.\.'" "$FERRY" explain "$NAME" dir/../dir
}

backlog_is_empty()
{
	[[ $(status_get backlog) == '{"objects": 0, "names": 0, "bytes": 0, "scans": 0}' ]]
}

# What is no request gets an answer or the door, and disturbs nobody.
try_socket()
{
	python3 - "/run/ferryfs/$NAME.sock" <<-'END'
		import json, socket, sys

		def connect():
		    s = socket.socket(socket.AF_UNIX)
		    s.settimeout(10)
		    s.connect(sys.argv[1])
		    return s

		def ask(data):
		    s = connect()
		    try:
		        s.sendall(data)
		        s.shutdown(socket.SHUT_WR)
		        return s.makefile().readline()
		    except (BrokenPipeError, ConnectionResetError):
		        return ""

		for data in (b"\n", b"[]\n", b"{}\n", b"\xff\xff\n", b'{"command": 1}\n', b'{"command": "x"}\n',
		             b'{"command": "explain"}\n', b'{"command": "explain", "path": "\\\\x0"}\n',
		             b'{"command": "failover", "max_freeze_ms": -1}\n', b'{"a": ' * 10000 + b"\n"):
		    reply = json.loads(ask(data))
		    assert reply["ok"] is False and reply["error"], data
		assert ask(b"x" * 1000000) == "" or True
		many = [connect() for _ in range(40)]
		for s in many:
		    s.close()
		s = connect()
		s.sendall(b'{"command": ')
		s.sendall(b'"status"}\n')
		assert json.loads(s.makefile().readline())["ok"] is True
		s.sendall(b'{"command": "status"}\n')
		assert json.loads(s.makefile().readline())["ok"] is True
	END
	cp "$FERRY" "$T/ferry"
	exits 1 'only root' setpriv --reuid 65534 --clear-groups "$T/ferry" status "$NAME"
}

try_busy()
{
	local holder

	exec 8<"$MOUNT/file"
	sleep 60 8<&8 &
	holder=$!
	HELPERS+=("$holder")
	exec 8<&-
	exits 1 "in use by $holder \\(sleep\\)" "$FERRY" stop "$NAME"
	kill -TERM "$DAEMON_PID"
	wait_for 10 "the log to say so" grep -q "in use by $holder (sleep): going on" "$T/state/ferryfs.log"
	echo y >"$MOUNT/still-serves"
	status_is phase converge || fail "it does not serve any more"
	kill "$holder"
	wait "$holder" || true
}

try_log()
{
	mv "$T/state/ferryfs.log" "$T/state/ferryfs.log.1"
	kill -HUP "$DAEMON_PID"
	wait_for 10 "a new log" test -e "$T/state/ferryfs.log"
}

# The three ways to end, and the one that is no end.
try_ends()
{
	kill -TERM "$DAEMON_PID"
	expect_end
	start
	umount "$MOUNT"
	expect_end

	start
	kill -KILL "$DAEMON_PID"
	wait_for 20 "the killed daemon to be gone" daemon_is_gone
	! ls "$MOUNT" >/dev/null 2>&1 || fail "a dead mount answers"
	exits 1 'not running' "$FERRY" status "$NAME"
	exits 1 'has no state of it' "$FERRYFS" --name "$NAME" --state "$T/state2" "$T/source" "$T/target"
	[[ ! -e $T/state2 ]] || fail "left: a state directory"
	start
	[[ $(cat "$MOUNT/file") == content ]] || fail "the source is not back"
	kill -KILL "$DAEMON_PID"
	start # waits for it to be gone
	stop_ferryfs
	[[ ! -e /run/ferryfs/$NAME.sock ]] || fail "left: the control socket"
}

# In the foreground it logs to the terminal and ends by ^C.
try_foreground()
{
	"$FERRYFS" -f --name "$NAME" --state "$T/state" --at "$T/at" "$T/source" "$T/target" 2>"$T/foreground" &
	DAEMON_PID=$!
	MOUNT=$T/at
	wait_for 20 "the mount" mountpoint -q "$T/at"
	wait_for 20 "the socket" ferry status
	[[ $(cat "$T/at/file") == content ]] || fail "--at shows something else"
	kill -INT "$DAEMON_PID"
	wait "$DAEMON_PID" || fail "exit code $? after ^C"
	expect_end
	grep -q 'has ended' "$T/foreground" || fail "nothing on the terminal"
}

# By default the state is where `ferry list` looks for those that were stopped.
try_default_state()
{
	mkdir "$T/source3" "$T/target3"
	bounded 60 "$FERRYFS" --name "$NAME-3" "$T/source3" "$T/target3"
	exits 0 '' "$FERRY" stop "$NAME-3"
	exits 0 "$NAME-3 +stopped .*$T/source3 -> $T/target3" "$FERRY" list
	rm -r "/var/lib/ferryfs/$NAME-3"
	rmdir --ignore-fail-on-non-empty /var/lib/ferryfs
}

try_failover()
{
	start
	wait_converged 60
	exits 0 'changes were held for [0-9]+ ms' "$FERRY" failover "$NAME" --max-freeze 2s
	exits 0 'already' "$FERRY" failover "$NAME"
	exits 0 'already' "$FERRY" wait "$NAME" --converged
	exits 1 'failed over' "$FERRY" pause "$NAME"
	exits 0 'target .*<- serves' "$FERRY" status "$NAME"
	status_is phase guard || fail "not in guard"
	echo after >"$MOUNT/after"
	[[ $(cat "$T/target/after") == after ]] || fail "the target does not serve"
	exits 0 'warning: .*the old source' "$FERRY" stop "$NAME"
	expect_end
	[[ ! -e $T/source/after ]] || fail "the source was written to"
	# The next start goes on where this one ended.
	start
	status_is phase guard || fail "not in guard after a restart"
	[[ $(cat "$MOUNT/after") == after ]] || fail "the stale source is served"
	stop_ferryfs
}

main()
{
	test_begin 280
	trap 'status=$?; rm -rf "/var/lib/ferryfs/$NAME-3"; test_cleanup $status' EXIT
	mkdir -p "$T/source/dir" "$T/target" "$T/at"
	echo content >"$T/source/file"
	chmod 755 "$T"
	try_usage
	start
	try_status
	try_pause
	try_explain
	try_socket
	try_busy
	try_log
	try_ends
	try_foreground
	try_default_state
	try_failover
	test_end
}

main
