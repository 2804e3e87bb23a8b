"""What an archive may contain: no way out of its folder, no links, no bomb."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from fiveshot.errors import InputError

MIB = 1 << 20
_DRIVE = re.compile(r"^[A-Za-z]:")


@dataclass(frozen=True)
class Limits:
    """The most an archive may hold; far above any image dataset, far below what hurts."""

    members: int = 5_000_000
    member_bytes: int = 2048 * MIB
    total_bytes: int = 1024 * 1024 * MIB
    ratio: float = 100.0  # unpacked to packed; photographs are near 1, bombs beyond 1,000
    ratio_from: int = 256 * MIB  # a small archive of flat drawings may compress as well as it likes


LIMITS = Limits()


def refuse(archive: Path, reason: str) -> NoReturn:
    """Raise the error for an archive that is not safe to read."""
    raise InputError(f"refused to read {archive}: {reason}; re-pack it with plain files only")


def checked_name(archive: Path, name: str) -> str:
    """Return a member's name in normal form, or refuse one that leads out of the folder.

    >>> checked_name(Path("a.tar"), "./train/cat/1.jpg")
    'train/cat/1.jpg'
    >>> checked_name(Path("a.tar"), "train/../../1.jpg")
    Traceback (most recent call last):
    fiveshot.errors.InputError: refused to read a.tar: member 'train/../../1.jpg' leads out of the ...
    """
    forward = name.replace("\\", "/")
    parts = [part for part in forward.split("/") if part not in ("", ".")]
    if forward.startswith("/") or _DRIVE.match(forward) or ".." in parts or "\0" in name:
        refuse(archive, f"member {name!r} leads out of the archive's folder")
    return "/".join(parts)


class Meter:
    """Adds up what an archive unpacks to and refuses as soon as a limit is passed."""

    def __init__(self, archive: Path, limits: Limits) -> None:
        self._archive = archive
        self._limits = limits
        self._packed = max(1, archive.stat().st_size)
        self._members = 0
        self._total = 0

    def member(self, name: str, size: int) -> None:
        """Count one member of the declared size, before anything of it is unpacked."""
        self._members += 1
        if self._members > self._limits.members:
            refuse(self._archive, f"more than {self._limits.members:,} members, at {name!r}")
        if size > self._limits.member_bytes:
            refuse(self._archive, f"member {name!r} unpacks to {size:,} bytes")
        self.unpacked(size, name)

    def unpacked(self, size: int, name: str) -> None:
        """Count bytes that were, or would be, unpacked."""
        self._total += size
        ratio = self._total / self._packed
        bomb = self._total > self._limits.ratio_from and ratio > self._limits.ratio
        if bomb or self._total > self._limits.total_bytes:
            refuse(
                self._archive,
                f"at member {name!r} its {self._packed:,} bytes have unpacked to {self._total:,}, "
                "which looks like a decompression bomb",
            )
