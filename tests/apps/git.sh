#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# git: a repository of some thousand commits is cloned to the mount, and works there through
# a failover: branches between which names change their type are checked out by turns,
# commits made, packs written. Afterwards every object is sound, no commit is missing, and
# git finds the working tree as it left it.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

COMMITS=$(long_or_short 20000 1000)
FILES=$(long_or_short 20000 800)
PHASE_S=$(long_or_short 60 1)

export HOME=$T GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_OPTIONAL_LOCKS=0
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b

# History for fast-import. Each branch of swap-* has in swapped/N something of another type.
history()
{
	python3 - "$COMMITS" "$FILES" "$SEED" <<-'EOF'
		import random, sys

		commits, files, seed = map(int, sys.argv[1:])
		random.seed(seed)
		out = sys.stdout.buffer
		when = 1600000000

		def data(text):
		    text = text.encode()
		    out.write(b"data %d\n%s\n" % (len(text), text))

		def commit(branch, after, changes):
		    global when
		    when += 60
		    out.write(f"commit refs/heads/{branch}\ncommitter a <a@b> {when} +0000\n".encode())
		    data(f"change {when}")
		    if after:
		        out.write(f"from refs/heads/{after}\n".encode())
		    for mode, path, text in changes:
		        if mode:
		            out.write(f"M {mode} inline {path}\n".encode())
		            data(text)
		        else:
		            out.write(f"D {path}\n".encode())

		def path(n):
		    return f"d{n % 17}/e{n % 61}/f{n}"

		def text():
		    return "".join(f"{random.random()}\n" for _ in range(random.randrange(1, 60)))

		commit("main", None, [("100644", path(n), text()) for n in range(files)])
		for _ in range(commits):
		    commit("main", None, [("100644", path(random.randrange(files)), text())])
		out.write(b"reset refs/heads/swap-0\nfrom refs/heads/main\n\n")
		for turn in range(3):
		    changes = []
		    for n in range(90):
		        name = f"swapped/{n}"
		        changes.append((None, name, None))
		        kind = (n + turn) % 3
		        if kind == 0:
		            changes.append(("100755", name, text()))
		        elif kind == 1:
		            changes.append(("120000", name, f"../d{n % 17}"))
		        else:
		            changes += [("100644", f"{name}/{i}/file", text()) for i in range(3)]
		        # And what every branch has, with other contents.
		        changes.append(("100644", path(n), text()))
		    commit(f"swap-{turn}", "main" if turn else None, changes)
	EOF
}

is_clean()
{
	local status

	status=$(git -C "$1" -c core.checkStat=default status --porcelain) ||
		fail "git status fails in '$1'"
	[[ -z $status ]] || fail "'$1' is not clean: $(head <<<"$status")"
}

# is_sound DIR
is_sound()
{
	git -C "$1" fsck --full --strict --no-dangling >"$T/fsck" 2>&1 ||
		fail "fsck of '$1': $(head -n 20 "$T/fsck")"
}

# Works in $1 until the file $2 is there; the branch heads that it was told of go to $3.
work()
{
	local dir=$1 until=$2 heads=$3 turn=0

	while [[ ! -e $until ]]; do
		git -C "$dir" checkout -q "swap-$((turn % 3))"
		echo "$turn" >"$dir/work-$((turn % 5))"
		git -C "$dir" add .
		git -C "$dir" commit -q -m "turn $turn"
		git -C "$dir" rev-parse HEAD >>"$heads"
		((turn % 4 != 3)) || git -C "$dir" repack -q -d
		turn=$((turn + 1))
	done
	git -C "$dir" checkout -q main
	is_clean "$dir"
}

# has_commits DIR HEADS
has_commits()
{
	local head

	while read -r head; do
		git -C "$1" rev-list -n 1 "$head" >/dev/null || fail "'$1' has lost commit $head"
	done <"$2"
}

apps_begin 200
git init -q --bare -b main "$SHM/origin"
history | git -C "$SHM/origin" fast-import --quiet || fail "cannot make a repository"
git clone -q --no-local "$SHM/origin" "$WORK/clone"
say "cloned $(git -C "$WORK/clone" rev-list --all --count) commits"
for turn in 0 1 2; do
	git -C "$WORK/clone" branch -q "swap-$turn" "origin/swap-$turn"
done
is_clean "$WORK/clone"
is_sound "$WORK/clone"

helper work "$WORK/clone" "$T/done" "$T/heads"
worker=${HELPERS[-1]}
wait_for 30 "the first commit" test -s "$T/heads"
sleep "$PHASE_S"
cp "$T/heads" "$T/heads-before"
apps_failover
git clone -q --no-local "$WORK/clone" "$WORK/second"
touch "$T/done"
helper_ends "$worker" "the work in the clone"
say "$(wc -l <"$T/heads-before") commits before the failover, $(wc -l <"$T/heads") in all"
(($(wc -l <"$T/heads") > $(wc -l <"$T/heads-before"))) || fail "no work was done after it"

git -C "$WORK/clone" -c gc.pruneExpire=now gc -q
for repository in "$WORK/clone" "$WORK/second" "$BEYOND/clone" "$BEYOND/second"; do
	is_sound "$repository"
	is_clean "$repository"
done
has_commits "$WORK/clone" "$T/heads"
has_commits "$BEYOND/clone" "$T/heads"
is_sound "$BELOW/clone"
has_commits "$BELOW/clone" "$T/heads-before"
apps_end
