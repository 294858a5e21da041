#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A private NFS server (nfs-ganesha, NFSv3 over TCP on 127.0.0.1) for tests and the demo.
# Any number may run at once, each with a directory of its own for its state.
#
#	. tests/lib/ganesha.sh
#	ganesha_start DIR EXPORTED [OPTION=VALUE]...	sets GANESHA_URL
#	ganesha_stop DIR
#
# OPTION: squash (No_Root_Squash, Root_Squash, All_Squash), access (RW, RO), and
# restart (0: the server stays down when it ends; a number: it comes back after so many
# seconds, 1 or more: its write verifier is the second it started in).
#
# In DIR: url, pid (of the server of the moment), ganesha.log, and, to be made by whoever
# wants it, hold: as long as it exists the server is not started again. So a program under
# test kills and revives its server without help from its script.
#
# The server ends with the process that called ganesha_start, however that ends. While it
# runs the exported directory must not be changed behind its back, only read.

GANESHA_LIB=$(realpath "${BASH_SOURCE[0]}")
GANESHA_PLUGINS=/usr/lib/$(uname -m)-linux-gnu/ganesha

# 77, the exit code of a skipped test, when the machine has no such server.
ganesha_available()
{
	command -v ganesha.nfsd >/dev/null && [[ -e $GANESHA_PLUGINS/libfsalvfs.so ]] && return
	printf 'nfs-ganesha and its VFS module are not installed (tools/setup does that)\n' >&2
	return 77
}

# A port that nothing listens on, below those that the kernel hands out itself.
ganesha_free_port()
{
	local port

	while :; do
		port=$((20000 + RANDOM % 12000))
		[[ -n $(ss -Hlnt "sport = :$port") ]] || break
	done
	printf '%s\n' "$port"
}

ganesha_write_config()
{
	local dir=$1 exported=$2 squash=$3 access=$4 nfs_port=$5 mount_port=$6

	cat >"$dir/ganesha.conf" <<-END
		NFS_CORE_PARAM {
			NFS_Port = $nfs_port;
			MNT_Port = $mount_port;
			Bind_addr = 127.0.0.1;
			Protocols = 3;
			Enable_UDP = false;
			Enable_NLM = false;
			Enable_RQUOTA = false;
			mount_path_pseudo = true;
			Plugins_Dir = $GANESHA_PLUGINS;
		}
		NFSV4 {
			Graceless = true;
			RecoveryBackend = fs;
			RecoveryRoot = $dir/recovery;
		}
		NFS_KRB5 { Active_krb5 = false; }
		# Many files at once must not use up its file descriptors.
		MDCACHE {
			LRU_Run_Interval = 1;
			FD_HWMark_Percent = 20;
			FD_LWMark_Percent = 5;
			Reaper_Work_Per_Lane = 2000;
		}
		LOG { Default_Log_Level = EVENT; }
		EXPORT {
			Export_Id = 1;
			Path = $exported;
			Pseudo = /export;
			Access_Type = $access;
			Squash = $squash;
			SecType = sys;
			Protocols = 3;
			Transports = TCP;
			FSAL { Name = VFS; }
		}
	END
	printf 'nfs://127.0.0.1/export?nfsport=%s&mountport=%s\n' "$nfs_port" "$mount_port" >"$dir/url"
}

# Runs the server until it ends, again and again as $2 says. Its own process, so that the
# kernel ends it when the caller dies.
ganesha_keep()
{
	local dir=$1 restart=$2 pid

	trap 'kill -KILL "$pid" 2>/dev/null; exit' TERM
	while :; do
		LD_PRELOAD=$dir/norpcb.so setpriv --pdeathsig KILL ganesha.nfsd -F \
			-f "$dir/ganesha.conf" -L "$dir/ganesha.log" -p "$dir/ganesha.lock" \
			-N NIV_EVENT >"$dir/ganesha.out" 2>&1 &
		pid=$!
		printf '%s\n' "$pid" >"$dir/pid.new"
		mv "$dir/pid.new" "$dir/pid"
		wait "$pid" 2>/dev/null || true
		[[ $restart != 0 ]] || break
		sleep "$restart" &
		wait $! || true
		while [[ -e $dir/hold ]]; do
			sleep 0.05 &
			wait $! || true
		done
	done
}

# Does the server of $1 listen on port $2? 2: it has ended.
ganesha_listens()
{
	local pid

	pid=$(cat "$1/pid" 2>/dev/null) || return 1
	[[ -e /proc/$pid ]] || return 2
	[[ -n $(ss -Hlnt "sport = :$2") ]]
}

# Up to 10 seconds. 2: it has ended.
ganesha_wait()
{
	local i status

	for ((i = 0; i < 200; i++)); do
		status=0
		ganesha_listens "$1" "$2" || status=$?
		((status == 1)) || return "$status"
		sleep 0.05
	done
	return 1
}

ganesha_start()
{
	local dir=$1 exported=$2 squash=No_Root_Squash access=RW restart=0 option port i
	shift 2

	ganesha_available || return
	for option; do
		case $option in
		squash=* | access=* | restart=*) local "${option?}" ;;
		*)
			printf "ganesha_start: what is '%s'?\n" "$option" >&2
			return 2
			;;
		esac
	done
	mkdir -p "$dir/recovery" "$exported"
	dir=$(realpath "$dir") exported=$(realpath "$exported")
	cc -shared -fPIC -o "$dir/norpcb.so" "$(dirname "$GANESHA_LIB")/norpcb.c" || return

	# Somebody else may take a port between our look and its start.
	for ((i = 0; i < 10; i++)); do
		port=$(ganesha_free_port)
		ganesha_write_config "$dir" "$exported" "$squash" "$access" \
			"$port" "$(ganesha_free_port)"
		rm -f "$dir/pid"
		setpriv --pdeathsig TERM "$GANESHA_LIB" keep "$dir" "$restart" &
		printf '%s\n' "$!" >"$dir/keeper"
		if ganesha_wait "$dir" "$port"; then
			GANESHA_URL=$(cat "$dir/url")
			return 0
		fi
		ganesha_stop "$dir"
	done
	printf "nfs-ganesha does not start, see '%s'\n" "$dir/ganesha.log" >&2
	return 1
}

# Ends it, and everything that keeps it. For one that never ran too.
ganesha_stop()
{
	local dir=$1 keeper pid

	keeper=$(cat "$dir/keeper" 2>/dev/null) || return 0
	pid=$(cat "$dir/pid" 2>/dev/null) || pid=
	kill -TERM "$keeper" 2>/dev/null || true
	wait "$keeper" 2>/dev/null || true
	while [[ -n $pid && -e /proc/$pid ]]; do
		kill -KILL "$pid" 2>/dev/null || true
		sleep 0.02
	done
	rm -f "$dir/keeper" "$dir/pid"
}

# Run as a program it is the keeper.
if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
	[[ ${1:-} == keep && $# == 3 ]] || exit 2
	ganesha_keep "$2" "$3"
fi
