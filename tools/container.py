"""Follow the Dockerfile and the service of compose.yaml without a container engine, and try the service.

``python tools/container.py``, as root on Linux. The steps run in a copy of this machine's files that is thrown
away (an overlay in a mount namespace), with its Python in the place of the base image's. Then the service runs as
the user of the Dockerfile, without capabilities, on a root file system that is read-only, in a network of its own.
What compose adds (names, networks, restarts) is not tried. Exit status 77: it cannot be tried here.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CANNOT = 77
PATIENCE = 120  # seconds until the service is healthy, or has ended
TOKEN = "a-token-of-some-length"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NEEDED = ("unshare", "mount", "chroot", "setpriv", "useradd", "ip")


class Failed(Exception):
    """A step failed."""


@dataclass
class Image:
    """What a Dockerfile says: its steps in order, and how a container of it runs."""

    steps: list[tuple[str, str]] = field(default_factory=list)  # COPY, RUN and ENV
    user: str = "root"
    folder: str = "/"
    command: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, text: str) -> Image:
        """Read the instructions; refuse one that this program does not follow.

        >>> image = Image.read("FROM x\\nRUN a \\\\\\n && b\\nUSER u\\nCMD [\\"c\\"]")
        >>> image.steps, image.user, image.command
        ([('RUN', 'a && b')], 'u', ['c'])
        """
        image = cls()
        lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
        for line in re.sub(r"\s*\\\n\s*", " ", lines).splitlines():
            word, _, rest = line.strip().partition(" ")
            if word in ("COPY", "RUN", "ENV"):
                image.steps.append((word, rest))
            elif word == "USER":
                image.user = rest
            elif word == "WORKDIR":
                image.folder = rest
            elif word == "CMD":
                image.command = json.loads(rest)
            elif word == "HEALTHCHECK":
                image.health = json.loads(rest.partition("CMD ")[2])
            elif word not in ("", "FROM", "EXPOSE", "VOLUME"):
                raise Failed(f"{word} is an instruction that this program does not follow")
        return image


def call(*words: str | Path, **given: object) -> None:
    """Run a program; its failure is ours."""
    done = subprocess.run([str(word) for word in words], check=False, **given)  # type: ignore[call-overload]
    if done.returncode:
        raise Failed(f"{shlex.join(map(str, words))} ended with status {done.returncode}")


def cannot() -> str:
    """Return why this cannot be tried here; empty if it can."""
    if sys.platform != "linux" or os.geteuid():
        return "it needs Linux, and root to make namespaces"
    missing = [name for name in NEEDED if shutil.which(name, path=SYSTEM_PATH) is None]
    if missing:
        return f"{', '.join(missing)} not installed"
    with tempfile.TemporaryDirectory() as folder:
        memory = f"mount -t tmpfs t {folder} && cd {folder} && mkdir u w m"
        overlay = f"{memory} && mount -t overlay o m -o {layers('/', '.')}"
        if subprocess.run(["unshare", "--mount", "--net", "sh", "-c", overlay], capture_output=True).returncode:
            return "namespaces and overlays are not allowed here"
        words = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--retries",
            "0",
            "--dest",
            folder,
        ]
        if subprocess.run([*words, "hatchling"], capture_output=True).returncode:
            return "no package index can be reached"
    return ""


def layers(lower: str, work: str) -> str:
    """Return the options of an overlay."""
    return f"lowerdir={lower},upperdir={work}/u,workdir={work}/w"


class Container:
    """The files of a container below a folder, and what runs in it."""

    def __init__(self, image: Image, work: Path) -> None:
        self.image, self.work, self.root = image, work, work / "m"
        python = Path(sys.base_prefix) / "bin"
        self.environment = {"PATH": f"{python}:{SYSTEM_PATH}", "HOME": "/root"}
        self._network = {name: value for name, value in os.environ.items() if is_for_the_network(name)}

    def build(self) -> None:
        """Make the files as the Dockerfile says."""
        call("mount", "-t", "tmpfs", "tmpfs", self.work)
        for name in ("u", "w", "m"):
            (self.work / name).mkdir()
        call("mount", "-t", "overlay", "overlay", "-o", layers("/", str(self.work)), self.root)
        call("mount", "-t", "proc", "proc", self.root / "proc")
        call("mount", "--bind", "/dev", self.root / "dev")
        for folder in Path(sys.base_prefix).parents:  # the base image's Python is there for everybody
            inside = self.root / folder.relative_to("/")
            inside.chmod(inside.stat().st_mode | 0o011)
        named = self.root / "usr/local/bin/python"
        if not os.path.lexists(named):  # Debian's Python has only names with a version, the base image's not
            named.symlink_to(Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}")
        for word, rest in self.image.steps:
            print(f"{word} {rest}", flush=True)
            if word == "RUN":
                self._run(["sh", "-c", rest], self.environment | self._network)
            elif word == "COPY":
                *sources, target = rest.split()
                self._copy(sources, target)
            else:
                for one in shlex.split(rest):
                    name, _, value = one.partition("=")
                    self.environment[name] = value.replace("$PATH", self.environment["PATH"])

    def _run(self, words: list[str], environment: dict[str, str]) -> None:
        call("chroot", self.root, *words, env=environment, cwd="/")

    def _copy(self, sources: list[str], target: str) -> None:
        into = self.root / target.lstrip("/")
        for source in sources:
            path = ROOT / source
            if path.is_dir():
                shutil.copytree(path, into, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                into.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, into)

    def seal(self, settings: dict[str, object]) -> None:
        """Mount volumes and memory as compose says, and make the rest read-only."""
        for place in settings.get("tmpfs", ()):  # type: ignore[attr-defined]
            call(
                "mount",
                "-t",
                "tmpfs",
                "-o",
                "mode=1777,noexec,nosuid,nodev",
                "tmpfs",
                self.root / str(place).lstrip("/"),
            )
        for number, volume in enumerate(settings.get("volumes", ())):  # type: ignore[arg-type]
            place = self.root / volume.rpartition(":")[2].lstrip("/")
            store = self.work / f"volume{number}"
            store.mkdir()
            shutil.copystat(place, store)  # a new volume begins as what the image has there
            os.chown(store, place.stat().st_uid, place.stat().st_gid)
            call("mount", "--bind", store, place)
        if settings.get("read_only"):
            call("mount", "-o", "remount,ro", self.root)

    def words(self, command: list[str]) -> list[str]:
        """Return what runs a command as the user of the image, without capabilities."""
        less = ["--clear-groups", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
        as_user = ["setpriv", f"--reuid={self.image.user}", f"--regid={self.image.user}", *less]
        return ["chroot", str(self.root), "env", "-C", self.image.folder, *as_user, *command]

    def start(self) -> subprocess.Popen[bytes]:
        """Start the command of the image, and wait until its health check is content."""
        running = subprocess.Popen(
            self.words(self.image.command), env=self.environment | {"FIVESHOT_TOKEN": TOKEN}, cwd="/"
        )
        ends = time.monotonic() + PATIENCE
        while not self.succeeds(self.image.health):
            if running.poll() is not None or time.monotonic() > ends:
                running.kill()
                raise Failed("the service did not become healthy")
            time.sleep(0.5)
        return running

    def succeeds(self, command: list[str]) -> bool:
        """Run a command in the container, and tell whether it succeeded."""
        done = subprocess.run(self.words(command), env=self.environment, cwd="/", capture_output=True)
        return done.returncode == 0

    def says(self, code: str) -> str:
        """Return what a program in the container prints."""
        words = self.words(["python", "-c", code])
        done = subprocess.run(words, env=self.environment, cwd="/", capture_output=True, text=True)
        if done.returncode:
            raise Failed(done.stderr)
        return done.stdout.strip()


def is_for_the_network(name: str) -> bool:
    """Tell whether a variable says how this machine reaches the package index.

    >>> is_for_the_network("PIP_INDEX_URL"), is_for_the_network("HOME")
    (True, False)
    """
    return name.startswith(("PIP_", "SSL_")) or name.lower().endswith("_proxy")


TEACH = f"""
from fiveshot.client import Client, ServiceError
with Client("http://127.0.0.1:8765", token="{TOKEN}") as client:
    client.learn("apple", ["/tmp/samples/learn/apple/%d.jpg" % n for n in range(1, 4)])
    print([one.name for one in client.classes()])
