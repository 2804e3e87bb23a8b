"""The recognizer: one object for a model in one directory."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from fiveshot.backbones import DEFAULT, BackboneSpec, Embedder
from fiveshot.data import BadImage, Photo
from fiveshot.errors import InputError, counted
from fiveshot.recognizer import _learning, correction
from fiveshot.recognizer.change import LiveModel
from fiveshot.recognizer.checking import Finding, check_model
from fiveshot.recognizer.creation import BaseWork, make_model
from fiveshot.recognizer.glance import is_model
from fiveshot.recognizer.names import NONE, check_name, known_name, stored_name, target_name
from fiveshot.recognizer.photos import embedding
from fiveshot.recognizer.photos.embedding import OnBad
from fiveshot.recognizer.photos.inputs import ClassInputs, PhotoInputs, gather_photos
from fiveshot.recognizer.reading import ModelReader
from fiveshot.recognizer.recognition.snapshot import Snapshot, check_asked
from fiveshot.recognizer.shipping._merging import MergeReport, merge_classes, other_model
from fiveshot.recognizer.shipping._portable import check_target, is_portable, write_portable
from fiveshot.recognizer.store.contents import read_contents
from fiveshot.recognizer.store.folder import TIMEOUT
from fiveshot.recognizer.store.manifest import Options
from fiveshot.recognizer.undo import undo_last
from fiveshot.storage import FilePath
from fiveshot.values import HistoryEntry, LearnReport, ModelInfo, PhotoChange, PhotoInfo, Prediction, RejectedAt
from fiveshot.work import Progress

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from fiveshot.data import ImageDataset
    from fiveshot.features import FeatureSet


class Recognizer:
    """A model in a directory: learns classes from photos, recognizes, forgets.

    ``create`` makes one, ``open`` opens one. Any number of processes may read a model while one writes to it.
    Every change is one transaction, and it is on the disk when the call returns. Threads may share a recognizer.
    The backbone is loaded with the first photo. Less frequent tasks, such as a review or an export to ONNX, are
    functions in :mod:`fiveshot.recognizer` that take a model.

    Attributes
    ----------
    live : LiveModel
        The open directory, for the functions of this package.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from fiveshot import Recognizer
    >>> owls = np.random.default_rng(0).normal(size=(5, 320))  # as the backbone would make them of photos
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     _ = birds.learn_features("owl", owls)
    ...     birds.predict_features(owls[:1])[0].label
    'owl'
    """

    def __init__(
        self, model: LiveModel, *, device: str = "auto", runtime: str = "auto", weights: FilePath | None = None
    ) -> None:
        """Do not call this directly: use ``create`` or ``open``."""
        if not isinstance(model, LiveModel):
            raise InputError(
                "do not call Recognizer() directly",
                hint="open a model with Recognizer.open(path), or make one with Recognizer.create(path)",
            )
        self.live = model
        self._device, self._runtime, self._weights = device, runtime, weights
        self._embedder: Embedder | None = None
        self._embedder_lock = threading.Lock()

    @classmethod
    def create(
        cls,
        path: FilePath,
        *,
        base: ClassInputs | FeatureSet | ImageDataset | None = None,
        backbone: FilePath | None = None,
        weights: FilePath | None = None,
        embedder: Embedder | None = None,
        head: str | None = None,
        adapter: FilePath | None = None,
        tokens: str = "own",
        views: int | None = None,
        seed: int = 0,
        keep_photos: bool = False,
        thumbnails: bool = True,
        names: bool = True,
        false_rejection: float = 0.05,
        device: str = "auto",
        runtime: str = "auto",
        progress: Progress | None = None,
        skip_bad: bool = False,
        on_bad: Callable[[Sequence[BadImage]], None] | None = None,
        exist_ok: bool = False,
    ) -> Self:
        """Make a model in a new directory and open it.

        Parameters
        ----------
        path : str or path
            The directory. It must not exist, or must be empty.
        base : str, path, mapping, FeatureSet or ImageDataset, optional
            Classes to begin with: a folder or an archive of class folders, photos by the name of their class, or
            their features from this backbone (a set or its file). The adapter must not have seen the test split of
            a dataset. Statistics of the base are stored; its photos are not. Without a base, the first classes are
            learned from a few photos, like all later ones.
        backbone : str or path, optional
            Name of the backbone, the file or folder of an ONNX bundle, or ``hf://OWNER/NAME``; by default the
            embedded one.
        weights : str or path, optional
            File with the weights of the backbone.
        embedder : Embedder, optional
            A loaded backbone, such as :meth:`Embedder.from_callable` makes, in place of a name. ``weights``,
            ``adapter``, ``tokens``, ``views``, ``device`` and ``runtime`` are then its own.
        head : str, optional
            Name of the head; by default ``unbiased-lda``.
        adapter : str or path, optional
            File of an adapter, or the name of an embedded one.
        tokens : {"own", "cls", "mean", "cls+mean"}
            What is read from the backbone: see :class:`~fiveshot.backbones.Readout`.
        views : {1, 2, 4}, optional
            Number of views of a photo that are averaged, for learning and for predictions. More views are more
            accurate and take proportionally longer. By default that of the backbone: two, or one for a bundle.
        seed : int
            Random seed.
        keep_photos : bool
            Whether to store the photos of classes learned later, which ``fiveshot.tuning.retune`` needs.
        thumbnails : bool
            Whether to store small copies of these photos.
        names : bool
            Whether to keep the names of their files, without folders. :meth:`set` changes this later.
        false_rejection : float
            Share of the photos of known classes that may be called unknown.
        device : str
            ``auto``, ``cpu``, ``cuda`` or ``cuda:1``.
        runtime : str
            ``auto``, ``onnx`` or ``torch``.
        progress : callable, optional
            Called with the number of photos done and the number of all photos.
        skip_bad : bool
            Whether to leave out photos of the base that cannot be read, instead of raising an error.
        on_bad : callable, optional
            Called with the photos that are left out.
        exist_ok : bool
            Whether to open an existing model unchanged. The other arguments are then ignored.

        Returns
        -------
        Recognizer
            The model, open.

        Raises
        ------
        InputError
            If an argument cannot be used.
        StorageError
            If the directory is not empty or cannot be written.

        Examples
        --------
        >>> import tempfile
        >>> from fiveshot import Recognizer
        >>> with Recognizer.create(tempfile.mkdtemp(), head="c-fecam") as birds:
        ...     info = birds.show()
        >>> info.head, info.width, info.classes
        ('c-fecam', 320, ())
        """
        if exist_ok and is_model(path):
            return cls.open(path, device=device, runtime=runtime, embedder=embedder)
        options = Options(keep_photos, thumbnails, false_rejection, seed, names)
        spec = BackboneSpec(
            str(backbone) if isinstance(backbone, os.PathLike) else backbone or DEFAULT,
            weights=weights,
            adapter=adapter,
            tokens=tokens,
            views=views,
            device=device,
            runtime=runtime,
            precision="float32",  # on every device, so that a model may move between machines
        )
        if embedder is not None:
            if spec != BackboneSpec(precision="float32"):
                raise InputError(
                    "an embedder is given, and other values of a backbone", hint="leave the others out"
                )
            if embedder.network.precision != "float32":
                raise InputError(
                    f"a model needs features in float32, not {embedder.network.precision}",
                    hint="load the embedder with precision='float32'",
                )
            spec = embedder.spec
        made = make_model(
            path,
            spec,
            base=base,
            head=head,
            options=options,
            work=BaseWork(skip_bad, on_bad, progress),
            embedder=embedder,
        )
        opened = cls.open(path, device=device, runtime=runtime)
        opened._embedder = made
        return opened

    @classmethod
    def open(
        cls,
        path: FilePath,
        *,
        device: str = "auto",
        runtime: str = "auto",
        readonly: bool = False,
        weights: FilePath | None = None,
        embedder: Embedder | None = None,
        timeout: float = TIMEOUT,
    ) -> Self:
        """Open a model. The backbone is loaded with the first photo.

        Parameters
        ----------
        path : str or path
            The directory of the model.
        device, runtime : str
            As in ``create``.
        readonly : bool
            Whether to refuse every change.
        weights : str or path, optional
            The present path of the backbone's file, or of its bundle, if it was moved.
        embedder : Embedder, optional
            The backbone itself, if it is a Python function: see :meth:`Embedder.from_callable`.
        timeout : float
            Seconds to wait for another writer.

        Returns
        -------
        Recognizer
            The model, open. Close it, or use it in a ``with`` block.

        Raises
        ------
        InputError
            If the device or the runtime is unknown.
        StorageError
            If there is no model, or it is damaged.

        Examples
        --------
        >>> import tempfile
        >>> from fiveshot import Recognizer
        >>> folder = tempfile.mkdtemp()
        >>> Recognizer.create(folder).close()
        >>> with Recognizer.open(folder, readonly=True) as birds:
        ...     birds.show().state
        1
        """
        if (device, runtime) != ("auto", "auto"):
            embedding.check_place(device, runtime)
        model = LiveModel(Path(path), readonly=readonly, timeout=timeout)
        opened = cls(model, device=device, runtime=runtime, weights=weights)
        if embedder is not None:
            try:
                opened._embedder = embedding.own_embedder(embedder, opened.snapshot.manifest.backbone)
            except InputError:
                opened.close()
                raise
        return opened

    @property
    def path(self) -> Path:
        """The directory."""
        return self.live.folder.path

    @property
    def snapshot(self) -> Snapshot:
        """The latest state that this process has read, as a value that never changes."""
        return self.live.snapshot

    @property
    def embedder(self) -> Embedder:
        """The backbone, checked against the one the model was made with."""
        return self.embedder_of(self.snapshot)

    @property
    def reader(self) -> ModelReader:
        """Reads stored classes and photos."""
        return ModelReader(self.live.folder)

    @property
    def spec(self) -> BackboneSpec:
        """How the backbone is loaded, without the adapter of the model."""
        record = self.snapshot.manifest.backbone
        return embedding.backbone_spec(record, weights=self._weights, device=self._device, runtime=self._runtime)

    def embedder_of(self, snapshot: Snapshot) -> Embedder:
        """Return the backbone of a state; load it at the first call.

        Parameters
        ----------
        snapshot : Snapshot
            A state of this model.

        Returns
        -------
        Embedder
            The backbone.

        Examples
        --------
        >>> import tempfile
        >>> from fiveshot import Recognizer
        >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
        ...     birds.embedder_of(birds.snapshot).width
        320
        """
        with self._embedder_lock:
            record = snapshot.manifest.backbone
            if self._embedder is None or self._embedder.fingerprint != record.fingerprint:
                self._embedder = embedding.open_backbone(
                    record,
                    self.path,
                    weights=self._weights,
                    device=self._device,
                    runtime=self._runtime,
                )
            return self._embedder

    def refresh(self) -> Snapshot:
        """Read the changes of other processes.

        Returns
        -------
        Snapshot
            The state in force.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from fiveshot import Recognizer
        >>> owls = np.random.default_rng(0).normal(size=(5, 320))
        >>> with Recognizer.create(tempfile.mkdtemp()) as birds, Recognizer.open(birds.path) as elsewhere:
        ...     _ = elsewhere.learn_features("owl", owls)
        ...     birds.snapshot.classes, birds.refresh().classes
        ((), ('owl',))
        """
        return self.live.refresh()

    def reopen(self) -> Snapshot:
        """Open the model that is at this path now, after the former one was removed or replaced.

        Returns
        -------
        Snapshot
            The state in force.

        Raises
        ------
        StorageError
            If there is no model, or it is damaged. The former model then stays open.

        Examples
        --------
        >>> import shutil
        >>> import tempfile
        >>> import numpy as np
        >>> from fiveshot import Recognizer
        >>> folder, other = tempfile.mkdtemp(), tempfile.mkdtemp()
        >>> with Recognizer.create(other) as owls:
        ...     _ = owls.learn_features("owl", np.random.default_rng(0).normal(size=(5, 320)))
        >>> with Recognizer.create(folder) as birds:
        ...     shutil.rmtree(folder)
        ...     _ = shutil.copytree(other, folder)
        ...     birds.reopen().classes
        ('owl',)
        """
        before = self.live
        self.live = LiveModel(self.path, readonly=before.folder.readonly, timeout=before.folder.timeout)
        before.folder.close()
        return self.snapshot

    def learn(self, name: str, photos: PhotoInputs, *, add: bool = False) -> LearnReport:
        """Learn a class from photos.

        Parameters
        ----------
        name : str
            Name of the class.
        photos : photos
            Files, folders, archives, patterns, bytes, open files, PIL images, or a list of these.
        add : bool
            Whether photos may be added to a class that is known.

        Returns
        -------
        LearnReport
            What was found while the class was learned.

        Raises
        ------
        InputError
            If a photo cannot be used, or the class is known and ``add`` is False; nothing was changed.

        Examples
        --------
        >>> import tempfile
        >>> from PIL import Image
        >>> from fiveshot import Recognizer
        >>> photos = [Image.new("RGB", (64, 64), color) for color in ("red", "crimson", "firebrick")]
        >>> with Recognizer.create(tempfile.mkdtemp()) as colors:
        ...     colors.learn("red", photos).photos
        3
        """
        (report,) = self.learn_many({name: photos}, add=add)
        return report

    def learn_many(
        self,
        classes: ClassInputs,
        *,
        add: bool = False,
        new_only: bool = False,
        nested: bool = False,
        progress: Progress | None = None,
    ) -> list[LearnReport]:
        """Learn several classes in one change.

        Parameters
        ----------
        classes : mapping, str or path
            Photos by the name of their class, or a folder (or an archive) of class folders.
        add : bool
            Whether photos may be added to classes that are known.
        new_only : bool
            Whether to skip known classes.
        nested : bool
            Whether every folder with photos is a class, named by its path: ``owl/barn owl``.
        progress : callable, optional
            Called with the number of photos done and the number of all photos.

        Returns
        -------
        list of LearnReport
            One for each class that was learned.

        Raises
        ------
        InputError
            If a photo cannot be used, or a class is known and neither ``add`` nor ``new_only`` is given.

        Examples
        --------
        >>> import tempfile
        >>> from PIL import Image
        >>> from fiveshot import Recognizer
        >>> photos = {name: [Image.new("RGB", (64, 64), name)] for name in ("red", "blue")}
        >>> with Recognizer.create(tempfile.mkdtemp()) as colors:
        ...     [(report.name, report.photos) for report in colors.learn_many(photos)]
        [('red', 1), ('blue', 1)]
        """
        return _learning.learn_photos(
            self.live, self.embedder_of, classes, add=add, new_only=new_only, nested=nested, progress=progress
        )

    def learn_features(
        self,
        name: str,
        features: ArrayLike,
        *,
        names: Sequence[str] | None = None,
        sha256s: Sequence[str] | None = None,
        thumbnails: Sequence[bytes | None] | None = None,
        originals: Sequence[bytes | None] | None = None,
        fingerprint: str | None = None,
        add: bool = False,
    ) -> LearnReport:
        """Learn a class from features that this model's backbone has made.

        Parameters
        ----------
        name : str
            Name of the class.
        features : array of shape (n, d)
            One row for each photo.
        names, sha256s, thumbnails, originals : sequence, optional
            One entry for each row: names of the photos (that of an image file is kept, without folders), digests
            of their files, small copies (JPEG without metadata, at most 128 x 128 pixels), and the files to keep.
        fingerprint : str, optional
            Fingerprint of the backbone that made the features.
        add : bool
            Whether photos may be added to a class that is known.

        Returns
        -------
        LearnReport
            What was found while the class was learned.

        Raises
        ------
        InputError
            If the features do not fit the model, or the class is known and ``add`` is False.
        ConflictError
            If another process has given the model another backbone.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from fiveshot import Recognizer
        >>> owls = 1 + np.random.default_rng(0).normal(size=(5, 320))
        >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
        ...     _ = birds.learn_features("owl", owls)
        ...     report = birds.learn_features("wren", -owls)
        >>> report.verdict, report.nearest
        ('clear', 'owl')
        """
        photos = _learning.feature_records(
            features,
            self.snapshot.contents.width,
            names=names,
            sha256s=sha256s,
            thumbnails=thumbnails,
            originals=originals,
        )
        with self.live.change() as change:
            (report,) = _learning.learn_classes(change, {check_name(name): photos}, add=add, made_by=fingerprint)
        return report

    def predict(
        self,
        photos: PhotoInputs,
        *,
        top: int = 5,
        sure: float | None = None,
        why: int = 0,
        progress: Progress | None = None,
        on_bad: OnBad | None = None,
    ) -> list[Prediction]:
        """Say what each photo shows.

        Parameters
        ----------
        photos : photos
            As in ``learn``.
        top : int
            How many candidates to name for each photo.
        sure : float, optional
            Probability that an answer needs. If no class reaches it, the answer is a group that does, or nothing.
            By default it is 0.8 for a class in a group, and every photo that is not unknown gets an
            answer.
        why : int
            Number of most similar learned photos to name with each answer.
        progress : callable, optional
            Called with the number of photos done and the number of all photos.
        on_bad : callable, optional
            Called with the photos that cannot be used, as ``BadImage``. All other photos are answered. Without
            ``on_bad``, such a photo is an error.

        Returns
        -------
        list of Prediction
            One for each photo.

        Raises
        ------
        InputError
            If a photo cannot be used, or the model knows no class yet.

        Examples
        --------
        >>> import tempfile
        >>> from PIL import Image
        >>> from fiveshot import Recognizer
        >>> photos = {name: [Image.new("RGB", (64, 64), name)] for name in ("red", "blue")}
        >>> with Recognizer.create(tempfile.mkdtemp()) as colors:
        ...     _ = colors.learn_many(photos)
        ...     colors.predict(Image.new("RGB", (64, 64), "darkred"))[0].label
        'red'
        """
        check_asked(top, sure, why)
        gathered, snapshot = gather_photos(photos), self.refresh()
        snapshot.require_classes()  # check all of this before the backbone runs
        embedder = self.embedder_of(snapshot)
        seen = embedding.photo_records(embedder, gathered, progress=progress, on_bad=on_bad)
        return snapshot.predict_photos(seen, top, sure=sure, why=why) if seen else []

    def stream(
        self,
        photos: Iterable[Photo],
        *,
        top: int = 5,
        sure: float | None = None,
        why: int = 0,
        on_bad: OnBad | None = None,
    ) -> Iterator[Prediction]:
        """Say what each photo shows, one photo after the other, with few photos in memory at a time.

        All photos are answered with the state of the model at the first photo.

        Parameters
        ----------
        photos : iterable of Photo
            For example a ``PhotoStream``, which lists folders during the iteration.
        top : int
            How many candidates to name for each photo.
        sure, why
            As in ``predict``.
        on_bad : callable, optional
            As in ``predict``.

        Yields
        ------
        Prediction
            One for each photo, in order.

        Raises
        ------
        InputError
            If a photo cannot be used and there is no ``on_bad``, or the model knows no class yet.

        Examples
        --------
        >>> import tempfile
        >>> from PIL import Image
        >>> from fiveshot import Recognizer
        >>> from fiveshot.recognizer.photos.inputs import PhotoStream
        >>> photos = {name: [Image.new("RGB", (64, 64), name)] for name in ("red", "blue")}
        >>> with Recognizer.create(tempfile.mkdtemp()) as colors:
        ...     _ = colors.learn_many(photos)
        ...     [one.label for one in colors.stream(PhotoStream([*photos["red"], *photos["blue"]]))]
        ['red', 'blue']
        """
        check_asked(top, sure, why)
        snapshot = self.refresh()
        snapshot.require_classes()
        for seen in embedding.stream_records(self.embedder_of(snapshot), photos, on_bad):
            yield from snapshot.predict_photos(seen, top, sure=sure, why=why) if seen else ()

    def predict_features(
        self, X: ArrayLike, *, top: int = 5, sure: float | None = None, why: int = 0
    ) -> list[Prediction]:
        """Say what each row of features shows.

        Parameters
        ----------
        X : array of shape (n, d)
            Features that this model's backbone has made.
        top : int
            How many candidates to name for each row.
        sure, why
            As in ``predict``.

        Returns
        -------
        list of Prediction
            One for each row.

        Raises
        ------
        InputError
            If the features do not fit the model, or it knows no class yet.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from fiveshot import Recognizer
        >>> owls = np.random.default_rng(0).normal(size=(5, 320))
        >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
        ...     _ = birds.learn_features("owl", owls), birds.learn_features("wren", -owls)
        ...     [seen.label for seen in birds.predict_features(np.stack([owls[0], -owls[1]]))]
        ['owl', 'wren']
        """
        snapshot = self.refresh()
        return snapshot.predict_features(
            _learning.checked_features(X, snapshot.contents.width), top, sure=sure, why=why
        )

    def forget(self, name: str, *, for_good: bool = False) -> None:
        """Forget a class. The model then answers as if it had never learned it. ``undo`` restores the class.

        Parameters
        ----------
        name : str
            Name of the class.
        for_good : bool
            Whether to erase all traces of it from the directory, even if it was forgotten before. This cannot be
            undone.

        Raises
        ------
        InputError
            If there is no such class.
        NotErasedError
            If the class is forgotten, but another process blocks the erasing of its traces. The next change tries
            again.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from fiveshot import Recognizer
        >>> owls = np.random.default_rng(0).normal(size=(5, 320))
        >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
        ...     _ = birds.learn_features("owl", owls), birds.learn_features("wren", -owls)
        ...     birds.forget("owl")
        ...     birds.snapshot.classes, birds.undo().action, birds.snapshot.classes
        (('wren',), 'forget', ('owl', 'wren'))
        """
        with self.live.change() as change:
            correction.forget_class(change, known_name(name), for_good=for_good)

    def photos(self, name: str) -> list[PhotoInfo]:
        """List the photos that a class was learned from, with their ids.

        Parameters
        ----------
        name : str
            Name of the class; ``none of these`` for photos that show no class.

        Returns
        -------
        list of PhotoInfo
            The photos in the order in which they were learned. Photos of base classes are not stored.

        Raises
        ------
        InputError
            If there is no such class.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from fiveshot import Recognizer
        >>> owls = np.random.default_rng(0).normal(size=(3, 320))
        >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
        ...     _ = birds.learn_features("owl", owls), birds.learn_features("wren", -owls)
        ...     [photo.id for photo in birds.photos("owl")]
        ['p1', 'p2', 'p3']
        """
        return self.reader.photos(self.refresh(), stored_name(name))

    def remove(self, ids: str | Iterable[str], *, of: str | None = None, for_good: bool = False) -> PhotoChange:
        """Remove photos from their classes. The model then equals one that never learned them.

        Parameters
        ----------
        ids : str or iterable of str
            Ids of photos, such as ``p17``; :meth:`photos` lists those of a class, ``photo_ids`` those of files.
        of : str, optional
            The class that the photos are expected in. If one is in another class, nothing is changed.
        for_good : bool
            Whether to erase all traces of them from the directory, even if they were removed before. This cannot
            be undone.

        Returns
        -------
        PhotoChange
            The photos, and how many their classes have now.

        Raises
        ------
        InputError
            If there is no such photo, or it is the last one of its class.
        ConflictError
            If a photo is not in the class ``of``.
        NotErasedError
            If the photos are removed, but another process blocks the erasing of their traces. The next change
            tries again.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from fiveshot import Recognizer
        >>> owls = np.random.default_rng(0).normal(size=(5, 320))
        >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
        ...     _ = birds.learn_features("owl", owls)
        ...     birds.remove("p2").counts, birds.undo().action, len(birds.photos("owl"))
        ({'owl': 4}, 'remove', 5)
        """
        with self.live.change() as change:
            return correction.remove_photos(change, ids, of=of, for_good=for_good)

    def move(
        self, ids: str | Iterable[str] = (), *, to: str, of: str | None = None, all_of: str | None = None
    ) -> PhotoChange:
        """Move photos to another class. The model then equals one that learned them there.

        Photos keep their ids. A class without photos is deleted.

        Parameters
        ----------
        ids : str or iterable of str
            Ids of photos, such as ``p17``; :meth:`photos` lists those of a class, ``photo_ids`` those of files.
        to : str
            Name of the class that gets them, known or new; or ``none of these``.
        of : str, optional
            The class that the photos are expected in. If one is in another class, nothing is changed.
        all_of : str, optional
            Use this instead of ids to join a class with ``to``, a known class. All of its photos move.

        Returns
        -------
        PhotoChange
            The photos, and how many the classes have now.

        Raises
        ------
        InputError
            If there is no such photo or class, or the photo is in that class already.
        ConflictError
            If a photo is not in the class ``of``.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from fiveshot import Recognizer
        >>> owls = np.random.default_rng(0).normal(size=(5, 320))
        >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
        ...     _ = birds.learn_features("owl", owls), birds.learn_features("wren", -owls)
        ...     birds.move(["p1", "p2"], to="wren").counts
        ...     birds.move(all_of="owl", to="wren").counts
        {'owl': 3, 'wren': 7}
        {'owl': 0, 'wren': 10}
        """
        if all_of is None:
            with self.live.change() as change:
                return correction.move_photos(change, ids, target_name(to), of=of)
        if ids or of is not None:
            raise InputError("all_of moves all photos of a class", hint="give either ids or all_of")
        with self.live.change() as change:
            return correction.join_class(change, known_name(all_of), known_name(to))

    def correct(self, photos: PhotoInputs, name: str, *, progress: Progress | None = None) -> PhotoChange:
        """Say what photos show: new photos are learned, photos of another class are moved.

        Parameters
        ----------
        photos : photos
            As in ``learn``. Photos are recognized by the SHA-256 of their files.
        name : str
            Name of the class that they show, known or new; or ``none of these``. Such photos are stored separately
            and help to detect unknown photos.
        progress : callable, optional
            Called with the number of photos done and the number of all photos.

        Returns
        -------
        PhotoChange
            The photos, and how many the classes have now.

        Raises
        ------
        InputError
            If a photo or the name cannot be used.

        Examples
        --------
        >>> import tempfile
        >>> from PIL import Image
        >>> from fiveshot import Recognizer
        >>> photos = {name: [Image.new("RGB", (64, 64), name)] for name in ("red", "blue")}
        >>> with Recognizer.create(tempfile.mkdtemp()) as colors:
        ...     _ = colors.learn_many(photos)
        ...     colors.correct(Image.new("RGB", (64, 64), "navy"), "blue").counts
        {'blue': 2}
        """
        name = target_name(name)
        gathered, snapshot = gather_photos(photos), self.refresh()
        if name == NONE:
            snapshot.require_classes()  # check this before the backbone runs
        embedder = self.embedder_of(snapshot)
        seen = _learning.records_to_store(snapshot, embedder, gathered, progress)
        with self.live.change() as change:
            return correction.correct_photos(change, seen, name, made_by=embedder.fingerprint)

    def rename(self, old: str, new: str) -> None:
        """Give a class another name.

        Parameters
        ----------
        old, new : str
            The present name and the new name.

        Raises
        ------
        InputError
            If there is no class with the old name, or there is one with the new name.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from fiveshot import Recognizer
        >>> owls = np.random.default_rng(0).normal(size=(5, 320))
        >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
        ...     _ = birds.learn_features("owl", owls)
        ...     birds.rename("owl", "barn owl")
        ...     birds.snapshot.classes
        ('barn owl',)
        """
        with self.live.change() as change:
            correction.rename(change, known_name(old), check_name(new))

    def undo(self, *, past_forget: bool = False, state: int | None = None) -> HistoryEntry:
        """Undo the last change that was not undone yet.

        Parameters
        ----------
        past_forget : bool
            Whether to skip changes that erased classes or photos for good.
        state : int, optional
            Number of the state that the caller has seen. In any other state nothing is undone.

        Returns
        -------
        HistoryEntry
            The change that was undone.

        Raises
        ------
        InputError
            If there is nothing to undo.
        NotUndoableError
            If the last change cannot be undone.
        ConflictError
            If the model is not in the state ``state``.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from fiveshot import Recognizer
        >>> owls = np.random.default_rng(0).normal(size=(5, 320))
        >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
        ...     _ = birds.learn_features("owl", owls)
        ...     undone = birds.undo()
        ...     undone.action, undone.classes, birds.snapshot.classes
        ('learn', ('owl',), ())
        """
        with self.live.change() as change:
            return undo_last(change, past_forget=past_forget, state=state)

    def set(
        self,
        *,
        false_rejection: float | None = None,
        names: bool | None = None,
        wrong_answers: float | None = None,
    ) -> RejectedAt:
        """Change settings. Nothing is learned again, and ``undo`` reverts it, except ``names=False``.

        Parameters
        ----------
        false_rejection : float, optional
            Share of the photos of known classes that may be called unknown.
        names : bool, optional
            Whether photos that are learned from now on keep the names of their files. False also erases all names
            that were kept, which cannot be undone.
        wrong_answers : float, optional
            Share of the answers about photos of known classes that may be wrong. Less probable answers are unsure.

        Returns
        -------
        RejectedAt
            The number of learned photos that are called unknown now.

        Raises
        ------
        InputError
            If a rate is not a number between 0 and 1, or nothing is given.
        NotErasedError
            If the names are gone, but another process blocks the erasing of their traces.

        Examples
        --------
        >>> import tempfile
        >>> from fiveshot import Recognizer
        >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
        ...     _ = birds.set(false_rejection=0.02)
        ...     now = birds.show().false_rejection
        ...     now, birds.undo().action, birds.show().false_rejection
        (0.02, 'set', 0.05)
        """
        with self.live.change() as change:
            correction.set_options(
                change, false_rejection=false_rejection, names=names, wrong_answers=wrong_answers
            )
        return self.snapshot.rejected_at(self.snapshot.manifest.options.false_rejection)

    def show(self) -> ModelInfo:
        """Return what the model holds.

        Returns
        -------
        ModelInfo
            Classes, sizes, and how the model was made.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from fiveshot import Recognizer
        >>> owls = np.random.default_rng(0).normal(size=(5, 320))
        >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
        ...     _ = birds.learn_features("owl", owls)
        ...     info = birds.show()
        >>> info.base_classes, info.new_classes, info.classes[0].photos
        (0, 1, 5)
        """
        return self.reader.info(self.refresh())

    def merge(self, other: FilePath) -> MergeReport:
        """Copy the classes of another model, with exactly the same statistics.

        Parameters
        ----------
        other : str or path
            The directory of a model with the same original base, or its exported file.

        Returns
        -------
        MergeReport
            Which classes were added, and which both models had.

        Raises
        ------
        InputError
            If the models differ in backbone, base or head, or have a class of the same name with different photos.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from fiveshot import Recognizer
        >>> owls = np.random.default_rng(0).normal(size=(5, 320))
        >>> with Recognizer.create(tempfile.mkdtemp()) as here, Recognizer.create(tempfile.mkdtemp()) as there:
        ...     _ = here.learn_features("wren", -owls), there.learn_features("owl", owls)
        ...     here.merge(there.path).added, here.snapshot.classes
        (('owl',), ('owl', 'wren'))
        """
        with other_model(Path(other)) as source, self.live.change() as change:
            return merge_classes(change, source)

    def export(self, file: FilePath, *, photos: bool = False, overwrite: bool = False) -> Path:
        """Write the model to one file.

        Parameters
        ----------
        file : str or path
            The file to write. An earlier export is replaced.
        photos : bool
            Whether to include stored photos.
        overwrite : bool
            Whether to replace a file that is not an earlier export.

        Returns
        -------
        Path
            The file.

        Raises
        ------
        InputError
            If the file would be inside of a model.
        StorageError
            If another file is there, or the file cannot be written.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> from fiveshot import Recognizer
        >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
        ...     birds.export(Path(tempfile.mkdtemp()) / "birds.fiveshot").name
        'birds.fiveshot'
        """
        target = Path(file)
        check_target(target, is_portable, overwrite=overwrite)
        with self.live.folder.reading() as connection:
            contents = read_contents(connection, self.path, self.snapshot.contents)
            write_portable(target, self.path, contents, connection, originals=photos)
        return target

    def check(self, *, repair: bool = False) -> list[Finding]:
        """Verify everything in the directory.

        Parameters
        ----------
        repair : bool
            Whether to repair everything that can be derived from the database.

        Returns
        -------
        list of Finding
            The problems that were found; empty for a sound model.

        Examples
        --------
        >>> import tempfile
        >>> from fiveshot import Recognizer
        >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
        ...     birds.check()
        []
        """
        return check_model(self.path, repair=repair)

    def history(self, limit: int | None = None) -> list[HistoryEntry]:
        """Return the changes of the model.

        Parameters
        ----------
        limit : int, optional
            Maximum number of entries; all of them by default.

        Returns
        -------
        list of HistoryEntry
            The changes, the latest first.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from fiveshot import Recognizer
        >>> owls = np.random.default_rng(0).normal(size=(5, 320))
        >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
        ...     _ = birds.learn_features("owl", owls)
        ...     birds.rename("owl", "barn owl")
        ...     [entry.action for entry in birds.history()]
        ['rename', 'learn', 'create']
        """
        return self.reader.history(limit)

    def close(self) -> None:
        """Close the model. All completed changes are on the disk already.

        A ``with`` block does this automatically.

        Examples
        --------
        >>> import tempfile
        >>> from fiveshot import Recognizer
        >>> birds = Recognizer.create(tempfile.mkdtemp())
        >>> birds.close()
        >>> birds.show()
        Traceback (most recent call last):
        fiveshot.errors.InputError: the model ... is closed; open it again
        """
        self.live.folder.close()

    def __repr__(self) -> str:
        return f"<Recognizer {self.path}, {counted(len(self.snapshot.classes), 'class')}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
