#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A source that becomes full: the workload sees what it would see there.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

overlay_begin
for dir in source plain; do
	mount -t tmpfs -o size=6M,mode=777 parity-full "$DIR/$dir"
done
overlay_start
timeout 60 "$PROGRAMS/parity" "$DIR/plain" "$DIR/mnt" 'full:'
wait_for_stat orphans 0
overlay_stop
umount "$DIR/source" "$DIR/plain"