try:
    Client("http://127.0.0.1:8765").classes()
except ServiceError as error:
    print(error.status)
"""
LIST = f"""
from fiveshot.client import Client
with Client("http://127.0.0.1:8765", token="{TOKEN}") as client:
    print([one.name for one in client.classes()])
"""


def check(ok: bool, text: str) -> None:
    """Print what holds; end with what does not."""
    if not ok:
        raise Failed(f"this does not hold: {text}")
    print(f"holds: {text}", flush=True)


def try_service(container: Container) -> None:
    """Run the service, teach it, stop it and start it again."""
    call("ip", "link", "set", "lo", "up")
    running = container.start()
    try:
        user = re.search(
            r"^Uid:\s+(\d+)", (container.root / f"proc/{running.pid}/status").read_text(), re.MULTILINE
        )
        check(user is not None and user[1] != "0", "the service does not run as root")
        check(not container.succeeds(["touch", "/opt/fiveshot/new"]), "its user cannot change the program")
        outside = subprocess.run(["touch", container.root / "etc" / "new"], capture_output=True)
        check(outside.returncode != 0, "the root file system is read-only, even for root")
        check(container.succeeds(["fiveshot", "data", "samples", "/tmp/samples"]), "there is room in /tmp")
        check(container.says(TEACH) == "['apple']\n401", "it learns over HTTP, and only with the token")
        check(container.succeeds(["test", "-O", "/models/things/model.toml"]), "the model is in the volume")
        watch = ["fiveshot", "watch", "things", "/tmp/samples/test", "--existing", "--limit", "1", "--keep", "all"]
        check(container.succeeds(watch), "a watch keeps sightings beside the service")
    finally:
        running.send_signal(signal.SIGTERM)
    check(running.wait(PATIENCE) in (0, 130, -signal.SIGTERM), "it stops when it is asked to")
    again = container.start()
    try:
        check(container.says(LIST) == "['apple']", "after a restart it knows what it has learned")
    finally:
        again.send_signal(signal.SIGTERM)
        again.wait(PATIENCE)


def main() -> int:
    """Follow the files, and return the exit status."""
    import yaml

    if sys.argv[1:2] not in (["--build"], ["--run"]):
        reason = cannot()
        if reason:
            print(f"cannot be tried here: {reason}")
            return CANNOT
        with tempfile.TemporaryDirectory() as folder:
            space = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
            return subprocess.run([*space, sys.executable, __file__, "--build", folder]).returncode
    container = Container(Image.read((ROOT / "Dockerfile").read_text(encoding="utf-8")), Path(sys.argv[2]))
    try:
        if sys.argv[1] == "--build":
            container.build()
            compose = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
            container.seal(compose["services"]["service"])
            environment = os.environ | {"FIVESHOT_CONTAINER": json.dumps(container.environment)}
            words = ["unshare", "--net", sys.executable, __file__, "--run", sys.argv[2]]
            return subprocess.run(words, env=environment).returncode
        container.environment = json.loads(os.environ["FIVESHOT_CONTAINER"])
        try_service(container)
    except Failed as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
