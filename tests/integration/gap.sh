#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# What is changed on the bare source between `ferry stop` and the next start is found and
# carried, and nothing else is copied again.
. "$(dirname "${BASH_SOURCE[0]}")/../lib/common.sh"

SEED=${FERRYFS_SEED:-$RANDOM}
FILES=${FERRYFS_FILES:-5000}

# Changes of every kind to $1, none to $1/still.
change_bare_source()
{
	local s=$1 stamp

	echo new >"$s/created"
	mkdir "$s/d/made"
	echo new >"$s/d/made/file"
	rm "$s/d/deleted"
	rm -r "$s/tree-deleted"
	mv "$s/d/renamed" "$s/e/renamed-across"
	mv "$s/tree-renamed" "$s/e/tree"
	mv "$s/d/over" "$s/d/overwritten"
	ln "$s/d/linked" "$s/e/link"
	ln -s nowhere "$s/e/symlink"
	echo more >>"$s/d/appended"
	truncate -s 10 "$s/d/shrunk"
	chmod 4711 "$s/d/mode"
	chown 1000:1001 "$s/d/owner"
	touch -d '1999-12-31 23:59:59.123456789 UTC' "$s/d/time"
	setfattr -n user.late -v value "$s/d/xattr"
	setfacl -m u:1001:rwx "$s/d/acl"
	# The same size, and the old mtime put back.
	stamp=$(stat -c %y "$s/d/sneaky")
	printf 'B' | dd of="$s/d/sneaky" bs=1 seek=5000 conv=notrunc status=none
	touch -d "$stamp" "$s/d/sneaky"
	# Other types under old names.
	rm "$s/d/was-file" && mkdir "$s/d/was-file" && echo x >"$s/d/was-file/x"
	rm -r "$s/d/was-dir" && ln -s ../still "$s/d/was-dir"
	# Two names changed places.
	mv "$s/d/swap-a" "$s/d/tmp" && mv "$s/d/swap-b" "$s/d/swap-a" && mv "$s/d/tmp" "$s/d/swap-b"
	# Child and parent changed places.
	mv "$s/parent/child" "$s/child" && mv "$s/parent" "$s/child/parent"
}

make_changeable()
{
	local s=$1 name

	mkdir "$s/d" "$s/e" "$s/d/was-dir" "$s/parent" "$s/parent/child"
	for name in deleted renamed over overwritten linked appended shrunk mode owner time xattr \
		acl sneaky was-file was-dir/file swap-a swap-b; do
		head -c 10000 /dev/urandom >"$s/d/$name"
	done
	cp -a "$s/d" "$s/tree-deleted"
	cp -a "$s/d" "$s/tree-renamed"
	cp -a "$s/d" "$s/parent/child/sub"
}

test_begin 240
make_target dir
make_tree dir "$SHM/source/still" "$FILES" 100 "$SEED"
make_changeable "$SHM/source"
start_ferryfs "$SHM/source" "$TARGET"
start_writer 1 mix --seed "$SEED"
sleep 3
stop_writers
wait_converged 120
stop_ferryfs
compare_trees "$SHM/source" "$TARGET_DIR" "${CMP[@]}"

change_bare_source "$SHM/source"
sleep 0.1
touch "$T/restarted"
start_ferryfs "$SHM/source" "$TARGET"
wait_converged 120
status_is errors.count 0 || fail "errors: $(status_get errors)"
again=$(find "$TARGET_DIR/still" -newerct "$(stat -c %y "$T/restarted")" | wc -l)
((again == 0)) || fail "$again objects that nobody changed were touched again"
start_writer 1 mix --seed "$SEED"
sleep 2
stop_writers
ferry failover --max-freeze 10s || fail "the failover was refused"
stop_ferryfs
compare_trees "$SHM/source" "$TARGET_DIR" "${CMP[@]}"
check_writers "$TARGET_DIR"
test_end
