#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# inotifywait on the mount hears of changes made through it what it hears on a plain
# directory, in the same order: before a failover and after it, by watches set before.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# change DIR TURN: everything that has an event, by one program after the other.
change()
{
	python3 - "$1" "$2" <<-'EOF'
		import mmap, os, sys

		os.chdir(sys.argv[1])
		turn = sys.argv[2]

		def put(name, data, flags=os.O_WRONLY | os.O_CREAT | os.O_TRUNC):
		    fd = os.open(name, flags, 0o644)
		    os.write(fd, data)
		    os.close(fd)

		put("new" + turn, b"x" * 10000)			# created
		put("new" + turn, b"shorter")			# truncated
		put("old", b"appended", os.O_WRONLY | os.O_APPEND)
		with open("old", "rb") as f:
		    f.read()
		    f.read(0)
		fd = os.open("old", os.O_RDWR)
		os.pwrite(fd, b"y" * 5000, 100)
		os.ftruncate(fd, 300)
		os.fchmod(fd, 0o600)
		os.utime(fd, (1, 1))
		os.setxattr(fd, "user.x", b"value")
		os.removexattr(fd, "user.x")
		os.fsync(fd)
		os.close(fd)
		os.chown("old", 1, 1)
		os.truncate("old", 1000)
		os.mkdir("dir" + turn)
		os.rename("new" + turn, "sub/moved" + turn)
		os.rename("sub/moved" + turn, "sub/again" + turn)
		put("over" + turn, b"over")
		os.rename("sub/again" + turn, "over" + turn)
		os.link("over" + turn, "sub/link" + turn)
		os.symlink("over" + turn, "symlink" + turn)
		os.mkfifo("sub/fifo" + turn)
		os.listdir("sub")
		os.rename("dir" + turn, "sub/dir" + turn)
		os.rmdir("sub/dir" + turn)
		os.unlink("sub/link" + turn)
		os.unlink("symlink" + turn)
		os.unlink("sub/fifo" + turn)
		# Unlinked while it is open.
		fd = os.open("over" + turn, os.O_RDWR)
		os.unlink("over" + turn)
		os.write(fd, b"unseen")
		os.close(fd)
		# A file that is watched itself, and goes.
		os.chmod("watched" + turn, 0o640)
		put("watched" + turn, b"more", os.O_WRONLY | os.O_APPEND)
		os.rename("watched" + turn, "sub/watched" + turn)
		os.unlink("sub/watched" + turn)
		put("end" + turn, b"")
	EOF
}

# watch NAME DIR
watch()
{
	(cd "$2" && exec inotifywait -m --format '%w %e %f' . sub watched1 watched2) >"$T/$1" 2>"$T/$1.said" &
	HELPERS+=($!)
	wait_for 20 "the watches of $1" grep -qs "Watches established" "$T/$1.said"
}

# compare TURN: of equal events in a row the kernel merges those that nobody has read yet.
compare()
{
	local name

	for name in plain mount; do
		wait_for 20 "the last event of $name" grep -q "CLOSE_WRITE.* end$1\$" "$T/$name"
		uniq "$T/$name" >"$T/$name.merged"
	done
	diff -u "$T/plain.merged" "$T/mount.merged" >"$T/differ" || fail "turn $1: other events: $(cat "$T/differ")"
	say "turn $1: $(wc -l <"$T/mount.merged") events alike"
}

apps_begin 90
for dir in "$SHM/plain" "$WORK"; do
	mkdir -p "$dir/sub"
	echo old | tee "$dir/old" "$dir/watched1" >"$dir/watched2"
done
watch plain "$SHM/plain"
watch mount "$WORK"
change "$SHM/plain" 1
change "$WORK" 1
compare 1
for kind in ACCESS MODIFY ATTRIB CLOSE_WRITE CLOSE_NOWRITE OPEN MOVED_FROM MOVED_TO CREATE DELETE \
	DELETE_SELF MOVE_SELF; do
	grep -qw "$kind" "$T/plain" || fail "no $kind was seen at all"
done
wait_converged 30
apps_failover
change "$SHM/plain" 2
change "$WORK" 2
compare 2
helpers_kill "${HELPERS[@]}"
apps_end
