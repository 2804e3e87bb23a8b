"""What the tests of decoders make of a photo, in the process that decodes it."""

import os
import signal
import time
from pathlib import Path

import numpy as np

from fiveshot.data import ArraySource
from fiveshot.data._decoder_process import MEMORY

PHOTO = ArraySource(np.arange(12, dtype=np.uint8).reshape(2, 2, 3), "small.bmp")


def pixels(image):
    return {"pixels": image.tobytes(), "empty": b""}


def crash(image):
    os.kill(os.getpid(), signal.SIGSEGV)
    return {}


def never_end(image):
    while True:
        pass


def work_then_wait(image):
    """Use half a second of a processor, then wait until a file exists."""
    until = time.process_time() + 0.5
    while time.process_time() < until:
        pass
    while not Path(os.environ["FIVESHOT_TEST_TARGET"]).exists():
        time.sleep(0.05)
    return {"text": b"done"}


def much_memory(image):
    return {"byte": bytes(MEMORY + (1 << 20))[:1]}


def some_memory(image):
    return {"byte": bytes(MEMORY // 2)[:1]}


def write_a_file(image):
    Path(os.environ["FIVESHOT_TEST_TARGET"]).write_bytes(b"1")
    return {}


def crash_if_wide(image):
    return crash(image) if image.width > 8 else {"text": b"done"}


def process(image):
    return {"process": str(os.getpid()).encode()}
