"""What pages about other software talk to: a broker, a camera and Frigate's API, all on this machine."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

MOSQUITTO = shutil.which("mosquitto", path=f"{os.environ['PATH']}:/usr/sbin")
BROKER, CAMERAS = "homeassistant.local", ("camera.local", "frigate.local:5000")
PATIENCE = 10  # seconds


class StandIns:
    """Started when a page first speaks of them; ``posted`` are the paths that programs have posted to."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._broker: subprocess.Popen[bytes] | None = None
        self._port = 0
        self._camera: ThreadingHTTPServer | None = None
        self.posted: list[str] = []

    def replaced(self, text: str) -> str:
        """Return a text in which the names of other machines are addresses of the stand-ins."""
        if BROKER in text:
            port = self._broker_port()
            text = text.replace(f"mqtt://{BROKER}", f"mqtt://127.0.0.1:{port}")
            text = text.replace(f"-h {BROKER}", f"-h 127.0.0.1 -p {port}")
        for name in CAMERAS:
            if name in text:
                text = text.replace(name, f"127.0.0.1:{self._camera_port()}")
        return text

    def close(self) -> None:
        """End what was started."""
        if self._broker is not None:
            self._broker.terminate()
            self._broker.wait(PATIENCE)
        if self._camera is not None:
            self._camera.shutdown()
            self._camera.server_close()

    def _broker_port(self) -> int:
        if self._broker is None:
            with socket.create_server(("127.0.0.1", 0)) as free:
                self._port = int(free.getsockname()[1])
            settings = self._folder / "mosquitto.conf"
            settings.write_text(f"listener {self._port} 127.0.0.1\nallow_anonymous true\npersistence false\n")
            self._broker = subprocess.Popen(
                [str(MOSQUITTO), "-c", str(settings)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            until = time.monotonic() + PATIENCE
            while True:
                try:
                    socket.create_connection(("127.0.0.1", self._port), 1).close()
                    break
                except OSError:
                    assert time.monotonic() < until, "the broker did not start"
                    time.sleep(0.05)
        return self._port

    def _camera_port(self) -> int:
        if self._camera is None:
            photo, posted = (self._folder / "garden.jpg").read_bytes(), self.posted

            class Camera(BaseHTTPRequestHandler):
                def do_GET(self) -> None:
                    known = re.fullmatch(r"/snapshot\.jpg|/api/feeder/latest\.jpg(\?h=\d+)?", self.path)
                    self._answer(photo if known else b"", 200 if known else 404)

                def do_POST(self) -> None:
                    self.rfile.read(int(self.headers["Content-Length"]))
                    posted.append(self.path)
                    self._answer(b'{"success": true}', 200)

                def _answer(self, data: bytes, status: int) -> None:
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)

                def log_message(self, *_: object) -> None:
                    pass

            self._camera = ThreadingHTTPServer(("127.0.0.1", 0), Camera)
            threading.Thread(target=self._camera.serve_forever, daemon=True).start()
        return int(self._camera.server_port)
