"""A process that forgets two classes and is killed within the second: run by test_large_forgetting.py."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

from fiveshot.recognizer import Recognizer


def peak() -> int:
    """Return the most memory that this process has held since the last look, in MB."""
    status = Path("/proc/self/status").read_text()
    Path("/proc/self/clear_refs").write_text("5")
    return int(status.partition("VmHWM:")[2].split()[0]) // 1000


def kill_when_rewritten(model: Recognizer, temporary: Path) -> None:
    """Let this process be killed as soon as the database uses a temporary file there, with a name or without."""

    def look() -> int:
        for link in Path("/proc/self/fd").iterdir():
            with suppress(FileNotFoundError):
                if temporary in link.readlink().parents:
                    os.kill(os.getpid(), signal.SIGKILL)
        return 0

    model.live.folder.connection.set_progress_handler(look, 50)


def main() -> None:
    """Forget the classes named after the path, print the memory before and the peak of the first."""
    path, first, second = sys.argv[1:]
    with Recognizer.open(path) as model:
        peak()
        os.write(1, b"%d\n" % peak())
        model.forget(first, for_good=True)
        os.write(1, b"%d\n" % peak())
        kill_when_rewritten(model, Path(os.environ["SQLITE_TMPDIR"]))
        model.forget(second, for_good=True)
        os.write(1, b"no temporary file was used\n")


if __name__ == "__main__":
    main()
