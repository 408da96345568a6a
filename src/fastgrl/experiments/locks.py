"""Locks between programs that a killed program cannot leave behind: single bytes of a file.

A byte can be locked whether or not the file is that long. The lock is gone when the program ends in any way,
and on most systems as soon as it closes the file anywhere: open it once.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

_PAUSE = 0.02

if sys.platform == "win32":
    import msvcrt

    def lock_byte(file: int, place: int) -> bool:
        """Lock a byte of an open file; False if another program has it."""
        os.lseek(file, place, os.SEEK_SET)
        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def unlock_byte(file: int, place: int) -> None:
        """Give a byte back."""
        os.lseek(file, place, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def lock_byte(file: int, place: int) -> bool:
        """Lock a byte of an open file; False if another program has it."""
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def unlock_byte(file: int, place: int) -> None:
        """Give a byte back."""
        fcntl.lockf(file, fcntl.LOCK_UN, 1, place)


@contextmanager
def locked_byte(file: int, place: int) -> Iterator[None]:
    """Wait until a byte of a file is ours, and give it back afterwards."""
    while not lock_byte(file, place):
        time.sleep(_PAUSE)
    try:
        yield
    finally:
        unlock_byte(file, place)
