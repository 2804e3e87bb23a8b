"""Bundles on the Hugging Face hub: only the needed files are fetched, of one fixed commit."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any

from fiveshot.backbones.bundles.files import MAX_JSON, check_bytes, chosen_graph, parsed_json, plain_path
from fiveshot.errors import InputError, StorageError
from fiveshot.extras import import_extra
from fiveshot.hub import HUB, LIBRARY, hub_errors, repository_name

MAIN = "main"  # the branch that a name without a revision means
LICENSE = "license:"  # how a tag begins that names it
HUB_SECONDS = 10.0  # to wait for an answer of the hub
_COMMIT = re.compile(r"[0-9a-f]{40}", re.ASCII)
_REVISION = re.compile(r"[\w.-]{1,100}", re.ASCII)


class HubFiles:
    """A repository at one commit. What was fetched once is read from the hub's own cache, without a connection."""

    place = ""

    def __init__(self, name: str) -> None:
        """Find the commit; a name with a commit needs no connection for it."""
        self.shown, self.license = name, ""
        self._repository, revision, self._file = parse_hub_name(name)
        self._hub = import_extra("huggingface_hub", extra="hub")
        self._sizes: dict[str, int] | None = None  # of all files, in bytes
        self._unreachable: StorageError | None = None
        self._commit = revision if _COMMIT.fullmatch(revision) else self._resolved(revision)

    @property
    def name(self) -> str:
        """The repository with the commit and the graph: what a model remembers."""
        return f"{HUB}{self._repository}@{self._commit}/{self._file}"

    def graph(self) -> Path:
        """Return the file of the graph: the one that was named, or the best one of the repository."""
        if not self._file:
            self._file = chosen_graph(self._listing(), self.shown)
        return self._needed(self._file)

    def beside(self, graph: Path, name: str) -> Path:
        """Return a file with weights beside the graph."""
        return self._needed((PurePosixPath(self._file).parent / plain_path(name)).as_posix())

    def read_json(self, name: str) -> dict[str, Any] | None:
        """Return the content of a JSON file of the repository."""
        path = self._fetched(name)
        return None if path is None else parsed_json(path)

    def _needed(self, name: str) -> Path:
        path = self._fetched(name)
        if path is None and self._unreachable is not None:
            raise self._unreachable
        if path is None:
            hint = "check the name of the file, or choose another repository"
            raise StorageError(f"{self.shown}: it holds no {name}", hint=hint, code="no_bundle")
        return path

    def _fetched(self, name: str) -> Path | None:
        """Return a file of the commit, from the cache if it is there; None if the repository does not have it."""
        cached = self._hub.try_to_load_from_cache(self._repository, name, revision=self._commit)
        if isinstance(cached, str):
            return Path(cached)
        size = self._listing().get(name)
        if size is None or self._unreachable is not None:
            return None
        if name.endswith(".json") and size > MAX_JSON:
            raise InputError(f"{self.shown}: {name} has {size:,} bytes", hint="choose another repository")
        check_bytes(size, f"{self.shown}: {name}")
        with self._errors():
            return Path(self._hub.hf_hub_download(self._repository, name, revision=self._commit, **LIBRARY))

    def _listing(self) -> dict[str, int]:
        """Return the files of the commit with their sizes; without a connection, those in the cache."""
        if self._sizes is None:
            try:
                self._ask(self._commit)
            except StorageError as error:
                folder = self._cached_folder(self._commit)
                if error.code != "no_connection" or folder is None:
                    raise
                self._unreachable = error
                files = [path for path in folder.rglob("*") if path.is_file()]
                self._sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}
        return self._sizes or {}

    def _resolved(self, revision: str) -> str:
        """Return the commit that a branch or a tag means; without a connection, the last one that was fetched."""
        try:
            return self._ask(revision)
        except StorageError as error:
            commit = self._latest_commit() if error.code == "no_connection" and revision == MAIN else None
            if commit is None:
                raise
            return commit

    def _ask(self, revision: str) -> str:
        """Ask the hub for the files of a revision, and return its commit."""
        with self._errors():
            api = self._hub.HfApi(**LIBRARY)
            info = api.model_info(self._repository, revision=revision, files_metadata=True, timeout=HUB_SECONDS)
        if not _COMMIT.fullmatch(str(info.sha)):
            raise StorageError(f"{self.shown}: the hub names no commit", hint="try again later", code="hub_failed")
        self._sizes = {one.rfilename: one.size or 0 for one in info.siblings or ()}
        named = (tag.removeprefix(LICENSE) for tag in info.tags or () if str(tag).startswith(LICENSE))
        self.license = next(named, "")
        return str(info.sha)

    def _cached(self) -> list[Any]:
        """Return the commits of the repository in the hub's cache."""
        try:
            found = self._hub.scan_cache_dir(self._hub.constants.HF_HUB_CACHE)
        except self._hub.CacheNotFound:
            return []
        return [commit for one in found.repos if one.repo_id == self._repository for commit in one.revisions]

    def _latest_commit(self) -> str | None:
        found = max(self._cached(), key=lambda commit: commit.last_modified, default=None)
        return None if found is None else str(found.commit_hash)

    def _cached_folder(self, commit: str) -> Path | None:
        """Return the folder of a commit in the hub's cache."""
        found = (Path(one.snapshot_path) for one in self._cached() if one.commit_hash == commit)
        return next(found, None)

    def _errors(self) -> Any:
        return hub_errors(self.shown, lacking="it lacks a file", hint="choose another repository")


def parse_hub_name(name: str) -> tuple[str, str, str]:
    """Return the repository, the revision and the file in it, which may be empty.

    >>> parse_hub_name("hf://onnx-community/dinov2-small")
    ('onnx-community/dinov2-small', 'main', '')
    >>> parse_hub_name("hf://me/clip@v1/onnx/vision_model.onnx")
    ('me/clip', 'v1', 'onnx/vision_model.onnx')
    """
    owner, _, rest = name.removeprefix(HUB).partition("/")
    called, _, file = rest.partition("/")
    called, at, revision = called.partition("@")
    if (at and not _REVISION.fullmatch(revision)) or (file and not file.endswith(".onnx")):
        hint = "write hf://OWNER/NAME or hf://OWNER/NAME@REVISION, and if you like, /FILE.onnx after it"
        raise InputError(f"{name!r} is not a bundle on the hub", hint=hint)
    return repository_name(f"{owner}/{called}"), revision or MAIN, str(plain_path(file)) if file else ""
