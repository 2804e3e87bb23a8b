"""The recognizer: one object, one directory, a handful of verbs."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from fiveshot.backbones import Embedder
from fiveshot.core.statistics import unknown_class
from fiveshot.errors import InputError
from fiveshot.features import FeatureSet
from fiveshot.heads.registry import DEFAULT_HEAD
from fiveshot.progress import Progress
from fiveshot.recognizer.change import LiveModel
from fiveshot.recognizer.checking import Finding, check_model
from fiveshot.recognizer.evaluation import Evaluation, evaluate_photos
from fiveshot.recognizer.forgetting import forget_class, rename, undo_last
from fiveshot.recognizer.info import ModelInfo, model_info
from fiveshot.recognizer.insight import LearnReport
from fiveshot.recognizer.learning import (
    ClassInputs,
    checked_features,
    feature_records,
    gather_classes,
    learn_classes,
    learn_photos,
)
from fiveshot.recognizer.names import check_name
from fiveshot.recognizer.photos.embedding import check_place, open_backbone, see_photos
from fiveshot.recognizer.photos.inputs import PhotoInputs, gather_photos
from fiveshot.recognizer.recognition.snapshot import Prediction, Snapshot, check_top
from fiveshot.recognizer.shipping.importing import import_model
from fiveshot.recognizer.shipping.merging import MergeReport, merge_classes, other_model
from fiveshot.recognizer.shipping.portable import check_target, is_portable, write_portable
from fiveshot.recognizer.store.contents import read_contents
from fiveshot.recognizer.store.folder import TIMEOUT, ModelFolder
from fiveshot.recognizer.store.history import HistoryEntry, read_history
from fiveshot.recognizer.store.manifest import Options
from fiveshot.recognizer.store.rows import PhotoRecord, read_photos
from fiveshot.storage import FilePath

if TYPE_CHECKING:
    from fiveshot.recognizer.creation import OnBad
    from fiveshot.tuning import TuneResult
    from fiveshot.tuning.results import OnProgress as OnTuning


class Recognizer:
    """A model in a directory: learns classes from photos, recognizes, forgets.

    Any number of processes may read a model while one writes to it. Every change is one transaction, on the
    disk when the call returns. ``snapshot`` is the state in force, a value that never changes; threads may
    share a recognizer.

    >>> import tempfile
    >>> import numpy as np
    >>> from fiveshot import Recognizer
    >>> owls = np.random.default_rng(0).normal(size=(5, 384))  # as the backbone would make them of photos
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     _ = birds.learn_features("owl", owls)
    ...     birds.predict_features(owls[:1])[0].label
    'owl'
    """

    def __init__(self, model: LiveModel, *, device: str, runtime: str, weights: FilePath | None = None) -> None:
        """Use ``create`` or ``open``."""
        self._model = model
        self._device, self._runtime, self._weights = device, runtime, weights
        self._runner: Embedder | None = None
        self._runner_lock = threading.Lock()

    @classmethod
    def create(
        cls,
        path: FilePath,
        *,
        base: FilePath | FeatureSet | None = None,
        backbone: str | None = None,
        weights: FilePath | None = None,
        head: str = DEFAULT_HEAD,
        adapter: FilePath | None = None,
        seed: int = 0,
        keep_photos: bool = False,
        thumbnails: bool = True,
        false_rejection: float = 0.05,
        device: str = "auto",
        runtime: str = "auto",
        tune: bool = False,
        progress: Progress | None = None,
        on_tuning: OnTuning | None = None,
        skip_bad: bool = False,
        on_bad: OnBad | None = None,
    ) -> Self:
        """Make a model in a new directory and open it.

        ``base`` is a folder or an archive of class folders, or their features (a set or its file) as this
        backbone makes them; of base classes the statistics are kept and no photos. Without a base the first
        classes are learned from a few photos as all later ones. ``adapter`` is a file or the name of an embedded
        adapter; ``tune`` adapts the backbone to the base classes first. ``keep_photos`` stores the photos
        of classes learned later, which ``retune`` needs. Photos of the base that cannot be read are an error; with
        ``skip_bad`` they are left out, and ``on_bad`` is told which. ``progress`` is told how many photos have
        been looked at, ``on_tuning`` where the adapting stands.

        >>> import tempfile
        >>> from fiveshot import Recognizer
        >>> with Recognizer.create(tempfile.mkdtemp(), head="c-fecam") as birds:
        ...     info = birds.show()
        >>> info.head, info.width, info.classes
        ('c-fecam', 384, ())
        """
        from fiveshot.recognizer.creation import make_model

        runner = make_model(
            path,
            base=base,
            backbone=backbone,
            weights=weights,
            head=head,
            adapter=adapter,
            options=Options(keep_photos, thumbnails, false_rejection, seed),
            device=device,
            runtime=runtime,
            tune=tune,
            on_tuning=on_tuning,
            progress=progress,
            skip_bad=skip_bad,
            on_bad=on_bad,
        )
        opened = cls.open(path, device=device, runtime=runtime)
        opened._runner = runner
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

        ``weights`` says where the backbone's own file is now, if it has moved; ``timeout`` is how many seconds
        to wait for another writer.

        >>> import tempfile
        >>> from fiveshot import Recognizer
        >>> folder = tempfile.mkdtemp()
        >>> Recognizer.create(folder).close()
        >>> with Recognizer.open(folder, readonly=True) as birds:
        ...     birds.show().state
        1
        """
        check_place(device, runtime)
        folder = ModelFolder(Path(path), readonly=readonly, timeout=timeout)
        try:
            return cls(LiveModel(folder), device=device, runtime=runtime, weights=weights)
        except BaseException:
            folder.close()
            raise

    @property
    def path(self) -> Path:
        """The directory."""
        return self._model.folder.path

    @property
    def snapshot(self) -> Snapshot:
        """The state in force, as this process has last seen it."""
        return self._model.snapshot

    @property
    def runner(self) -> Embedder:
        """The backbone, loaded on first use and checked against the one the model was made with."""
        return self._runner_of(self.snapshot)

    def _runner_of(self, snapshot: Snapshot) -> Embedder:
        with self._runner_lock:
            record = snapshot.manifest.backbone
            if self._runner is None or self._runner.fingerprint != record.fingerprint:
                self._runner = open_backbone(
                    record, self.path, weights=self._weights, device=self._device, runtime=self._runtime
                )
            return self._runner

    def refresh(self) -> Snapshot:
        """Take up what other processes have changed, and return the state in force.

        >>> import tempfile
        >>> import numpy as np
        >>> from fiveshot import Recognizer
        >>> owls = np.random.default_rng(0).normal(size=(5, 384))
        >>> with Recognizer.create(tempfile.mkdtemp()) as birds, Recognizer.open(birds.path) as elsewhere:
        ...     _ = elsewhere.learn_features("owl", owls)
        ...     birds.snapshot.classes, birds.refresh().classes
        ((), ('owl',))
        """
        return self._model.refresh()

    def learn(self, name: str, photos: PhotoInputs, *, add: bool = False) -> LearnReport:
        """Learn a class from photos; ``add`` allows to add them to a class that is known.

        Photos are files, folders, archives, patterns, bytes, open files, PIL images, or a list of these.

        >>> import tempfile
        >>> from PIL import Image
        >>> from fiveshot import Recognizer
        >>> photos = [Image.new("RGB", (64, 64), color) for color in ("red", "crimson", "firebrick")]
        >>> with Recognizer.create(tempfile.mkdtemp(), runtime="torch") as colors:
        ...     colors.learn("red", photos).photos
        3
        """
        (report,) = self.learn_many({name: photos}, add=add)
        return report

    def learn_many(
        self,
        classes: Mapping[str, PhotoInputs] | FilePath,
        *,
        add: bool = False,
        new_only: bool = False,
        progress: Progress | None = None,
    ) -> list[LearnReport]:
        """Learn several classes, or a folder of class folders, all of them or none.

        Classes that are known are refused; ``add`` adds photos to them, ``new_only`` passes over them, and the
        reports are of the others.

        >>> import tempfile
        >>> from PIL import Image
        >>> from fiveshot import Recognizer
        >>> photos = {name: [Image.new("RGB", (64, 64), name)] for name in ("red", "blue")}
        >>> with Recognizer.create(tempfile.mkdtemp(), runtime="torch") as colors:
        ...     [(report.name, report.photos) for report in colors.learn_many(photos)]
        [('red', 1), ('blue', 1)]
        """
        return learn_photos(self._model, self._runner_of, classes, add=add, new_only=new_only, progress=progress)

    def learn_features(
        self,
        name: str,
        features: ArrayLike | Tensor,
        *,
        names: Sequence[str] | None = None,
        sha256s: Sequence[str] | None = None,
        thumbnails: Sequence[bytes | None] | None = None,
        originals: Sequence[bytes | None] | None = None,
        fingerprint: str | None = None,
        add: bool = False,
    ) -> LearnReport:
        """Learn a class from features that this model's backbone has made, (n, d).

        ``fingerprint`` is that of the runner that made them: they are refused if the model has another backbone
        by now. ``names``, ``sha256s``, ``thumbnails`` (JPEG or WebP) and ``originals`` are those of the photos,
        one for each row.

        >>> import tempfile
        >>> import numpy as np
        >>> from fiveshot import Recognizer
        >>> owls = np.random.default_rng(0).normal(size=(5, 384))
        >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
        ...     _ = birds.learn_features("owl", owls)
        ...     report = birds.learn_features("wren", -owls)
        >>> report.verdict, report.nearest
        ('clear', 'owl')
        """
        photos = feature_records(
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
        >>> owl = PhotoRecord(sha256=64 * "0", feature=np.ones(384, np.float32), name="owl.jpg")
        >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
        ...     birds.learn_seen("owl", [owl]).photos
        1
        """
        with self._model.change() as change:
            (report,) = learn_classes(change, {check_name(name): photos}, add=add, made_by=fingerprint)
        return report

    def predict(self, photos: PhotoInputs, *, top: int = 5, progress: Progress | None = None) -> list[Prediction]:
        """Say what each photo shows.

        >>> import tempfile
        >>> from PIL import Image
        >>> from fiveshot import Recognizer
        >>> photos = {name: [Image.new("RGB", (64, 64), name)] for name in ("red", "blue")}
        >>> with Recognizer.create(tempfile.mkdtemp(), runtime="torch") as colors:
        ...     _ = colors.learn_many(photos)
        ...     colors.predict(Image.new("RGB", (64, 64), "darkred"))[0].label
        'red'
        """
        check_top(top)  # before the backbone runs
        gathered = gather_photos(photos)
        snapshot = self.refresh()
        seen = see_photos(self._runner_of(snapshot), gathered, progress=progress)
        X = np.stack([photo.feature for photo in seen])
        return snapshot.predict_features(X, top, photos=[photo.name for photo in seen])

    def predict_features(self, X: ArrayLike | Tensor, *, top: int = 5) -> list[Prediction]:
        """Say what each row of features shows.

        >>> import tempfile
        >>> import numpy as np
        >>> from fiveshot import Recognizer
        >>> owls = np.random.default_rng(0).normal(size=(5, 384))
        >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
        ...     _ = birds.learn_features("owl", owls), birds.learn_features("wren", -owls)
        ...     [seen.label for seen in birds.predict_features(np.stack([owls[0], -owls[1]]))]
        ['owl', 'wren']
        """
        snapshot = self.refresh()
        return snapshot.predict_features(checked_features(X, snapshot.contents.width), top)

    def forget(self, name: str, *, keep_history: bool = False) -> None:
        """Forget a class: afterwards the model equals one that never saw it, in every byte of the directory.

        With ``keep_history`` it can be undone, and the history holds it until it is forgotten without.

        >>> import tempfile
        >>> import numpy as np
        >>> from fiveshot import Recognizer
        >>> owls = np.random.default_rng(0).normal(size=(5, 384))
        >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
        ...     _ = birds.learn_features("owl", owls), birds.learn_features("wren", -owls)
        ...     birds.forget("owl")
        ...     birds.snapshot.classes
        ('wren',)
        """
        with self._model.change() as change:
            forget_class(change, check_name(name), keep_history=keep_history)

    def rename(self, old: str, new: str) -> None:
        """Give a class another name.

        >>> import tempfile
        >>> import numpy as np
        >>> from fiveshot import Recognizer
        >>> owls = np.random.default_rng(0).normal(size=(5, 384))
        >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
        ...     _ = birds.learn_features("owl", owls)
        ...     birds.rename("owl", "barn owl")
        ...     birds.snapshot.classes
        ('barn owl',)
        """
        with self._model.change() as change:
            rename(change, check_name(old), check_name(new))

    def undo(self, *, past_forget: bool = False, state: int | None = None) -> HistoryEntry:
        """Take back the last change that stands, and return it.

        A class forgotten without history cannot come back; ``past_forget`` undoes the change before that. With
        ``state``, the number of the state that the caller has seen, nothing is taken back if somebody else has
        changed the model since.

        >>> import tempfile
        >>> import numpy as np
        >>> from fiveshot import Recognizer
        >>> owls = np.random.default_rng(0).normal(size=(5, 384))
        >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
        ...     _ = birds.learn_features("owl", owls)
        ...     undone = birds.undo()
        ...     undone.action, undone.classes, birds.snapshot.classes
        ('learn', ('owl',), ())
        """
        with self._model.change() as change:
            return undo_last(change, past_forget=past_forget, state=state)

    def show(self) -> ModelInfo:
        """Return what the model holds.

        >>> import tempfile
        >>> import numpy as np
        >>> from fiveshot import Recognizer
        >>> owls = np.random.default_rng(0).normal(size=(5, 384))
        >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
        ...     _ = birds.learn_features("owl", owls)
        ...     info = birds.show()
        >>> info.base_classes, info.new_classes, info.classes[0].photos
        (0, 1, 5)
        """
        snapshot = self.refresh()
        with self._model.folder.reading() as connection:
            return model_info(self.path, snapshot, connection)

    def thumbnails(self, name: str) -> list[bytes]:
        """Return the small copies of the photos that a class was learned from, as far as they were kept.

        >>> import io
        >>> import tempfile
        >>> from PIL import Image
        >>> from fiveshot import Recognizer
        >>> with Recognizer.create(tempfile.mkdtemp(), runtime="torch") as colors:
        ...     _ = colors.learn("red", Image.new("RGB", (640, 320), "red"))
        ...     (small,) = colors.thumbnails("red")
        >>> Image.open(io.BytesIO(small)).size
        (128, 64)
        """
        contents, name = self.refresh().contents, check_name(name)
        if name not in contents:
            raise unknown_class(name, contents.memory.labels)
        row = contents.by_name.get(name)
        with self._model.folder.reading() as connection:
            photos = read_photos(connection, row.id, contents.width) if row is not None else ()
        return [photo.thumbnail for photo in photos if photo.thumbnail is not None]

    def merge(self, other: FilePath) -> MergeReport:
        """Take over the classes of another model, or of an exported file, that began with the same base.

        >>> import tempfile
        >>> import numpy as np
        >>> from fiveshot import Recognizer
        >>> owls = np.random.default_rng(0).normal(size=(5, 384))
        >>> with Recognizer.create(tempfile.mkdtemp()) as here, Recognizer.create(tempfile.mkdtemp()) as there:
        ...     _ = here.learn_features("wren", -owls), there.learn_features("owl", owls)
        ...     here.merge(there.path).added, here.snapshot.classes
        (('owl',), ('owl', 'wren'))
        """
        with other_model(Path(other)) as source, self._model.change() as change:
            return merge_classes(change, source)

    def evaluate(self, classes: ClassInputs, *, progress: Progress | None = None) -> Evaluation:
        """Measure the model on a folder of class folders; classes it does not know test the rejection.

        The result says which folders those are, and how many of the photos the model has learned.

        >>> import tempfile
        >>> from pathlib import Path
        >>> from PIL import Image
        >>> from fiveshot import Recognizer
        >>> folder = Path(tempfile.mkdtemp())
        >>> for name in ("red", "blue"):
        ...     (folder / name).mkdir()
        ...     Image.new("RGB", (64, 64), name).save(folder / name / "1.png")
        >>> with Recognizer.create(tempfile.mkdtemp(), runtime="torch") as colors:
        ...     _ = colors.learn("red", folder / "red")
        ...     measured = colors.evaluate(folder)
        >>> measured.photos, measured.accuracy, measured.unknown_photos
        (1, 1.0, 1)
        """
        snapshot, gathered = self.refresh(), gather_classes(classes)
        return evaluate_photos(snapshot, self._runner_of(snapshot), gathered, progress=progress)

    def export(self, file: FilePath, *, photos: bool = False, overwrite: bool = False) -> Path:
        """Write the model to one file; kept photos go with it only where ``photos`` asks for them.

        An earlier export is replaced, any other file only with ``overwrite``.

        >>> import tempfile
        >>> from pathlib import Path
        >>> from fiveshot import Recognizer
        >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
        ...     birds.export(Path(tempfile.mkdtemp()) / "birds.fiveshot").name
        'birds.fiveshot'
        """
        target = Path(file)
        check_target(target, is_portable, overwrite=overwrite)
        with self._model.folder.reading() as connection:
            contents = read_contents(connection, self.path, self.snapshot.contents)
            write_portable(target, self.path, contents, connection, originals=photos)
        return target

    def export_onnx(self, file: FilePath, *, overwrite: bool = False) -> Path:
        """Write backbone, classes and thresholds as an ONNX graph, and beside it a JSON file; return its path.

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
        ...         print(error.hint)
        teach it one before it is exported
        """
        from fiveshot.backbones import load_backbone
        from fiveshot.recognizer.shipping.onnx import export_onnx, onnx_targets

        snapshot = self.refresh()
        if not snapshot.classes:
            raise InputError(
                f"the model {self.path} knows no class yet",
                hint="teach it one before it is exported",
                code="no_classes",
            )
        onnx_targets(file, overwrite=overwrite)  # before the backbone is loaded
        backbone = load_backbone(self._runner_of(snapshot).spec)
        return export_onnx(backbone, snapshot.head, file, rejection=snapshot.rejection, overwrite=overwrite)

    @classmethod
    def import_file(cls, file: FilePath, path: FilePath, **opening: Any) -> Self:
        """Make a model from an exported file, checked as untrusted, and open it as ``open`` does.

        >>> import tempfile
        >>> import numpy as np
        >>> from pathlib import Path
        >>> from fiveshot import Recognizer
        >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
        ...     _ = birds.learn_features("owl", np.random.default_rng(0).normal(size=(5, 384)))
        ...     file = birds.export(Path(tempfile.mkdtemp()) / "birds.fiveshot")
        >>> with Recognizer.import_file(file, tempfile.mkdtemp(), readonly=True) as copy:
        ...     copy.snapshot.classes
        ('owl',)
        """
        import_model(file, path)
        return cls.open(path, **opening)

    def check(self, *, repair: bool = False) -> list[Finding]:
        """Verify everything in the directory; an empty list is a sound model.

        >>> import tempfile
        >>> from fiveshot import Recognizer
        >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
        ...     birds.check()
        []
        """
        return check_model(self.path, repair=repair)

    def settle(self) -> bool:
        """Erase what forgetting had to leave in the files, if nobody reads any more; tell whether nothing is left.

        Every ``open`` to write and every change does so by itself; a process that waits for work may ask now and
        then.

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
        on_tuning: OnTuning | None = None,
        skip_bad: bool = False,
        on_bad: OnBad | None = None,
    ) -> TuneResult:
        """Adapt the backbone to everything learned, recompute all features, and switch to them in one step.

        The photos must have been kept; those of base classes are read from the folder ``base``, with ``skip_bad``
        and ``on_bad`` as in ``create``. ``settings``
        replaces single values of the recipe. Until the switch the model works on as it was; tuning cannot be
        undone, so export the model first to be able to go back.

        >>> import tempfile
        >>> from PIL import Image
        >>> from fiveshot import Recognizer
        >>> photos = {name: 2 * [Image.new("RGB", (64, 64), name)] for name in ("red", "blue")}
        >>> with Recognizer.create(tempfile.mkdtemp(), keep_photos=True, runtime="torch") as colors:
        ...     _ = colors.learn_many(photos)
        ...     result = colors.retune(settings={"epochs": 1})
        ...     result.best_epoch, colors.show().adapter
        (1, True)
        """
        from fiveshot.recognizer.retuning import retuned_model, switch

        with retuned_model(
            self._model,
            base=base,
            weights=self._weights,
            device=self._device,
            runtime=self._runtime,
            recipe=recipe,
            settings=settings,
            on_tuning=on_tuning,
            progress=progress,
            skip_bad=skip_bad,
            on_bad=on_bad,
        ) as retuned:
            with self._runner_lock, self._model.change() as change:
                switch(change, retuned)
            self._runner = retuned.runner
        return retuned.result

    def history(self, limit: int | None = None) -> list[HistoryEntry]:
        """Return what was done, the latest first.

        >>> import tempfile
        >>> import numpy as np
        >>> from fiveshot import Recognizer
        >>> owls = np.random.default_rng(0).normal(size=(5, 384))
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

        >>> import tempfile
        >>> from fiveshot import Recognizer
        >>> birds = Recognizer.create(tempfile.mkdtemp())
        >>> birds.close()
        >>> birds.show()
        Traceback (most recent call last):
        fiveshot.errors.InputError: the model ... is closed; open it again
        """
        self._model.folder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
