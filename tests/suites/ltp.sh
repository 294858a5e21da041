#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The Linux Test Project's programs about file systems: all of its lists fs, dio and
# fs_perms_simple, and of syscalls those that work on files. Each is run on ext4, then on
# the mount if it passed. DIR/ltp is an installed LTP: runtest and testcases/bin.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

LTP=$SUITES/ltp
LIMIT_S=90
LOOP_S=5		# for those that go on for as long as they are told to

# Begins the names of the programs of `syscalls` that concern us.
SYSCALLS='access|chdir|chmod|chown|chroot|copy_file_range|creat|execve|execveat|faccessat|fallocate|
fchdir|fchmod|fchown|fcntl|fdatasync|fgetxattr|flistxattr|flock|fpathconf|fremovexattr|fsetxattr|
fstat|fsync|ftruncate|futimesat|getcwd|getdents|getxattr|inotify|io_cancel|io_submit|io_uring|lchown|
lgetxattr|link|listxattr|llistxattr|llseek|lremovexattr|lseek|lstat|mincore|mkdir|mknod|mmap|msync|
munmap|name_to_handle_at|nftw|open|pathconf|posix_fadvise|pread|pwrite|read|realpath|removexattr|
rename|rmdir|sendfile|setfsgid|setfsuid|setxattr|splice|stat|symlink|sync|tee|truncate|umask|unlink|
utime|vmsplice|write'

# Not of the file system's doing.
LEFT_OUT='^(proc01|read_all_.*|quota_remount.*|isofs|binfmt_misc.*|squashfs01|fs_fill|open_tree.*)$'

list_programs()
{
	{
		cat "$LTP"/runtest/{fs,dio,fs_perms_simple}
		grep -E "^(${SYSCALLS//$'\n'/})[a-z_]*[0-9_A-Z]*[[:space:]]" "$LTP/runtest/syscalls"
	} | grep -vE '^(#|$)' | awk -v out="$LEFT_OUT" '$1 !~ out && !seen[$1]++' |
		sed -E "s/ -L [0-9]+/ -L $LOOP_S/; s/ -i [0-9]+s/ -i ${LOOP_S}s/; s/ -i 1000\b/ -i 100/"
}

# run_program NAME COMMAND: sets OUTCOME. It may end in several ways at once: 1 failed,
# 2 broken, 4 warned, 32 not for this machine.
run_program()
{
	local name=$1 command=$2 status=0 output=$T/out/$SIDE.$1

	mkdir -m 1777 "$WORK/tmp"
	(cd "$WORK/tmp" && TMPDIR=$WORK/tmp suite_run "$LIMIT_S" "$output" bash -c "$command") ||
		status=$?
	# What it made unreadable or immutable must not hinder the next.
	rm -rf "$WORK/tmp" || { chattr -R -ia "$WORK/tmp" && rm -rf "$WORK/tmp"; }
	case $status in
	0) OUTCOME=passed ;;
	32 | 4) OUTCOME=skipped ;;
	*) OUTCOME=failed ;;
	esac
	# It made a file system of its own to work on.
	! grep -q 'Formatting /dev/loop' "$output" || OUTCOME=skipped
	[[ $OUTCOME != failed ]] || {
		printf '%s: %s ended with %d\n' "$SIDE" "$name" "$status"
		[[ $SIDE == plain ]] || grep -E 'TFAIL|TBROK|FAIL' "$output" | head -n 8
	}
	suite_note "$SIDE" "$OUTCOME" "$name"
}

run_programs()
{
	local list=$1 name command

	while read -r name command; do
		run_program "$name" "$command"
		[[ $OUTCOME != passed ]] || printf '%s %s\n' "$name" "$command" >>"$list.passed"
	done <"$list"
	say "$SIDE: $(suite_count "$SIDE")"
}

suite_needs ltp/runtest/fs ltp/testcases/bin
suite_begin 5400
export LTPROOT=$LTP PATH=$LTP/testcases/bin:$PATH
export LTP_COLORIZE_OUTPUT=n LTP_SINGLE_FS_TYPE=ext4
list_programs | grep -E "${1:-.}" >"$T/programs"
say "$(wc -l <"$T/programs") programs"

suite_plain
run_programs "$T/programs"
suite_mount
run_programs "$T/programs.passed"
suite_unmount
suite_end
