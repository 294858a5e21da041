# SPDX-License-Identifier: Apache-2.0
#
# What the scripts that run public suites share; to be sourced first:
#
#	. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
#	suite_begin LIMIT_S		two loop ext4, in a mount namespace of our own
#	suite_plain | suite_mount	sets $WORK: a directory for the suite to work in, of the
#					ext4 as it is, or of ferryfs over it, which migrates
#	suite_unmount			fails over, ends it, and compares both sides
#	suite_end			judges, and exits 0 or 1
#
# A check has a name, and one outcome a side: suite_note SIDE passed|failed|skipped NAME.
# What fails on the mount is a fault, but for two kinds: what fails on the plain ext4 too,
# and what the file expected-SUITE lists with its reason, as "NAME<tab>REASON".
#
# Set by the caller, tests/run: FERRYFS_SUITES, where the suites are (only read), and
# FERRYFS_SUITE_SUMMARY, a file to which one line about the suite is added.

# Suites mount, and ask about every mount there is.
if [[ ${FERRYFS_SUITE_NAMESPACE:-} != "$$" ]]; then
	export FERRYFS_SUITE_NAMESPACE=$$
	exec unshare --mount --propagation slave "$BASH" "$0" "$@"
fi

. "$(dirname "${BASH_SOURCE[0]}")/../lib/common.sh"

SUITE=$(basename "$0" .sh)
HERE=$ROOT/tests/suites
SUITES=${FERRYFS_SUITES:?"names no directory of suites"}
EXPECTED=$HERE/expected-$SUITE
SIDE=
WORK=
export LC_ALL=C

# ---- beginning and end --------------------------------------------------------

# suite_needs FILE...: exits 77 if the suite is not in FERRYFS_SUITES.
suite_needs()
{
	local file

	for file; do
		[[ -e $SUITES/$file ]] && continue
		printf "missing: '%s'\n" "$SUITES/$file"
		suite_summary "missing: '$SUITES/$file'"
		exit 77
	done
}

suite_summary()
{
	printf '%s: %s\n' "$SUITE" "$1"
	[[ -z ${FERRYFS_SUITE_SUMMARY:-} ]] ||
		printf '%-10s %s\n' "$SUITE" "$1" >>"$FERRYFS_SUITE_SUMMARY"
}

suite_begin()
{
	test_begin "$1"
	trap 'suite_broken $?' EXIT
	export TMPDIR=$T/tmp
	mkdir -m 1777 "$TMPDIR"
	mkdir "$T/out"
	touch "$T/noted"
	loop_disk source
	loop_disk target
	# What the mount covers is seen here.
	mkdir "$T/beneath"
	mount --bind "$T/source" "$T/beneath"
}

# The script ended before it judged: then that is the outcome.
suite_broken()
{
	(($1 == 0 || $1 == 77)) || suite_summary "BROKEN OFF after $SECONDS s"
	test_cleanup "$1"
}

# loop_disk NAME: a new ext4 at $T/NAME.
loop_disk()
{
	truncate -s "${DISK_SIZE:-6G}" "$T/$1.image"
	mkfs.ext4 -q -E lazy_itable_init=1,lazy_journal_init=1 "$T/$1.image"
	LOOPS+=("$(losetup -f --show "$T/$1.image")")
	mkdir "$T/$1"
	mount "${LOOPS[-1]}" "$T/$1"
	chmod 755 "$T/$1"
}

# ---- the sides ----------------------------------------------------------------

suite_plain()
{
	SIDE=plain
	WORK=$T/source/plain
	mkdir -m 1777 "$WORK"
	say "on ext4"
}

suite_mount()
{
	SIDE=mount
	mkdir -m 1777 "$T/source/served"
	mkdir "$T/target/copy"
	start_ferryfs "$T/source/served" "$T/target/copy"
	WORK=$MOUNT
	BENEATH=$T/beneath/served
	TARGET_DIR=$T/target/copy
	say "on ferryfs"
}

# Whatever the suite did: nothing of it is lost on the way to the target.
suite_unmount()
{
	bounded 300 "$TOOLS/treecmp" "$MOUNT" "$BENEATH" >"$T/treecmp.out" ||
		fail "the mount differs from what is beneath it: $(head -n 20 "$T/treecmp.out")"
	ferry failover --max-freeze 20s || fail "the failover was refused"
	bounded 300 "$TOOLS/treecmp" "$MOUNT" "$BENEATH" >"$T/treecmp.out" ||
		fail "after the failover the mount differs: $(head -n 20 "$T/treecmp.out")"
	stop_ferryfs
	compare_trees "$BENEATH" "$TARGET_DIR" --ignore "$LIMBO"
}

# suite_run LIMIT_S OUTPUT COMMAND...: with a time limit, and nothing of it left behind.
suite_run()
{
	local limit_s=$1 output=$2
	shift 2

	timeout -k 5 "$limit_s" "$@" >"$output" 2>&1 </dev/null
}

# ---- judging ------------------------------------------------------------------

# suite_note SIDE OUTCOME NAME
suite_note()
{
	printf '%s\t%s\t%s\n' "$1" "$2" "$3" >>"$T/noted"
}

suite_count()
{
	awk -F'\t' -v side="$1" '$1 == side { n[$2]++ }
		END { printf "%d passed, %d failed, %d skipped", n["passed"], n["failed"], n["skipped"] }' \
		"$T/noted"
}

expected_names()
{
	[[ ! -e $EXPECTED ]] || sed '/^#/d; /^$/d; s/\t.*//' "$EXPECTED"
}

# noted SIDE OUTCOME: the names, sorted.
noted()
{
	awk -F'\t' -v side="$1" -v outcome="$2" '$1 == side && $2 == outcome { print $3 }' \
		"$T/noted" | sort -u
}

suite_end()
{
	local faults known surprises text

	trap 'test_cleanup $?' EXIT
	expected_names | sort -u >"$T/expected"
	noted mount failed >"$T/failed"
	faults=$(comm -23 "$T/failed" "$T/expected" | comm -23 - <(noted plain failed))
	known=$(comm -12 "$T/failed" "$T/expected")
	surprises=$(noted mount passed | comm -12 - "$T/expected")

	text="mount $(suite_count mount)"
	! grep -q '^plain' "$T/noted" || text+="; ext4 $(suite_count plain)"
	[[ -z $known ]] || text+="; $(wc -l <<<"$known") expected"
	[[ -z $surprises ]] || {
		text+="; $(wc -l <<<"$surprises") passed UNEXPECTEDLY"
		printf 'passed, but is listed as expected to fail: %s\n' $surprises
	}
	# Nothing passed: then nothing was tested.
	if [[ -z $faults ]] && [[ -n $(noted mount passed | head -n 1) ]]; then
		suite_summary "$text"
		test_end
		exit 0
	fi
	printf 'FAILED: %s\n' "${faults:-everything}"
	suite_summary "$text; FAULTS: $(wc -w <<<"$faults")"
	exit 1
}
