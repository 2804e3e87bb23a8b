from __future__ import annotations

import unicodedata

import pytest

from fiveshot.errors import InputError
from fiveshot.recognizer.names import MAX_LENGTH, check_name, target_name

hypothesis = pytest.importorskip("hypothesis", reason="hypothesis is not installed")
given, st = hypothesis.given, hypothesis.strategies


@pytest.mark.parametrize(
    "name",
    [
        "owl",
        "bird/owl",
        "...",
        "owl../.owl",
        "-owl",
        "--add",
        "🦉",
        "👩‍👩‍👧",
        "Große Eule",
        "鷹",
        "a" * 200,
        "C:\\owl",
        "'; DROP TABLE classes",
        "St. Helena",
    ],
)
def test_any_readable_text_is_a_name(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        ".",
        "..",
        "../owl",
        "../../../evil",
        "owl/..",
        "owl/./barn owl",
        "/..",
        "owl\\..\\x",
        "owl/ .. /x",
        "..\u200d/x",
    ],
)
def test_a_name_is_no_path_to_elsewhere(name: str) -> None:
    for check in (check_name, target_name):
        with pytest.raises(InputError, match=r"has a part that is '\.\.?'; remove that part"):
            check(name)


def test_space_around_is_dropped_and_inside_kept() -> None:
    assert check_name("\t snowy  owl\n") == "snowy  owl"


def test_two_spellings_of_one_letter_are_one_name() -> None:
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    assert composed != decomposed
    assert check_name(composed) == check_name(decomposed) == composed


@pytest.mark.parametrize("name", ["", "   ", "\u200d", "\u00a0\u2003"])
def test_nothing_to_see_is_no_name(name: str) -> None:
    with pytest.raises(InputError, match="empty; give 1 to 200"):
        check_name(name)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("a\nb", "control character (U+000A)"),
        ("a\x00b", "U+0000"),
        ("a\x1b[31m", "U+001B"),
        ("a\u2028b", "line break"),
        ("a\udcffb", "not valid Unicode"),
        ("a\u202eb", "changes the direction of the text (U+202E)"),
        ("a\u2067b", "U+2067"),
    ],
)
def test_control_characters_are_refused_by_code(name: str, what: str) -> None:
    with pytest.raises(InputError) as refused:
        check_name(name)
    assert what in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("length", [201, 10_000])
def test_a_long_name_is_refused_with_the_limit(length: int) -> None:
    with pytest.raises(InputError, match=rf"{length:,} characters .* the limit is {MAX_LENGTH}"):
        check_name("x" * length)


@pytest.mark.parametrize("name", [None, 7, b"owl"])
def test_only_text_is_a_name(name: object) -> None:
    with pytest.raises(InputError, match="must be text"):
        check_name(name)  # type: ignore[arg-type]


@given(st.text(max_size=300))
def test_a_name_that_passes_is_in_normal_form_and_passes_again(text: str) -> None:
    try:
        name = check_name(text)
    except InputError:
        return
    assert check_name(name) == name
    assert unicodedata.is_normalized("NFC", name)
    assert 1 <= len(name) <= MAX_LENGTH
    name.encode()
