"""What a person does with the page."""

from __future__ import annotations

import time
from typing import Any

from tiny import encoded, picture


def files(name: str, count: int = 3, first: int = 0) -> list[dict[str, Any]]:
    return [
        {"name": f"{number}.jpg", "mimeType": "image/jpeg", "buffer": encoded(picture(name, number))}
        for number in range(first, first + count)
    ]


def visit(page: Any, view: str) -> None:
    """Go to a view; what comes next is for a page that is there."""
    page.click(f"nav a[href='#{view}']")
    page.locator(f"#view-{view}").wait_for()


def teach(page: Any, name: str, photos: Any) -> None:
    page.fill("#name", name)
    page.set_input_files("#pick-teach", photos)
    page.click("#learn")
    page.locator("#teach-result .good").get_by_text(name).wait_for()


def answers(page: Any, count: int) -> list[str]:
    """Return what the rows of Try say, once there are so many."""
    page.locator("#answers .answer").nth(count - 1).wait_for()
    return page.locator("#answers .answer .grow").all_text_contents()


def carry(page: Any, kind: str, photos: list[dict[str, Any]], where: str = "body") -> None:
    """Drop or paste photos, which Playwright cannot do."""
    page.evaluate(
        """([kind, photos, where]) => {
            const carried = new DataTransfer();
            for (const { name, buffer, type } of photos)
                carried.items.add(new File([new Uint8Array(buffer)], name, {type: type || 'image/jpeg'}));
            const event = kind === 'drop'
                ? new DragEvent('drop', {dataTransfer: carried, bubbles: true, cancelable: true})
                : new ClipboardEvent('paste', {clipboardData: carried, bubbles: true, cancelable: true});
            document.querySelector(where).dispatchEvent(event);
        }""",
        [kind, [one | {"buffer": list(one["buffer"])} for one in photos], where],
    )


def until(page: Any, script: str, seconds: float = 60) -> None:
    """Wait until an expression holds; Playwright's own way is stopped by the page's policy."""
    end = time.monotonic() + seconds
    while not page.evaluate(script):
        assert time.monotonic() < end, f"{script}; said: {page.locator('.bad:visible').all_inner_texts()}"
        page.wait_for_timeout(30)


def cards(page: Any) -> list[str]:
    return page.eval_on_selector_all(".card", "all => all.map(card => card.dataset.name)")
