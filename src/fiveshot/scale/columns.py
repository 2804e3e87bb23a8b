"""The columns of the rows that flow between the stages of a cluster run."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

Batch = dict[str, NDArray[Any]]
STAGES = ("read", "decode", "forward")  # each has a column of the seconds it took, such as ``read_s``
END = 2  # in the column ``split``: no image, but the number of rows of its shard, in the column ``row``
IDENTITY = ("shard", "row", "split", "name", "label", "reason")
