"""Keywords in sidecars: read back by exiftool, and by an XML library of another kind than the one that writes."""

from __future__ import annotations

import json
import shutil
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from fiveshot.errors import InputError
from fiveshot.recognizer.answers.sidecars import HIERARCHY, SUBJECT, keywords_in, sidecar_of, write_keywords

EXIFTOOL = shutil.which("exiftool")
RDF = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}"
LIGHTROOM = """<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>
<!-- mine -->
<x:xmpmeta xmlns:x="adobe:ns:meta/" x:xmptk="Adobe XMP Core 7.0">
 <rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
  <rdf:Description rdf:about=""
    xmlns:xmp="http://ns.adobe.com/xap/1.0/" xmlns:dc="http://purl.org/dc/elements/1.1/"
    xmlns:crs="http://ns.adobe.com/camera-raw-settings/1.0/"
   xmp:Rating="4" crs:Note="two&#xA;lines &lt;/rdf:Bag> />" xmp:Label='a "red" one'>
   <dc:title><rdf:Alt><rdf:li xml:lang="x-default">Garten &amp; Vögel</rdf:li></rdf:Alt></dc:title>
   %s
   <crs:ToneCurve><rdf:Seq><rdf:li>0, 0</rdf:li><rdf:li><![CDATA[255, 255]]></rdf:li></rdf:Seq></crs:ToneCurve>
  </rdf:Description>
 </rdf:RDF>
</x:xmpmeta>
<?xpacket end="w"?>"""
SUBJECTS = {
    "none": "",
    "some": "<dc:subject>\n <rdf:Bag>\n  <rdf:li>garden</rdf:li>\n </rdf:Bag>\n</dc:subject>",
    "empty bag": "<dc:subject><rdf:Bag/></dc:subject>",
    "empty list": "<dc:subject />",
    "other prefix": '<d:subject xmlns:d="http://purl.org/dc/elements/1.1/"><rdf:Bag></rdf:Bag></d:subject>',
}


def oracle(file: Path) -> list[str]:
    """Return the keywords as ElementTree reads them."""
    found = ET.parse(file).getroot().iter("{http://purl.org/dc/elements/1.1/}subject")
    return [item.text or "" for one in found for item in one.iter(f"{RDF}li")]


def without_keywords(file: Path) -> list[tuple[str, str]]:
    """Return every attribute and every text of a file but the keywords."""
    found = []
    for element in ET.parse(file).getroot().iter():
        found += [(name, value) for name, value in element.attrib.items() if not name.endswith("about")]
        if element.text and element.text.strip():
            found.append((element.tag, element.text))
    return [one for one in found if one[1] not in ("garden", "owl", "barn owl", "owl|barn owl")]


def told(file: Path) -> dict[str, object]:
    """Return what exiftool says of a sidecar."""
    if EXIFTOOL is None:
        pytest.skip("exiftool is not installed: apt-get install libimage-exiftool-perl")
    done = subprocess.run([EXIFTOOL, "-json", "-a", file], capture_output=True, check=True, encoding="utf-8")
    found: dict[str, object] = json.loads(done.stdout)[0]
    assert "Warning" not in found, found
    return found


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    (tmp_path / "IMG_1.jpg").write_bytes(b"the bytes of a photo")
    return tmp_path / "IMG_1.jpg"


def test_a_new_sidecar(photo: Path) -> None:
    assert write_keywords(photo, "Käuzchen & <Co>")
    file = photo.with_name("IMG_1.jpg.xmp")
    assert oracle(file) == ["Käuzchen & <Co>"]
    assert not write_keywords(photo, "Käuzchen & <Co>")
    assert photo.read_bytes() == b"the bytes of a photo"
    assert told(file)["Subject"] == "Käuzchen & <Co>"


def test_groups_are_keywords_of_levels(photo: Path) -> None:
    write_keywords(photo, "owl/barn owl")
    found = told(photo.with_name("IMG_1.jpg.xmp"))
    assert found["Subject"] == ["owl", "barn owl"]
    assert found["HierarchicalSubject"] == "owl|barn owl"


@pytest.mark.parametrize("kind", SUBJECTS)
def test_nothing_is_lost_from_a_sidecar_that_is_there(photo: Path, kind: str) -> None:
    file = photo.with_suffix(".xmp")
    file.write_text(LIGHTROOM % SUBJECTS[kind], encoding="utf-8")
    before, kept = file.read_bytes(), without_keywords(file)
    earlier = ["garden"] if kind == "some" else []
    assert write_keywords(photo, "owl/barn owl")
    assert list(photo.parent.glob("*.xmp")) == [file]  # the one that was there
    assert oracle(file) == [*earlier, "owl", "barn owl"]
    assert without_keywords(file) == kept
    after = file.read_bytes()
    assert keywords_in(after, SUBJECT) == [*earlier, "owl", "barn owl"]
    assert keywords_in(after, HIERARCHY) == ["owl|barn owl"]
    assert len(after) > len(before)
    for line in before.splitlines():  # as it was, byte by byte, but for the list itself
        assert line.strip() in after or b"subject" in line.lower()
    assert not write_keywords(photo, "owl/barn owl")
    assert file.read_bytes() == after
    found = told(file)
    assert found["Subject"] == [*earlier, "owl", "barn owl"]
    assert (found["Rating"], found["Title"]) == (4, "Garten & Vögel")


def test_keywords_written_by_exiftool_are_kept(photo: Path) -> None:
    if EXIFTOOL is None:
        pytest.skip("exiftool is not installed: apt-get install libimage-exiftool-perl")
    file = photo.with_name("IMG_1.jpg.xmp")
    command = [EXIFTOOL, "-q", "-Subject=garden", "-Subject=2026", "-Creator=Ada", "-Rating=3", file]
    subprocess.run(command, check=True)
    write_keywords(photo, "owl")
    found = told(file)
    assert found["Subject"] == ["garden", 2026, "owl"]
    assert (found["Creator"], found["Rating"]) == ("Ada", 3)


BOMB = '<!DOCTYPE a [<!ENTITY b "bbbbbbbbbb"><!ENTITY c "&b;&b;&b;&b;">]><a>&c;&c;</a>'


@pytest.mark.parametrize(
    "content", [b"", b"not XML", b"<a><b></a>", b"<a/>", BOMB.encode(), "<a/>".encode("utf-16")]
)
def test_a_sidecar_that_cannot_be_read_stays_as_it_is(photo: Path, content: bytes) -> None:
    file = photo.with_name("IMG_1.jpg.xmp")
    file.write_bytes(content)
    with pytest.raises(InputError) as caught:
        write_keywords(photo, "owl")
    assert caught.value.code == "bad_sidecar"
    assert file.read_bytes() == content


def test_names_that_xml_cannot_hold(photo: Path) -> None:
    write_keywords(photo, "a\udcffb")
    assert oracle(sidecar_of(photo)) == ["a b"]
