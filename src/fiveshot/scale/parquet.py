"""Parquet files with encoded images in a column of bytes, as dataset hubs and warehouses hold them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fiveshot.errors import InputError, StorageError
from fiveshot.extras import import_extra
from fiveshot.scale.places import StoredFile
from fiveshot.scale.raw_image import RawImage, split_of

ROWS_AT_ONCE = 64  # images in memory at a time


@dataclass(frozen=True, eq=False)
class ParquetReader:
    """Reads a file row by row.

    The image column holds bytes, or a structure with ``bytes`` and perhaps ``path``; the label column texts or
    integers.
    """

    file: StoredFile
    image: str = "image"
    label: str = "label"

    def images(self) -> Iterator[RawImage]:
        """Yield the rows as images; damage ends the shard with one bad entry that says where.

        Bytes that do not arrive are no damage, but a ``StorageError``.
        """
        parquet, arrow = (import_extra(name, extra="ray") for name in ("pyarrow.parquet", "pyarrow"))
        split, row = split_of(self.file.name), 0
        try:
            with self.file.open() as stream:
                table = parquet.ParquetFile(stream)
                self._check_columns(table.schema_arrow.names)
                for batch in table.iter_batches(ROWS_AT_ONCE, columns=[self.image, self.label]):
                    for image, label in zip(batch[self.image], batch[self.label], strict=True):
                        yield self._image(image.as_py(), label.as_py(), split, row)
                        row += 1
        except StorageError:
            raise
        except (arrow.ArrowException, OSError) as error:  # damaged pages are an OSError too
            reason = f"damaged or truncated after row {row} ({error})"
            yield RawImage(self.file.path, "", split, b"", reason)

    def _image(self, image: Any, label: object, split: int, row: int) -> RawImage:
        name = f"{self.file.path}#{row}"
        data = image.get("bytes") if isinstance(image, dict) else image
        if label is None or data is None:
            return RawImage(name, str(label or ""), split, b"", "no label" if label is None else "no bytes")
        return RawImage(name, str(label), split, bytes(data))

    def _check_columns(self, names: list[str]) -> None:
        for option, column in (("--image-column", self.image), ("--label-column", self.label)):
            if column not in names:
                raise InputError(
                    f"{self.file.path} has no column {column!r}; name one of {', '.join(names)} with {option}"
                )
