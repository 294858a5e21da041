#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""unchanged.py SOURCE TARGET: of the source as it was at the flip and the target some time
later: a file that has the same path and mtime on both was not changed since, so its bytes
are the same too. Says how many there are; exits 1 if one differs."""
import filecmp
import os
import stat
import sys


def main():
    source, target = sys.argv[1:]
    same = wrong = 0
    for top, _, names in os.walk(source):
        for name in names:
            path = os.path.join(top, name)
            other = os.path.join(target, os.path.relpath(path, source))
            try:
                a, b = os.lstat(path), os.lstat(other)
            except FileNotFoundError:
                continue
            if not stat.S_ISREG(a.st_mode) or not stat.S_ISREG(b.st_mode):
                continue
            if a.st_mtime_ns != b.st_mtime_ns:
                continue
            same += 1
            if not filecmp.cmp(path, other, shallow=False):
                wrong += 1
                print(f"differs: {path}")
    print(f"{same} files unchanged since the flip, {wrong} wrong")
    return 1 if wrong else 0


sys.exit(main())
