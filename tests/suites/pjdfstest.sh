#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# pjdfstest, whole: the POSIX semantics of each operation, 8,799 checks on Linux. It
# leaves out some on file systems that it does not know; it is told that the mount is an
# ext4, which is what it has to behave like. 28 more ask for what Linux does otherwise, as
# it says itself: they are counted as skipped. DIR/pjdfstest holds the program `pjdfstest`
# and `tests`.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

SCRIPT_LIMIT_S=300

# One script of the suite; each check of it is noted.
run_script()
{
	local script=$1 name output=$T/out/pjdfstest

	name=${script#"$T/pjdfstest/tests/"}
	(cd "$WORK" && suite_run "$SCRIPT_LIMIT_S" "$output" sh "$script") ||
		printf 'not ok 0 ended with an error\n' >>"$output"
	awk -v side="$SIDE" -v name="$name" -v OFS='\t' '
		/^1\.\.0/ { print side, "skipped", name; plan = 0 }
		/^1\.\.[1-9]/ { plan = substr($1, 4) + 0 }
		/^not ok .*# TODO/ { print side, "skipped", name ":" $3; seen++; next }
		/^ok / { print side, "passed", name ":" $2; seen++ }
		/^not ok / { print side, "failed", name ":" $3; seen++
			print name ": " $0 >"/dev/stderr" }
		END { if (seen < plan) print side, "failed", name ":missing" }
	' "$output" >>"$T/noted"
}

run_scripts()
{
	local script

	while read -r script; do
		run_script "$script"
	done < <(find "$T/pjdfstest/tests" -name '*.t' | sort)
	say "$SIDE: $(suite_count "$SIDE")"
}

suite_needs pjdfstest/pjdfstest pjdfstest/tests/conf
suite_begin 1800
cp -a "$SUITES/pjdfstest" "$T/pjdfstest"
sed -i 's/^\tfs=`df.*/\tfs=EXT4/' "$T/pjdfstest/tests/conf"

suite_plain
run_scripts
suite_mount
run_scripts
suite_unmount
suite_end
