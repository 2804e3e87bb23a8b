"""The recognizer: one object, one directory, a handful of verbs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from fiveshot.errors import InputError
from fiveshot.recognizer.change import LiveModel
from fiveshot.recognizer.info import ModelInfo, PhotoInfo, model_info, photo_infos
from fiveshot.recognizer.insight import LearnReport
from fiveshot.recognizer.names import NONE, check_name, known_name, target_name
from fiveshot.recognizer.recognition.levels import grouped_names, read_parents
from fiveshot.recognizer.recognition.snapshot import Prediction, RejectedAt, Snapshot, check_asked
from fiveshot.recognizer.store.contents import StoredClass, read_contents
from fiveshot.recognizer.store.folder import TIMEOUT
from fiveshot.recognizer.store.history import HistoryEntry, read_history
from fiveshot.recognizer.store.manifest import MANIFEST, Options
from fiveshot.recognizer.store.rows import PhotoRecord, Tables, photo_facts, read_kept, read_picture
from fiveshot.storage import FilePath
from fiveshot.work import Progress

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from fiveshot.backbones import Embedder
    from fiveshot.data import BadImage
    from fiveshot.features import FeatureSet
    from fiveshot.recognizer.checking import Finding
    from fiveshot.recognizer.correction import PhotoChange
    from fiveshot.recognizer.evaluation import Evaluation
    from fiveshot.recognizer.photos.embedding import OnBad
    from fiveshot.recognizer.photos.inputs import ClassInputs, PhotoInputs
    from fiveshot.recognizer.photos.photo import Photo
    from fiveshot.recognizer.review import Review, Suggestion
    from fiveshot.recognizer.shipping._merging import MergeReport
    from fiveshot.recognizer.shipping._web import WebExport
    from fiveshot.recognizer.sorting import Sorting
    from fiveshot.tuning import TuneProgress, TuneResult


class Recognizer:
    """A model in a directory: learns classes from photos, recognizes, forgets.

    ``create`` makes one, ``open`` opens one. Any number of processes may read a model while one writes to it.
    Every change is one transaction, on the disk when the call returns. Threads may share a recognizer. What a
    verb needs is imported when it is first called, and the backbone is loaded when the first photo comes.

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
        """Use ``create`` or ``open``."""
        if not isinstance(model, LiveModel):
            raise InputError(
                f"a recognizer is not made of {model!r:.80} itself",
                hint="open a model with Recognizer.open(path), or make one with Recognizer.create(path)",
            )
        self._model = model
        self._device, self._runtime, self._weights = device, runtime, weights
        self._embedder: Embedder | None = None
        self._embedder_lock = threading.Lock()

    @classmethod
    def create(
        cls,
        path: FilePath,
        *,
        base: ClassInputs | FeatureSet | None = None,
        backbone: str | None = None,
        weights: FilePath | None = None,
        head: str | None = None,
        adapter: FilePath | None = None,
        views: int | None = None,
        tune: bool = False,
        seed: int = 0,
        keep_photos: bool = False,
        thumbnails: bool = True,
        false_rejection: float = 0.05,
        device: str = "auto",
        runtime: str = "auto",
        progress: Progress | None = None,
        on_tuning: Callable[[TuneProgress], None] | None = None,
        skip_bad: bool = False,
        on_bad: Callable[[Sequence[BadImage]], None] | None = None,
        exist_ok: bool = False,
    ) -> Self:
        """Make a model in a new directory and open it.

        Parameters
        ----------
        path : str or path
            The directory; it must not exist yet, or be empty.
        base : str, path, mapping or FeatureSet, optional
            Classes to begin with: a folder or an archive of class folders, photos by the name of their class, or
            their features (a set or its file) as this backbone makes them. Their statistics are kept and no
            photos. Without a base the first classes are learned from a few photos, as all later ones.
        backbone : str, optional
            Name of the backbone; the embedded one unless given.
        weights : str or path, optional
            File with the weights of the backbone.
        head : str, optional
            Name of the head; ``unbiased-lda`` unless given.
        adapter : str or path, optional
            File of an adapter, or the name of an embedded one.
        views : {1, 2, 4}, optional
            How many views of a photo are looked at and averaged, when learning and when asked: more are more
            accurate and take as much longer. Two unless given.
        tune : bool
            Whether to adapt the backbone to the base classes first. Needs the extra ``torch``.
        seed : int
            Seed of everything that is drawn.
        keep_photos : bool
            Whether to store the photos of classes learned later, which ``retune`` needs.
        thumbnails : bool
            Whether to store small copies of them.
        false_rejection : float
            Share of the photos of known classes that may be called unknown.
        device : str
            ``auto``, ``cpu``, ``cuda`` or ``cuda:1``.
        runtime : str
            ``auto``, ``onnx`` or ``torch``.
        progress : callable, optional
            Called with the number of photos looked at and the number of all.
        on_tuning : callable, optional
            Called with where the tuning stands.
        skip_bad : bool
            Whether to leave out photos of the base that cannot be read, instead of raising an error.
        on_bad : callable, optional
            Called with the photos that were left out.
        exist_ok : bool
            Whether a model that is there already is opened as it is, whatever else is given.

        Returns
        -------
        Recognizer
            The model, open.

        Raises
        ------
        InputError
            If an argument cannot be used.
        StorageError
            If there is something in the directory, or it cannot be written.

        Examples
        --------
        >>> import tempfile
        >>> from fiveshot import Recognizer
        >>> with Recognizer.create(tempfile.mkdtemp(), head="c-fecam") as birds:
        ...     info = birds.show()
        >>> info.head, info.width, info.classes
        ('c-fecam', 320, ())
        """
        if exist_ok and (Path(path) / MANIFEST).is_file():
            return cls.open(path, device=device, runtime=runtime)
        from fiveshot.backbones import DEFAULT, BackboneSpec
        from fiveshot.recognizer.creation import Work, make_model

        options = Options(keep_photos, thumbnails, false_rejection, seed)
        spec = BackboneSpec(
            backbone or DEFAULT,
            weights=weights,
            adapter=adapter,
            views=views,
            device=device,
            runtime=runtime,
            precision="float32",  # on every device, so that a model may move between machines
        )
        embedder = make_model(
            path,
            spec,
            base=base,
            head=head,
            options=options,
            tune=tune,
            work=Work(skip_bad, on_bad, progress, on_tuning),
        )
        opened = cls.open(path, device=device, runtime=runtime)
        opened._embedder = embedder
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
        timeout: float = TIMEOUT,
    ) -> Self:
        """Open a model; the backbone is loaded when the first photo comes.

        Parameters
        ----------
        path : str or path
            The directory of the model.
        device, runtime : str
            As in ``create``.
        readonly : bool
            Whether to refuse every change.
        weights : str or path, optional
            Where the backbone's own file is now, if it has moved.
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
        from fiveshot.recognizer.photos import embedding

        if (device, runtime) != ("auto", "auto"):
            embedding.check_place(device, runtime)
        model = LiveModel(Path(path), readonly=readonly, timeout=timeout)
        return cls(model, device=device, runtime=runtime, weights=weights)

    @property
    def path(self) -> Path:
        """The directory."""
        return self._model.folder.path

    @property
    def snapshot(self) -> Snapshot:
        """The state in force, as this process has last seen it: a value that never changes."""
        return self._model.snapshot

    @property
    def embedder(self) -> Embedder:
        """The backbone, checked against the one the model was made with."""
        return self._embedder_of(self.snapshot)

    def _embedder_of(self, snapshot: Snapshot, first: Photo | None = None) -> Embedder:
        from fiveshot.recognizer.photos import embedding

        with self._embedder_lock:
            record = snapshot.manifest.backbone
            if self._embedder is None or self._embedder.fingerprint != record.fingerprint:
                self._embedder = embedding.open_backbone(
                    record,
                    self.path,
                    weights=self._weights,
                    device=self._device,
                    runtime=self._runtime,
                    first=first,
                )
            return self._embedder

    def refresh(self) -> Snapshot:
        """Take up what other processes have changed.

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
        return self._model.refresh()

    def reopen(self) -> Snapshot:
        """Open the model that lies at this path now, in the place of one that was removed or replaced.

        Returns
        -------
        Snapshot
            The state in force.

        Raises
        ------
        StorageError
            If there is no model, or it is damaged; what was open before stays so.

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
        before = self._model
        self._model = LiveModel(self.path, readonly=before.folder.readonly, timeout=before.folder.timeout)
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
            What was seen while the class was learned.

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
        """Learn several classes, all of them or none.

        Parameters
        ----------
        classes : mapping, str or path
            Photos by the name of their class, or a folder (or an archive) of class folders.
        add : bool
            Whether photos may be added to classes that are known.
        new_only : bool
            Whether to pass over classes that are known.
        nested : bool
            Whether every folder that holds photos is a class, called by its path: ``owl/barn owl``.
        progress : callable, optional
            Called with the number of photos looked at and the number of all.

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
        from fiveshot.recognizer import _learning

        return _learning.learn_photos(
            self._model, self._embedder_of, classes, add=add, new_only=new_only, nested=nested, progress=progress
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
            Of the photos, one entry for each row: names to speak of them, digests of their files, small copies
            (JPEG without metadata, at most 128 x 128 pixels), and the files to keep.
        fingerprint : str, optional
            Fingerprint of the backbone that made the features.
        add : bool
            Whether photos may be added to a class that is known.

        Returns
        -------
        LearnReport
            What was seen while the class was learned.

        Raises
        ------
        InputError
            If the features do not fit the model, or the class is known and ``add`` is False.
        ConflictError
            If the model has another backbone by now.

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
        from fiveshot.recognizer import _learning

        photos = _learning.feature_records(
            features,
            self.snapshot.contents.width,
            names=names,
            sha256s=sha256s,
            thumbnails=thumbnails,
            originals=originals,
        )
        return self.learn_seen(name, photos, fingerprint=fingerprint, add=add)

    def learn_seen(
        self, name: str, photos: Sequence[PhotoRecord], *, fingerprint: str | None = None, add: bool = False
    ) -> LearnReport:
        """Learn a class from photos that this model's backbone has seen already, as the service does.

        Parameters
        ----------
        name : str
            Name of the class.
        photos : sequence of PhotoRecord
            The photos with their features and what is kept of them; they are stored as they are given.
        fingerprint : str, optional
            Fingerprint of the backbone that made the features.
        add : bool
            Whether photos may be added to a class that is known.

        Returns
        -------
        LearnReport
            What was seen while the class was learned.

        Raises
        ------
        ConflictError
            If the model has another backbone by now.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from fiveshot import Recognizer
        >>> from fiveshot.recognizer import PhotoRecord
        >>> owl = PhotoRecord(sha256=64 * "0", feature=np.ones(320, np.float32), name="owl.jpg")
        >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
        ...     birds.learn_seen("owl", [owl]).photos
        1
        """
        from fiveshot.recognizer import _learning

        with self._model.change() as change:
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
            Probability that an answer needs: where no class has it, the answer is a group that has, or nothing.
            Unless given it is 0.8 for a class that has a group, and every photo that is not unknown gets an
            answer.
        why : int
            How many of the learned photos that it is most like to name beside each answer.
        progress : callable, optional
            Called with the number of photos looked at and the number of all.
        on_bad : callable, optional
            Called with the photos that cannot be used, as ``BadImage``: then all others are answered. Without it
            such a photo is an error.

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
        from fiveshot.recognizer.photos import embedding
        from fiveshot.recognizer.photos.inputs import gather_photos

        check_asked(top, sure, why)
        gathered, snapshot = gather_photos(photos), self.refresh()
        snapshot.require_classes()  # all of this before the backbone runs
        embedder = self._embedder_of(snapshot)
        seen = embedding.see_photos(
            embedder, gathered, progress=progress, meanwhile=snapshot.derive, on_bad=on_bad
        )
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
        """Say what each photo shows, while photos come: however many there are, few are in memory.

        The state of the model is that of the first photo to the end.

        Parameters
        ----------
        photos : iterable of Photo
            For example a ``PhotoStream``, which lists folders while it is gone through.
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
        from fiveshot.recognizer.photos import embedding

        check_asked(top, sure, why)
        snapshot = self.refresh()
        snapshot.require_classes()
        left = iter(photos)
        first = next(left, None)
        if first is None:
            return
        embedder = self._embedder_of(snapshot, first)
        for found in embedding.look_through(embedder, chain((first,), left), meanwhile=snapshot.derive):
            seen = embedding.told_good(found, on_bad, total=len(found))
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
        from fiveshot.recognizer import _learning

        snapshot = self.refresh()
        return snapshot.predict_features(
            _learning.checked_features(X, snapshot.contents.width), top, sure=sure, why=why
        )

    def forget(self, name: str, *, for_good: bool = False) -> None:
        """Forget a class: afterwards the model answers as one that never saw it. ``undo`` brings it back.

        Parameters
        ----------
        name : str
            Name of the class.
        for_good : bool
            Whether to erase it from every byte of the directory, also if it was forgotten before. That cannot be
            undone.

        Raises
        ------
        InputError
            If there is no such class.
        NotErasedError
            If the class is gone and another process keeps its traces from being erased; the next change does.

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
        from fiveshot.recognizer import correction

        with self._model.change() as change:
            correction.forget_class(change, known_name(name), for_good=for_good)

    def photos(self, name: str) -> list[PhotoInfo]:
        """List the photos that a class was learned from, with their ids.

        Parameters
        ----------
        name : str
            Name of the class.

        Returns
        -------
        list of PhotoInfo
            The photos in the order in which they were learned. Of the photos of a base there are none.

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
        return self._photos_of(self._row(name))

    def _row(self, name: str) -> StoredClass | None:
        """Return what is stored of a class: of one that is only in the base file, nothing."""
        contents, name = self.refresh().contents, known_name(name)
        contents.require(name)
        return contents.by_name.get(name)

    def _photos_of(self, row: StoredClass | None) -> list[PhotoInfo]:
        if row is None:
            return []
        with self._model.folder.reading() as connection:
            facts = photo_facts(connection, row.id)
        return photo_infos(self.snapshot, row, facts)

    def ids_of(self, photos: PhotoInputs) -> list[str]:
        """Return the ids of the learned photos that these files are, for :meth:`remove` and :meth:`move`.

        Parameters
        ----------
        photos : photos
            As for :meth:`learn`, told by their bytes: where a file lies, and its name, do not matter. A part of a
            photo is a photo of its own.

        Returns
        -------
        list of str
            Ids, such as ``p17``; several of a file that several classes have.

        Raises
        ------
        InputError
            If one of them was not learned.

        Examples
        --------
        >>> import tempfile
        >>> from PIL import Image
        >>> from fiveshot import Recognizer
        >>> red, blue = (Image.new("RGB", (64, 64), name) for name in ("red", "blue"))
        >>> with Recognizer.create(tempfile.mkdtemp()) as colors:
        ...     _ = colors.learn_many({"red": [red], "blue": [blue]})
        ...     colors.ids_of(blue)
        ['p2']
        """
        from fiveshot.recognizer import correction
        from fiveshot.recognizer.photos.inputs import gather_photos

        return correction.ids_of(gather_photos(photos), self.refresh().contents)

    def remove(self, ids: str | Iterable[str], *, of: str | None = None, for_good: bool = False) -> PhotoChange:
        """Take photos out of their classes: afterwards the model equals one that never learned them.

        Parameters
        ----------
        ids : str or iterable of str
            Ids of photos, such as ``p17``; :meth:`photos` lists those of a class, :meth:`ids_of` those of files.
        of : str, optional
            The class that they are taken to be in; if one is in another by now, nothing is done.
        for_good : bool
            Whether to erase them from every byte of the directory, also if they were removed before. That cannot
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
            If the photos are gone and another process keeps their traces from being erased; the next change does.

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
        from fiveshot.recognizer import correction

        with self._model.change() as change:
            return correction.remove_photos(change, ids, of=of, for_good=for_good)

    def move(
        self, ids: str | Iterable[str] = (), *, to: str, of: str | None = None, all_of: str | None = None
    ) -> PhotoChange:
        """Give photos to another class: afterwards the model equals one that had learned them there.

        Photos keep their ids. A class that gives its last photo away ends.

        Parameters
        ----------
        ids : str or iterable of str
            Ids of photos, such as ``p17``; :meth:`photos` lists those of a class, :meth:`ids_of` those of files.
        to : str
            Name of the class that gets them, known or new; or ``none of these``.
        of : str, optional
            The class that they are taken to be in; if one is in another by now, nothing is done.
        all_of : str, optional
            In the place of ids: a class to join with ``to``, which must be known. All of its photos move.

        Returns
        -------
        PhotoChange
            The photos, and how many the classes have now.

        Raises
        ------
        InputError
            If there is no such photo or class, or it is in that class already.
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
        from fiveshot.recognizer import correction

        if all_of is None:
            with self._model.change() as change:
                return correction.move_photos(change, ids, target_name(to), of=of)
        if ids or of is not None:
            raise InputError("all_of moves all photos of a class", hint="give either ids or all_of")
        with self._model.change() as change:
            return correction.join_class(change, known_name(all_of), known_name(to))

    def correct(self, photos: PhotoInputs, name: str, *, progress: Progress | None = None) -> PhotoChange:
        """Say what photos show: what is new is learned, what was learned for something else is moved.

        Parameters
        ----------
        photos : photos
            As in ``learn``; a photo is known again by the SHA-256 of its file.
        name : str
            Name of the class that they show, known or new; or ``none of these``, as in :meth:`learn_none`.
        progress : callable, optional
            Called with the number of photos looked at and the number of all.

        Returns
        -------
        PhotoChange
            The photos, and how many the classes have now.

        Raises
        ------
        InputError
            If a photo cannot be used, or the name cannot be one.

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
        from fiveshot.recognizer import _learning
        from fiveshot.recognizer.photos.inputs import gather_photos

        name = target_name(name)
        gathered, snapshot = gather_photos(photos), self.refresh()
        if name == NONE:
            snapshot.require_classes()  # before the backbone runs
        embedder = self._embedder_of(snapshot)
        seen = _learning.see_to_keep(snapshot, embedder, gathered, progress)
        return self.correct_seen(seen, name, fingerprint=embedder.fingerprint)

    def correct_seen(
        self, photos: Sequence[PhotoRecord], name: str, *, fingerprint: str | None = None
    ) -> PhotoChange:
        """Say what photos show that this model's backbone has seen already, as the service does.

        Parameters
        ----------
        photos : sequence of PhotoRecord
            The photos with their features and what is kept of them.
        name : str
            As in :meth:`correct`.
        fingerprint : str, optional
            Fingerprint of the backbone that made the features.

        Returns
        -------
        PhotoChange
            The photos, and how many the classes have now.

        Raises
        ------
        ConflictError
            If the model has another backbone by now.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from fiveshot import Recognizer
        >>> from fiveshot.recognizer import PhotoRecord
        >>> owl = PhotoRecord(sha256=64 * "0", feature=np.ones(320, np.float32), name="owl.jpg")
        >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
        ...     _ = birds.learn_seen("wren", [owl])
        ...     birds.correct_seen([owl], "owl").counts
        {'wren': 0, 'owl': 1}
        """
        from fiveshot.recognizer import correction

        with self._model.change() as change:
            return correction.correct_photos(change, photos, target_name(name), made_by=fingerprint)

    def learn_none(self, photos: PhotoInputs, *, progress: Progress | None = None) -> PhotoChange:
        """Learn photos that show none of the classes.

        They are no class: they are kept apart, and help to tell unknown photos.

        Parameters
        ----------
        photos : photos
            As in ``learn``. One that was learned for a class is taken from it.
        progress : callable, optional
            Called with the number of photos looked at and the number of all.

        Returns
        -------
        PhotoChange
            The photos, and how many there are of none of the classes.

        Raises
        ------
        InputError
            If a photo cannot be used, or the model knows no class yet.

        Examples
        --------
        >>> import tempfile
        >>> from PIL import Image
        >>> from fiveshot import Recognizer
        >>> with Recognizer.create(tempfile.mkdtemp()) as colors:
        ...     _ = colors.learn("red", Image.new("RGB", (64, 64), "red"))
        ...     colors.learn_none(Image.new("RGB", (64, 64), "gray")).counts
        {'none of these': 1}
        """
        return self.correct(photos, NONE, progress=progress)

    def negatives(self) -> list[PhotoInfo]:
        """List the photos that show none of the classes, with their ids.

        Returns
        -------
        list of PhotoInfo
            The photos in the order in which they were learned.

        Examples
        --------
        >>> import tempfile
        >>> from PIL import Image
        >>> from fiveshot import Recognizer
        >>> with Recognizer.create(tempfile.mkdtemp()) as colors:
        ...     _ = colors.learn("red", Image.new("RGB", (64, 64), "red"))
        ...     _ = colors.learn_none(Image.new("RGB", (64, 64), "gray"))
        ...     [photo.id for photo in colors.negatives()]
        ['p2']
        """
        return self._photos_of(self.refresh().contents.negatives)

    def review(self, *, kept: bool = False) -> Review:
        """Look again at all learned photos, each asked of a model that has not seen it.

        Parameters
        ----------
        kept : bool
            Whether to suggest again what somebody decided to keep.

        Returns
        -------
        Review
            Accuracy and confused pairs of classes, photos to move or to remove, and what more photos would bring.

        Raises
        ------
        InputError
            If the model knows no class yet.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from fiveshot import Recognizer
        >>> rng = np.random.default_rng(0)
        >>> owls, wrens, crows = rng.normal(size=(3, 1, 320)) + 0.5 * rng.normal(size=(3, 6, 320))
        >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
        ...     _ = birds.learn_features("owl", owls[1:]), birds.learn_features("crow", crows)
        ...     _ = birds.learn_features("wren", [*wrens, owls[0]])
        ...     first = birds.review()
        ...     _ = birds.apply(first.of(["mixed-up"]))
        ...     round(first.accuracy, 2), birds.review().accuracy
        (0.94, 1.0)
        """
        from fiveshot.recognizer.review import review_model

        snapshot = self.refresh()
        with self._model.folder.reading() as connection:
            decided = frozenset() if kept else read_kept(connection)
        return review_model(snapshot, decided)

    def apply(self, suggestions: Iterable[Suggestion]) -> PhotoChange:
        """Do what a review suggests, as one change that ``undo`` takes back.

        Of two suggestions for one photo the first counts, and of every class one photo at least stays.

        Parameters
        ----------
        suggestions : iterable of Suggestion
            Those of a review that are to be followed.

        Returns
        -------
        PhotoChange
            The photos, and how many their classes have now.

        Raises
        ------
        InputError
            If nothing is suggested.
        ConflictError
            If a photo is not in the class any more that it was in then.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from fiveshot import Recognizer
        >>> rng = np.random.default_rng(0)
        >>> owls, wrens, crows = rng.normal(size=(3, 1, 320)) + 0.5 * rng.normal(size=(3, 6, 320))
        >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
        ...     _ = birds.learn_features("owl", owls[1:]), birds.learn_features("crow", crows)
        ...     _ = birds.learn_features("wren", [*wrens, owls[0]])
        ...     birds.apply(birds.review().of(["mixed-up"])).counts, birds.undo().action
        ({'wren': 6, 'owl': 6}, 'review')
        """
        from fiveshot.recognizer.review import apply_suggestions

        with self._model.change() as change:
            return apply_suggestions(change, suggestions)

    def keep(self, ids: str | Iterable[str], finding: str) -> PhotoChange:
        """Remember that photos stay as they are: a review does not suggest them again.

        That holds until their class changes much: until it has twice as many photos, or half of them. Photos that
        were moved or corrected are not suggested again either.

        Parameters
        ----------
        ids : str or iterable of str
            Ids of photos, such as ``p17``.
        finding : {"mixed-up", "harmful", "duplicates", "outliers"}
            What a review had found.

        Returns
        -------
        PhotoChange
            The photos.

        Raises
        ------
        InputError
            If there is no such photo or no such finding.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from fiveshot import Recognizer
        >>> rng = np.random.default_rng(0)
        >>> owls, wrens, crows = rng.normal(size=(3, 1, 320)) + 0.5 * rng.normal(size=(3, 6, 320))
        >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
        ...     _ = birds.learn_features("owl", owls[1:]), birds.learn_features("crow", crows)
        ...     _ = birds.learn_features("wren", [*wrens, owls[0]])
        ...     _ = birds.keep("p18", "mixed-up")
        ...     birds.review().of(["mixed-up"])
        ()
        """
        from fiveshot.recognizer import correction
        from fiveshot.recognizer.review import check_kinds

        check_kinds([finding])
        with self._model.change() as change:
            return correction.keep_photos(change, ids, finding)

    def sort(self, photos: PhotoInputs, *, resume: bool = True, progress: Progress | None = None) -> Sorting:
        """Sort photos without labels: known classes, groups of the others, and what to name first.

        Nothing is moved or learned; :meth:`learn_sorted` learns groups by name. A model without any class groups
        all photos.

        Parameters
        ----------
        photos : photos
            As in ``learn``: a folder, say.
        resume : bool
            Whether to keep the vectors of photos in the cache, so that sorting can be interrupted and repeated.
        progress : callable, optional
            Called with the number of photos looked at and the number of all.

        Returns
        -------
        Sorting
            The photos, sorted; those that cannot be used are in ``bad``.

        Raises
        ------
        InputError
            If there are no photos.

        Examples
        --------
        >>> import tempfile
        >>> from PIL import Image
        >>> from fiveshot import Recognizer
        >>> shades = ("darkred", "firebrick", "red", "midnightblue", "navy", "darkblue")
        >>> with Recognizer.create(tempfile.mkdtemp()) as colors:
        ...     sorting = colors.sort([Image.new("RGB", (64, 64), shade) for shade in shades], resume=False)
        >>> len(sorting.photos), sorting.known, sum(len(group.photos) for group in sorting.groups)
        (6, (), 6)
        """
        from fiveshot.recognizer._unlabeled import sort_photos
        from fiveshot.recognizer.photos.inputs import gather_photos

        gathered, snapshot = gather_photos(photos), self.refresh()
        folder = Path(photos) if isinstance(photos, str | Path) and Path(photos).is_dir() else None
        return sort_photos(
            snapshot, self._embedder_of(snapshot), gathered, folder=folder, resume=resume, progress=progress
        )

    def learn_sorted(
        self, sorting: Sorting, names: Mapping[str, str], *, progress: Progress | None = None
    ) -> list[LearnReport]:
        """Learn what was sorted by the names that were given to groups, all of them or none.

        Parameters
        ----------
        sorting : Sorting
            What ``sort`` returned.
        names : mapping of str to str
            Names of classes, known or new, by the id of a group (``g3``), by a question of the queue (``q3``, with
            its companions) or by the number of a photo (``3``).
        progress : callable, optional
            Called with the number of photos looked at and the number of all.

        Returns
        -------
        list of LearnReport
            One for each class.

        Raises
        ------
        InputError
            If there is no such group, or a photo has changed since it was sorted.

        Examples
        --------
        >>> import tempfile
        >>> from PIL import Image
        >>> from fiveshot import Recognizer
        >>> with Recognizer.create(tempfile.mkdtemp()) as colors:
        ...     sorting = colors.sort([Image.new("RGB", (64, 64), "red")], resume=False)
        ...     [report.name for report in colors.learn_sorted(sorting, {"g0": "red"})]
        ['red']
        """
        from fiveshot.recognizer._unlabeled import learn_sorted

        return learn_sorted(self._model, self._embedder_of, sorting, names, progress=progress)

    def sort_features(self, X: ArrayLike, *, photos: Sequence[str] | None = None) -> Sorting:
        """Sort features of photos without labels by what the model knows, and group the rest.

        Parameters
        ----------
        X : array of shape (n, d)
            Features that this model's backbone has made.
        photos : sequence of str, optional
            Names of the photos.

        Returns
        -------
        Sorting
            Photos of known classes, groups of the others, and what to name first.

        Raises
        ------
        InputError
            If the features do not fit the model.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from fiveshot import Recognizer
        >>> rng = np.random.default_rng(0)
        >>> owls, wrens = rng.normal(size=(2, 1, 320)) + 0.3 * rng.normal(size=(2, 6, 320))
        >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
        ...     _ = birds.learn_features("owl", owls[:3])
        ...     sorting = birds.sort_features([*owls[3:], *wrens])
        >>> [one.label for one in sorting.known], [len(group.photos) for group in sorting.groups]
        (['owl', 'owl', 'owl'], [6])
        """
        from fiveshot.recognizer import _learning
        from fiveshot.recognizer.sorting import sort_rows

        snapshot = self.refresh()
        rows = _learning.checked_features(X, snapshot.contents.width)
        names = [f"photo {number}" for number in range(1, len(rows) + 1)] if photos is None else photos
        return sort_rows(snapshot, rows, photos=names)

    def rename(self, old: str, new: str) -> None:
        """Give a class another name.

        Parameters
        ----------
        old, new : str
            The name it has, and the one it gets.

        Raises
        ------
        InputError
            If there is no class of the old name, or there is one of the new name.

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
        from fiveshot.recognizer import correction

        with self._model.change() as change:
            correction.rename(change, known_name(old), check_name(new))

    def group(self, parents: Mapping[str, str] | FilePath) -> dict[str, str]:
        """Put classes into groups: each gets the path of its parents as its name, ``owl/barn owl``.

        Parameters
        ----------
        parents : mapping, str or path
            The parent of each class, and of each parent that has one: by name, or in a CSV file with the columns
            ``name`` and ``parent``. An empty parent takes a class out of its group. Classes that are not named
            stay as they are, and names that are not classes do nothing.

        Returns
        -------
        dict
            By their names before, the names of the classes that were renamed.

        Raises
        ------
        InputError
            If a name is among its own parents, or two classes would get one name; nothing was changed.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from fiveshot import Recognizer
        >>> owls = np.random.default_rng(0).normal(size=(5, 320))
        >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
        ...     _ = birds.learn_features("barn owl", owls), birds.learn_features("wren", -owls)
        ...     birds.group({"barn owl": "owl"})
        {'barn owl': 'owl/barn owl'}
        """
        from fiveshot.recognizer import correction

        known = parents if isinstance(parents, Mapping) else read_parents(parents)
        if not grouped_names(self.refresh().classes, known):
            return {}  # a change that changes nothing is not one
        with self._model.change() as change:
            renamed = grouped_names(change.snapshot.classes, known)
            correction.rename_all(change, renamed)
        return renamed

    def undo(self, *, past_forget: bool = False, state: int | None = None) -> HistoryEntry:
        """Take back the last change that stands.

        Parameters
        ----------
        past_forget : bool
            Whether to pass over classes and photos that were erased for good, which cannot come back.
        state : int, optional
            Number of the state that the caller has seen: in any other state nothing is taken back.

        Returns
        -------
        HistoryEntry
            The change that was taken back.

        Raises
        ------
        InputError
            If there is nothing to undo.
        NotUndoableError
            If the last change left no history to undo it with.
        ConflictError
            If the model is in another state than ``state``.

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
        from fiveshot.recognizer import correction

        with self._model.change() as change:
            return correction.undo_last(change, past_forget=past_forget, state=state)

    def set(self, *, false_rejection: float) -> RejectedAt:
        """Change a setting; nothing is learned again, and ``undo`` takes it back.

        Parameters
        ----------
        false_rejection : float
            Share of the photos of known classes that may be called unknown.

        Returns
        -------
        RejectedAt
            How many of the learned photos are called unknown now.

        Raises
        ------
        InputError
            If the rate is not a number between 0 and 1.

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
        from fiveshot.recognizer import correction

        with self._model.change() as change:
            correction.set_options(change, false_rejection=false_rejection)
        return self.snapshot.rejected_at(false_rejection)

    def rejected_at(self, rate: float) -> RejectedAt:
        """Say how many of the learned photos would be called unknown at a rate of false rejections.

        Parameters
        ----------
        rate : float
            Share of the photos of known classes that may be called unknown.

        Returns
        -------
        RejectedAt
            How many, each photo left out of the model that judges it.

        Raises
        ------
        InputError
            If the rate is not a number between 0 and 1.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from fiveshot import Recognizer
        >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
        ...     _ = birds.learn_features("owl", np.random.default_rng(0).normal(size=(5, 320)))
        ...     birds.rejected_at(0.05).note
        'nothing is rejected yet: 19 photos of classes with two or more are needed, not 5'
        """
        return self.refresh().rejected_at(rate)

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
        contents = self.refresh().contents
        with self._model.folder.reading() as connection:
            return model_info(self.path, contents, connection)

    def thumbnails(self, name: str) -> list[bytes]:
        """Return the small copies of the photos that a class was learned from, as far as they were kept.

        Parameters
        ----------
        name : str
            Name of the class.

        Returns
        -------
        list of bytes
            JPEG files, in the order in which the photos were learned.

        Raises
        ------
        InputError
            If there is no such class.

        Examples
        --------
        >>> import io
        >>> import tempfile
        >>> from PIL import Image
        >>> from fiveshot import Recognizer
        >>> with Recognizer.create(tempfile.mkdtemp()) as colors:
        ...     _ = colors.learn("red", Image.new("RGB", (640, 320), "red"))
        ...     (small,) = colors.thumbnails("red")
        >>> Image.open(io.BytesIO(small)).size
        (128, 64)
        """
        row = self._row(name)
        with self._model.folder.reading() as connection:
            tables = Tables(connection, self.snapshot.contents.width)
            photos = tables.read_photos(row.id) if row is not None else ()
            return [photo.thumbnail for photo in photos if photo.thumbnail is not None]

    def picture(self, id: str) -> bytes | None:
        """Return the small copy of a learned photo.

        Parameters
        ----------
        id : str
            Id of the photo, such as ``p17``.

        Returns
        -------
        bytes or None
            A JPEG file; None where no small copy was kept, or there is no such photo.

        Raises
        ------
        InputError
            If this is not the id of a photo.

        Examples
        --------
        >>> import tempfile
        >>> from PIL import Image
        >>> from fiveshot import Recognizer
        >>> with Recognizer.create(tempfile.mkdtemp()) as colors:
        ...     _ = colors.learn("red", Image.new("RGB", (640, 320), "red"))
        ...     colors.picture("p1")[:2]
        b'\\xff\\xd8'
        """
        from fiveshot.recognizer import correction

        (number,) = correction.photo_numbers(id, self.snapshot.contents)
        with self._model.folder.reading() as connection:
            return read_picture(connection, number)

    def merge(self, other: FilePath) -> MergeReport:
        """Take over the classes of another model, with the very statistics they have there.

        Parameters
        ----------
        other : str or path
            The directory of a model that began with the same base, or an exported file of one.

        Returns
        -------
        MergeReport
            Which classes were added, and which both models had.

        Raises
        ------
        InputError
            If the models have another backbone, base or head, or classes of one name with other photos.

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
        from fiveshot.recognizer.shipping._merging import merge_classes, other_model

        with other_model(Path(other)) as source, self._model.change() as change:
            return merge_classes(change, source)

    def evaluate(
        self,
        classes: ClassInputs,
        *,
        nested: bool = False,
        progress: Progress | None = None,
        on_bad: OnBad | None = None,
    ) -> Evaluation:
        """Measure the model on labeled photos; classes it does not know test the rejection.

        Parameters
        ----------
        classes : mapping, str or path
            Photos by the name of their class, or a folder (or an archive) of class folders. A name may lack its
            groups where just one class is called so.
        nested : bool
            As in ``learn_many``.
        progress : callable, optional
            Called with the number of photos looked at and the number of all.
        on_bad : callable, optional
            Called with the photos that cannot be used, as ``BadImage``: then the others are measured. Without it
            such a photo is an error.

        Returns
        -------
        Evaluation
            The figures, which folders are not classes of the model, and how many photos it has learned.

        Raises
        ------
        InputError
            If a photo cannot be used, or the model knows no class yet.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> from PIL import Image
        >>> from fiveshot import Recognizer
        >>> folder = Path(tempfile.mkdtemp())
        >>> for name in ("red", "blue"):
        ...     (folder / name).mkdir()
        ...     Image.new("RGB", (64, 64), name).save(folder / name / "1.png")
        >>> with Recognizer.create(tempfile.mkdtemp()) as colors:
        ...     _ = colors.learn("red", folder / "red")
        ...     measured = colors.evaluate(folder)
        >>> measured.photos, measured.accuracy, measured.unknown_photos
        (1, 1.0, 1)
        """
        from fiveshot.recognizer.evaluation import evaluate_photos, without_labels
        from fiveshot.recognizer.photos.inputs import gather_classes

        advice = "" if isinstance(classes, Mapping) else without_labels(self.path, classes)
        gathered, snapshot = gather_classes(classes, nested=nested, without_labels=advice), self.refresh()
        snapshot.require_classes()
        embedder = self._embedder_of(snapshot)
        return evaluate_photos(snapshot, embedder, gathered, progress=progress, on_bad=on_bad)

    def export(self, file: FilePath, *, photos: bool = False, overwrite: bool = False) -> Path:
        """Write the model to one file.

        Parameters
        ----------
        file : str or path
            Where it goes. An earlier export is replaced.
        photos : bool
            Whether kept photos go with it.
        overwrite : bool
            Whether to replace a file that is not an earlier export.

        Returns
        -------
        Path
            The file.

        Raises
        ------
        InputError
            If the file would lie inside a model.
        StorageError
            If there is another file, or it cannot be written.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> from fiveshot import Recognizer
        >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
        ...     birds.export(Path(tempfile.mkdtemp()) / "birds.fiveshot").name
        'birds.fiveshot'
        """
        from fiveshot.recognizer.shipping._portable import check_target, is_portable, write_portable

        target = Path(file)
        check_target(target, is_portable, overwrite=overwrite)
        with self._model.folder.reading() as connection:
            contents = read_contents(connection, self.path, self.snapshot.contents)
            write_portable(target, self.path, contents, connection, originals=photos)
        return target

    def export_onnx(self, file: FilePath, *, overwrite: bool = False) -> Path:
        """Write backbone, classes and thresholds as an ONNX graph, and beside it a JSON file.

        Parameters
        ----------
        file : str or path
            Where the graph goes; its name ends in ``.onnx``.
        overwrite : bool
            Whether to replace files that are not an earlier export.

        Returns
        -------
        Path
            The JSON file, which says how to prepare photos and how to read the answers.

        Raises
        ------
        FiveshotError
            If the extra ``onnx`` is not installed.
        InputError
            If the model knows no class, or its backbone or head cannot be written as ONNX.

        Examples
        --------
        >>> import tempfile
        >>> from fiveshot import FiveshotError, Recognizer
        >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
        ...     try:
        ...         birds.export_onnx("birds.onnx")
        ...     except FiveshotError as error:
        ...         print(error.code)
        no_classes
        """
        from fiveshot.recognizer.shipping._onnx import export_onnx, onnx_targets

        snapshot = self.refresh()
        snapshot.require_classes()
        onnx_targets(file, overwrite=overwrite)  # before the backbone is loaded
        return export_onnx(
            self._embedder_of(snapshot),
            snapshot.head,
            file,
            rejection=snapshot.rejection,
            strangers=snapshot.strangers,
            overwrite=overwrite,
        )

    def export_web(self, folder: FilePath, *, title: str | None = None, overwrite: bool = False) -> WebExport:
        """Write a page that recognizes photos and the camera's picture in the browser, without a server behind it.

        Everything is in the folder: the page, the graph with weights of 8 bits, and ONNX Runtime to run it. Any
        web server can serve it. Once loaded, the page works without a network and can be installed.

        Parameters
        ----------
        folder : str or path
            A new or empty folder, or that of an earlier export, whose files are replaced.
        title : str, optional
            What the page is called; the name of the model's directory unless given.
        overwrite : bool
            Whether to write into a folder that holds other files; those are left alone.

        Returns
        -------
        WebExport
            The folder, its files, and how many bytes a browser loads.

        Raises
        ------
        FiveshotError
            If the extra ``onnx`` is not installed.
        InputError
            If the model knows no class, or its backbone or head cannot be written as ONNX.
        StorageError
            If the folder holds other files, or cannot be written.

        Examples
        --------
        >>> import tempfile
        >>> from fiveshot import FiveshotError, Recognizer
        >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
        ...     try:
        ...         birds.export_web("site")
        ...     except FiveshotError as error:
        ...         print(error.code)
        no_classes
        """
        from fiveshot.recognizer.shipping._web import check_folder, export_web

        snapshot = self.refresh()
        snapshot.require_classes()
        check_folder(folder, overwrite=overwrite)  # before the backbone is loaded
        name = title or self.path.resolve().name
        return export_web(self._embedder_of(snapshot), snapshot, folder, title=name, overwrite=overwrite)

    @classmethod
    def import_file(cls, file: FilePath, path: FilePath, **opening: Any) -> Self:
        """Make a model from an exported file and open it. Nothing in the file is trusted.

        Parameters
        ----------
        file : str or path
            A file that ``export`` wrote, here or elsewhere.
        path : str or path
            The directory to make.
        **opening
            Arguments of ``open``.

        Returns
        -------
        Recognizer
            The model, open.

        Raises
        ------
        StorageError
            If anything in the file does not fit; then nothing is made.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from pathlib import Path
        >>> from fiveshot import Recognizer
        >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
        ...     _ = birds.learn_features("owl", np.random.default_rng(0).normal(size=(5, 320)))
        ...     file = birds.export(Path(tempfile.mkdtemp()) / "birds.fiveshot")
        >>> with Recognizer.import_file(file, tempfile.mkdtemp(), readonly=True) as copy:
        ...     copy.snapshot.classes
        ('owl',)
        """
        from fiveshot.recognizer.shipping._portable import import_model

        import_model(file, path)
        return cls.open(path, **opening)

    def push_to_hub(
        self,
        place: FilePath,
        *,
        private: bool = False,
        token: str | None = None,
        photos: bool = False,
        evaluation: Evaluation | Mapping[str, Any] | None = None,
        title: str | None = None,
    ) -> str:
        """Publish the model on the Hugging Face hub, or in a folder: the portable file, and a card about it.

        Parameters
        ----------
        place : str or path
            ``owner/name`` on the hub, which is made where there is none, or a folder: a path, ``./folder`` or
            ``file:///folder``. What was published there is replaced; the hub keeps the versions before.
        private : bool
            Whether a repository that is made is private.
        token : str, optional
            Who you are on the hub; that of ``hf auth login`` or ``HF_TOKEN`` unless given.
        photos : bool
            Whether small copies of photos, and photos that were kept, go with it.
        evaluation : Evaluation or mapping, optional
            What ``evaluate`` gave, for the card.
        title : str, optional
            Heading of the card; the name of the model's directory unless given.

        Returns
        -------
        str
            The address of the repository, or the folder.

        Raises
        ------
        InputError
            If the model knows no class, the place is not one, or the extra ``hub`` is not installed.
        StorageError
            If the hub cannot be reached or does not allow it; ``code`` says which.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from pathlib import Path
        >>> from fiveshot import Recognizer
        >>> folder = Path(tempfile.mkdtemp())
        >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
        ...     _ = birds.learn_features("owl", np.random.default_rng(0).normal(size=(5, 320)))
        ...     _ = birds.push_to_hub(folder, title="Birds")
        >>> sorted(file.name for file in folder.iterdir())
        ['README.md', 'model.fiveshot']
        """
        import tempfile

        from fiveshot.recognizer.shipping._hub import Place, model_card, publish
        from fiveshot.recognizer.shipping._portable import write_portable

        where = Place.of(place)
        self.refresh().require_classes()
        name = title or self.path.resolve().name
        card = model_card(self.show(), where, title=name, evaluation=evaluation, pictures=photos)
        with tempfile.TemporaryDirectory() as folder, self._model.folder.reading() as connection:
            file = Path(folder) / "model.fiveshot"
            contents = read_contents(connection, self.path, self.snapshot.contents)
            write_portable(file, self.path, contents, connection, originals=photos, thumbnails=photos)
            return publish(where, file, card, private=private, token=token, message=f"{name}, by fiveshot")

    @classmethod
    def from_pretrained(
        cls,
        place: FilePath,
        path: FilePath | None = None,
        *,
        revision: str | None = None,
        token: str | None = None,
        **opening: Any,
    ) -> Self:
        """Open a model that ``push_to_hub`` has published. Nothing in it is trusted.

        Parameters
        ----------
        place : str or path
            ``owner/name`` on the hub, or a folder: a path, ``./folder`` or ``file:///folder``. A folder that is
            there goes before the hub.
        path : str or path, optional
            The directory to make, for a model that you go on teaching. Without one, the model lies in the cache
            and is opened to be read.
        revision : str, optional
            A branch, tag or commit of the hub.
        token : str, optional
            Who you are on the hub; that of ``hf auth login`` or ``HF_TOKEN`` unless given.
        **opening
            Arguments of ``open``.

        Returns
        -------
        Recognizer
            The model, open.

        Raises
        ------
        InputError
            If the place is not one, or the extra ``hub`` is not installed.
        StorageError
            If there is no such model, the hub cannot be reached, or anything in the file does not fit.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from pathlib import Path
        >>> from fiveshot import Recognizer
        >>> folder = Path(tempfile.mkdtemp())
        >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
        ...     _ = birds.learn_features("owl", np.random.default_rng(0).normal(size=(5, 320)))
        ...     _ = birds.push_to_hub(folder)
        >>> with Recognizer.from_pretrained(folder, tempfile.mkdtemp()) as copy:
        ...     copy.snapshot.classes
        ('owl',)
        """
        from fiveshot.errors import InputError
        from fiveshot.recognizer.shipping._hub import Place, fetch, kept_copy

        file = fetch(Place.of(place, must_exist=True), revision=revision, token=token)
        if path is not None:
            return cls.import_file(file, path, **opening)
        if opening.get("readonly") is False:
            raise InputError("the copy in the cache is not taught", hint="give a directory: path=DIR")
        return cls.open(kept_copy(file), **{**opening, "readonly": True})

    def check(self, *, repair: bool = False) -> list[Finding]:
        """Verify everything in the directory.

        Parameters
        ----------
        repair : bool
            Whether to put right what follows from the database.

        Returns
        -------
        list of Finding
            What is not as it should be; an empty list is a sound model.

        Examples
        --------
        >>> import tempfile
        >>> from fiveshot import Recognizer
        >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
        ...     birds.check()
        []
        """
        from fiveshot.recognizer.checking import check_model

        return check_model(self.path, repair=repair)

    def settle(self) -> bool:
        """Erase what forgetting had to leave in the files, if no other process reads it any more.

        Every ``open`` to write and every change does so by itself; a process that waits for work may ask now and
        then.

        Returns
        -------
        bool
            Whether nothing is left.

        Examples
        --------
        >>> import tempfile
        >>> from fiveshot import Recognizer
        >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
        ...     birds.settle()
        True
        """
        folder = self._model.folder
        with folder.reading():  # a model that is closed or damaged is refused in words
            pending = folder.unsettled()
        if pending is not None:
            folder.settle_in_passing()
            pending = folder.unsettled()
        return pending is None

    def retune(
        self,
        *,
        base: FilePath | None = None,
        recipe: str = "ours",
        settings: Mapping[str, Any] | None = None,
        progress: Progress | None = None,
        on_tuning: Callable[[TuneProgress], None] | None = None,
        skip_bad: bool = False,
        on_bad: Callable[[Sequence[BadImage]], None] | None = None,
    ) -> TuneResult:
        """Adapt the backbone to everything learned, recompute all features, and switch to them in one step.

        Until the switch the model works on as it was. It cannot be undone: export the model first to be able to
        go back. Needs the extra ``torch``.

        Parameters
        ----------
        base : str or path, optional
            Folder with the photos of the base classes, where there are any.
        recipe : str
            Name of the recipe of tuning.
        settings : mapping, optional
            Single values of the recipe to replace.
        progress, on_tuning, skip_bad, on_bad
            As in ``create``.

        Returns
        -------
        TuneResult
            What the tuning did.

        Raises
        ------
        InputError
            If photos were not kept, or those of the base do not fit.
        ConflictError
            If the model was changed meanwhile.

        Examples
        --------
        >>> import tempfile
        >>> from PIL import Image
        >>> from fiveshot import Recognizer
        >>> photos = {name: 2 * [Image.new("RGB", (64, 64), name)] for name in ("red", "blue")}
        >>> with Recognizer.create(tempfile.mkdtemp(), keep_photos=True) as colors:
        ...     _ = colors.learn_many(photos)
        ...     result = colors.retune(settings={"epochs": 1})
        ...     result.best_epoch, colors.show().adapter
        (1, True)
        """
        from fiveshot.recognizer.creation import Work, retuned_model, switch
        from fiveshot.recognizer.photos import embedding

        record = self.refresh().manifest.backbone
        spec = embedding.backbone_spec(record, weights=self._weights, device=self._device, runtime=self._runtime)
        work = Work(skip_bad, on_bad, progress, on_tuning)
        with retuned_model(self._model, spec, base=base, recipe=recipe, settings=settings, work=work) as retuned:
            with self._embedder_lock, self._model.change() as change:
                switch(change, retuned)
            self._embedder = retuned.embedder
        return retuned.result

    def history(self, limit: int | None = None) -> list[HistoryEntry]:
        """Return what was done.

        Parameters
        ----------
        limit : int, optional
            The most entries to return; all of them unless given.

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
        with self._model.folder.reading() as connection:
            return read_history(connection, limit=limit)

    def close(self) -> None:
        """Close the model; what it has acknowledged is on the disk already.

        A ``with`` block does it by itself.

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
        self._model.folder.close()

    def __repr__(self) -> str:
        from fiveshot.errors import counted

        return f"<Recognizer {self.path}, {counted(len(self.snapshot.classes), 'class')}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
