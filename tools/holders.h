/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Who keeps a mount busy: the processes with a file, a map, their working or root
 * directory below it, from /proc. Asks the file system itself nothing.
 */

#include "util/attr.h"

/* "1234 (postgres), 1240 (bash) and 3 more"; "" if none was found. NULL: no memory.
 * The caller frees. */
char *holders_of(const char *mountpoint);
