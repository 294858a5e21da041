#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# make -j4 of a C program with generated dependencies, which lives by times: what is built
# is up to date, what is touched is built again and nothing else, before a failover and
# after it, with a build running through it. So too on the target by itself.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

UNITS=$(long_or_short 400 28)

# Each unit includes its own header and one of seven that are shared.
make_program()
{
	local dir=$1 i

	mkdir -p "$dir/include"
	for ((i = 0; i < 7; i++)); do
		printf 'enum { SHARED_%d = %d };\n' "$i" "$i" >"$dir/include/shared$i.h"
	done
	for ((i = 0; i < UNITS; i++)); do
		printf 'int unit%d(void);\n' "$i" >"$dir/include/unit$i.h"
		printf '#include "unit%d.h"\n#include "shared%d.h"\nint unit%d(void)\n{\n\treturn %d + SHARED_%d;\n}\n' \
			"$i" $((i % 7)) "$i" "$i" $((i % 7)) >"$dir/unit$i.c"
	done
	{
		for ((i = 0; i < UNITS; i++)); do
			printf '#include "unit%d.h"\n' "$i"
		done
		printf '#include <stdio.h>\nint main(void)\n{\n\tint sum = 0;\n\n'
		for ((i = 0; i < UNITS; i++)); do
			printf '\tsum += unit%d();\n' "$i"
		done
		printf '\tprintf("%%d\\n", sum);\n\treturn 0;\n}\n'
	} >"$dir/main.c"
	cat >"$dir/Makefile" <<-'EOF'
		.RECIPEPREFIX = >
		OBJECTS := $(patsubst %.c,build/%.o,$(wildcard *.c))
		program: build/libunits.a build/main.o
		>gcc -o $@ build/main.o -Lbuild -lunits
		build/libunits.a: $(filter-out build/main.o,$(OBJECTS))
		>rm -f $@
		>ar rcs $@ $^
		build/%.o: %.c | build
		>gcc -O0 -Iinclude -MMD -MP -c -o $@ $<
		build:
		>mkdir build
		clean:
		>rm -rf build program
		-include $(OBJECTS:.o=.d)
	EOF
}

build()
{
	bounded 60 make -C "$1" -j4 >"$T/made" 2>&1 || fail "make in '$1': $(tail "$T/made")"
	! grep -qi 'skew\|has modification time' "$T/made" || fail "a clock is wrong: $(cat "$T/made")"
}

is_up_to_date()
{
	bounded 60 make -C "$1" -q >"$T/made" || fail "'$1' is not up to date"
}

# rebuilds DIR COUNT: so many units are compiled.
rebuilds()
{
	local count

	build "$1"
	count=$(grep -c -- '-c -o' "$T/made" || true)
	((count == $2)) || fail "$count units were built, not $2: $(cat "$T/made")"
	is_up_to_date "$1"
}

runs()
{
	local sum

	sum=$("$1/program")
	((sum == SUM)) || fail "the program in '$1' says $sum, not $SUM"
}

check_builds()
{
	local dir=$1 shared=0 i

	for ((i = 3; i < UNITS; i += 7)); do
		shared=$((shared + 1))
	done
	is_up_to_date "$dir"
	rebuilds "$dir" 0
	sleep 0.02 # a tick of the kernel's clock
	touch "$dir/unit5.c"
	rebuilds "$dir" 1
	sleep 0.02
	touch "$dir/include/shared3.h"
	rebuilds "$dir" "$shared"
	runs "$dir"
}

apps_begin 150
SUM=0
for ((i = 0; i < UNITS; i++)); do
	SUM=$((SUM + i + i % 7))
done
make_program "$WORK/program"
rebuilds "$WORK/program" $((UNITS + 1))
check_builds "$WORK/program"
cp -a "$WORK/program" "$WORK/other"
make -C "$WORK/other" clean >"$T/made"

helper build "$WORK/other"
building=${HELPERS[-1]}
apps_failover
is_up_to_date "$WORK/program"
helper_ends "$building" "the build"
runs "$WORK/other"
check_builds "$WORK/program"
check_builds "$WORK/other"
cp -a "$BEYOND" "$SHM/alone"
rebuilds "$SHM/alone/program" 0
check_builds "$SHM/alone/other"
rebuilds "$BELOW/program" 0
apps_end
