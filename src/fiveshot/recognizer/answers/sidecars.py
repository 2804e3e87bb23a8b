"""Write keywords to XMP files beside photos, which photo managers read.

New words are inserted, and every other byte stays the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

from fiveshot.data import read_regular
from fiveshot.errors import InputError
from fiveshot.storage import atomic_path

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
SUBJECT = ("http://purl.org/dc/elements/1.1/", "subject", "dc")
HIERARCHY = ("http://ns.adobe.com/lightroom/1.0/", "hierarchicalSubject", "lr")
MAX_SIDECAR = 64 << 20  # bytes
_TAG = re.compile(rb"""<([^\s/>]+)(?:[^"'>]|"[^"]*"|'[^']*')*>""")  # quotes may contain the end of a tag
_EMPTY = """<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>
<x:xmpmeta xmlns:x="adobe:ns:meta/">
 <rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
 </rdf:RDF>
</x:xmpmeta>
<?xpacket end="w"?>
"""


def sidecar_of(photo: Path) -> Path:
    """Return the sidecar of a photo: the existing one, or ``photo.jpg.xmp``.

    Some programs leave out the suffix of the photo; such a sidecar is used, too.
    """
    full = photo.with_name(f"{photo.name}.xmp")
    short = photo.with_suffix(".xmp")
    return short if short.is_file() and not full.exists() else full


def write_keywords(photo: Path, label: str) -> bool:
    """Add the name of a class to the keywords in the sidecar of a photo; False if it has them already.

    Each part of a name with groups, such as ``owl/barn owl``, is a keyword, and all together are a hierarchical
    one.

    Raises
    ------
    InputError
        With the code ``bad_sidecar`` if the sidecar cannot be read; it is not changed.
    """
    file = sidecar_of(photo)
    before = read_regular(file, limit=MAX_SIDECAR) if file.exists() else _EMPTY.encode()
    levels = [part.strip() for part in label.split("/") if part.strip()] or [label]
    try:
        after = with_keywords(before, SUBJECT, levels)
        if len(levels) > 1:
            after = with_keywords(after, HIERARCHY, ["|".join(part.replace("|", " ") for part in levels)])
        keywords_in(after, SUBJECT)  # check that the result can be read
    except (expat.ExpatError, UnicodeDecodeError, ValueError) as error:
        raise InputError(
            f"the sidecar {file} cannot be read ({error})", hint="repair or remove it", code="bad_sidecar"
        ) from error
    if after == before:
        return False
    with atomic_path(file) as temporary:
        temporary.write_bytes(after)
    return True


def with_keywords(data: bytes, name: tuple[str, str, str], words: Sequence[str]) -> bytes:
    """Return the text of a sidecar with these words in a list; create the list if needed."""

    from xml.sax.saxutils import escape, quoteattr  # with all that fetches documents from the web

    found = _look_through(data, name)
    missing = [word for word in words if word not in found.words]
    if not missing:
        return data
    if found.rdf is None:
        raise ValueError("it has no rdf:RDF in it")
    space, local, prefix = name
    items = "".join(f"<rdf:li xmlns:rdf={quoteattr(RDF)}>{escape(_clean(word))}</rdf:li>" for word in missing)
    if found.bag is not None:
        return _spliced(data, found.bag, items)
    bag = f"<rdf:Bag xmlns:rdf={quoteattr(RDF)}>{items}</rdf:Bag>"
    if found.around is not None:
        return _spliced(data, found.around, bag)
    about = quoteattr(found.about)
    return _spliced(
        data,
        found.rdf,
        f"<rdf:Description xmlns:rdf={quoteattr(RDF)} rdf:about={about} xmlns:{prefix}={quoteattr(space)}>"
        f"<{prefix}:{local}>{bag}</{prefix}:{local}></rdf:Description>\n",
    )


def keywords_in(data: bytes, name: tuple[str, str, str] = SUBJECT) -> list[str]:
    """Return the words of a list in a sidecar."""
    return _look_through(data, name).words


Span = tuple[int, int]  # where an element begins and where its end tag does


@dataclass
class _SidecarPositions:
    """Positions in a sidecar: the root element, the wanted list, its bag and its words."""

    rdf: Span | None = None
    around: Span | None = None  # the list, around its bag
    bag: Span | None = None
    about: str = ""
    words: list[str] = field(default_factory=list)


def _look_through(data: bytes, name: tuple[str, str, str]) -> _SidecarPositions:
    data.decode("utf-8")  # positions are in bytes of this encoding
    found, wanted = _SidecarPositions(), f"{name[0]} {name[1]}"
    parser = expat.ParserCreate(namespace_separator=" ")
    path: list[tuple[str, int]] = []
    text: list[str] = []

    def refuse(*_: object) -> None:
        raise ValueError("it has a document type, which no sidecar needs")

    def start(tag: str, attributes: dict[str, str]) -> None:
        path.append((tag, parser.CurrentByteIndex))
        text.clear()
        if tag == f"{RDF} Description" and len(path) >= 2 and path[-2][0] == f"{RDF} RDF":
            found.about = attributes.get(f"{RDF} about", found.about)

    def end(tag: str) -> None:
        span = (path.pop()[1], parser.CurrentByteIndex)
        above = [one for one, _ in path]
        if tag == f"{RDF} RDF":
            found.rdf = found.rdf or span
        elif tag == wanted and above[-1:] == [f"{RDF} Description"]:
            found.around = found.around or span
        elif above[-1:] == [wanted] and tag in (f"{RDF} Bag", f"{RDF} Seq"):
            found.bag = found.bag or span
        elif above[-2:-1] == [wanted] and tag == f"{RDF} li":
            found.words.append("".join(text))

    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = text.append
    parser.Parse(data, True)
    return found


def _spliced(data: bytes, span: Span, text: str) -> bytes:
    """Return data with text added at the end of an element, which may be empty and self-closing."""
    tag = _TAG.match(data, span[0])
    assert tag is not None  # the parser has read it
    if not tag[0].endswith(b"/>"):
        return data[: span[1]] + text.encode() + data[span[1] :]
    return data[: tag.end() - 2] + b">" + text.encode() + b"</" + tag[1] + b">" + data[tag.end() :]


def _clean(word: str) -> str:
    """Return a word without characters that XML does not allow."""
    return "".join(one if one.isprintable() else " " for one in word)
