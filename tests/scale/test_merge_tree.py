from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiveshot.errors import InputError
from fiveshot.scale._reducer import MergeTree


@given(st.lists(st.text("abc", max_size=2), max_size=60), st.integers(2, 6))
def test_all_items_are_merged_once(items: list[str], arity: int) -> None:
    tree = MergeTree(lambda parts: "".join(sorted("".join(parts))), arity=arity)
    for item in items:
        tree.add(item)
    expected = "".join(sorted("".join(items))) if items else None
    found = tree.result()
    assert (found if found is None else "".join(sorted(found))) == expected


def test_few_are_held_and_merges_are_small() -> None:
    sizes: list[int] = []
    tree = MergeTree(lambda parts: sizes.append(len(parts)) or sum(parts), arity=4)
    held = []
    for _ in range(1000):
        tree.add(1)
        held.append(tree.held)
    assert tree.result() == 1000
    assert max(held) <= 3 * (math.floor(math.log(1000, 4)) + 1)
    assert max(sizes) <= 4


def test_arity_one_is_refused() -> None:
    with pytest.raises(InputError, match="at least 2 items"):
        MergeTree(sum, arity=1)
