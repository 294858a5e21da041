#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""open_files.py DIR READY GO: holds 5,000 files open, of which 3,000 are unlinked, works with
some of them by turns until GO is there and with all after it, and says what is to be in DIR then."""
import os
import resource
import sys
import time

FILES = 5000
UNLINKED = 3000
DIRS = 300


def text(n, turn):
    return f"{n} in turn {turn};".encode()


def main():
    top, ready, go = sys.argv[1:]
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, FILES + 100), hard))
    files = []
    expected = {}
    for n in range(DIRS):
        os.mkdir(f"{top}/d{n}")
    for n in range(FILES):
        name = f"{top}/d{n % DIRS}/f{n}"
        files.append(os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL))
        expected[n] = b""
    turn = 0

    def work(step=1):
        nonlocal turn
        for n, fd in list(enumerate(files))[turn % step :: step]:
            size = os.fstat(fd).st_size
            assert size == len(expected[n]), f"file {n} has {size} bytes in turn {turn}"
            os.pwrite(fd, text(n, turn), size)
            expected[n] += text(n, turn)
            found = os.pread(fd, 10000, 0)
            assert found == expected[n], f"file {n} holds {found} in turn {turn}"
        turn += 1

    work()
    for n in range(UNLINKED):
        os.unlink(f"{top}/d{n % DIRS}/f{n}")
    work()
    open(ready, "w").close()
    while not os.path.exists(go):
        work(20)
        time.sleep(0.05)
    work()
    for n, fd in enumerate(files):
        assert os.fstat(fd).st_nlink == (0 if n < UNLINKED else 1), f"links of file {n}"
        # The kernel's pages would tell what no store knows.
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        assert os.pread(fd, 10000, 0) == expected[n], f"file {n} at the end"
        os.close(fd)
    for n in range(UNLINKED, FILES):
        print(f"d{n % DIRS}/f{n}", expected[n].decode())


main()
