/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* libnfs's headers, which depend on each other without including each other. */

/* clang-format off */
#include <nfsc/libnfs-zdr.h>
#include <nfsc/libnfs.h>
#include <nfsc/libnfs-raw.h>
#include <nfsc/libnfs-raw-mount.h>
#include <nfsc/libnfs-raw-nfs.h>
#include <nfsc/libnfs-raw-portmap.h>
/* clang-format on */
