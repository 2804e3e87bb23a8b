"""Elements of HTML and SVG, in which every text is escaped unless it is markup already."""

from __future__ import annotations

from html import escape

VOID = frozenset({"meta", "input", "br"})


class Html(str):
    """Markup, as opposed to text that must be escaped."""

    __slots__ = ()


def text(value: object) -> Html:
    """Return a value as markup that shows it.

    >>> text("<b> & co")
    '&lt;b&gt; &amp; co'
    """
    return value if isinstance(value, Html) else Html(escape(str(value)))


def element(tag: str, /, *children: object, **attributes: object) -> Html:
    """Return an element. Attributes of None are left out, those of True have no value.

    A trailing underscore keeps Python's words apart (``class_``), others become hyphens; a name with a colon or
    capital letter is spelled as it is.

    >>> element("td", "a < b", class_="best", aria_label='"x"')
    '<td class="best" aria-label="&quot;x&quot;">a &lt; b</td>'
    """
    parts = [tag]
    for key, value in attributes.items():
        spelled = key.rstrip("_").replace("_", "-")
        if value is True:
            parts.append(spelled)
        elif value is not None and value is not False:
            parts.append(f'{spelled}="{escape(_number(value))}"')
    opened = f"<{' '.join(parts)}>"
    return Html(opened) if tag in VOID else Html(f"{opened}{joined(*children)}</{tag}>")


def joined(*children: object) -> Html:
    """Return children one after the other; None is nothing."""
    return Html("".join(text(child) for child in children if child is not None))


def _number(value: object) -> str:
    # Two decimals of a drawing's unit are finer than any screen.
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
