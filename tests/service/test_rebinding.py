"""A page of another site against a service on this machine, in a real browser: DNS rebinding, and plain CSRF."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from chromium import PROGRAM, chromium
from live import Live
from local_server import Quiet, listening

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="needs Chromium")
EVIL = "evil.example"  # a name that leads to this machine, as its owner would let it
# Everything that a page can do to a service of another origin; what it learns is the text it may read.
ATTACK = """async (targets) => {
  const found = [];
  const attempt = async (what, ask) => {
    try { found.push([what, await ask()]); } catch (error) { found.push([what, String(error.name)]); }
  };
  const form = () => { const body = new FormData(); body.append('photos', new Blob(['x']), 'a.jpg'); return body; };
  for (const base of targets) {
    await attempt('read', async () => { const r = await fetch(`${base}/v1/classes`); return `${r.status} ${await r.text()}`; });
    await attempt('blind', async () => (await fetch(`${base}/v1/classes`, { mode: 'no-cors' })).type);
    for (const path of ['/v1/undo', '/v1/predict', '/v1/classes/evil/photos'])
      await attempt(`post ${path}`, async () => (await fetch(base + path, { method: 'POST', mode: 'no-cors', body: form() })).status);
    await attempt('delete', async () => (await fetch(`${base}/v1/classes/red`, { method: 'DELETE' })).status);
    await attempt('rename', async () => (await fetch(`${base}/v1/classes/red`,
      { method: 'PATCH', headers: { 'Content-Type': 'application/json' }, body: '{"name": "evil"}' })).status);
    await attempt('picture', () => new Promise((done) => { const i = new Image();
      i.onload = () => done(`shown ${i.naturalWidth}`); i.onerror = () => done('not shown'); i.src = `${base}/v1/classes/red/photos/0`; }));
    await attempt('frame', () => new Promise((done) => { const f = document.createElement('iframe');
      f.onload = () => { try { done(`seen ${f.contentDocument.body.innerText.length}`); } catch { done('closed'); } };
      f.src = base + '/'; document.body.append(f); }));
    await attempt('script', () => new Promise((done) => { const s = document.createElement('script');
      s.onload = () => done('run'); s.onerror = () => done('not run'); s.src = `${base}/page.js`; document.body.append(s); }));
    await attempt('socket', () => new Promise((done) => { const s = new WebSocket(base.replace('http', 'ws') + '/');
      s.onopen = () => done('open'); s.onerror = () => done('closed'); }));
    await attempt('form', () => new Promise((done) => { const f = document.createElement('form'), t = document.createElement('iframe');
      t.name = 'sink' + found.length; f.target = t.name; f.method = 'POST'; f.action = `${base}/v1/undo`;
      document.body.append(t, f); f.submit(); setTimeout(() => done('sent'), 300); }));
  }
  return found;
}"""  # noqa: E501


class Page(Quiet, BaseHTTPRequestHandler):
    """The evil page, which is empty: what it does is run from the test."""

    def do_GET(self) -> None:
        self.say(b"<!doctype html><title>evil</title><body></body>", Content_Type="text/html")


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """A web server of somebody else; its name leads to this machine as well."""
    with listening(Page) as address:
        yield f"http://{EVIL}:{address.partition(':')[2]}"


def attacked(origin: str, targets: list[str]) -> dict[str, list[Any]]:
    """Return what a page of this origin has found out, by what it tried."""
    with chromium(f"--host-resolver-rules=MAP {EVIL} 127.0.0.1") as browser:
        page = browser.new_page()
        page.goto(origin)
        found: dict[str, list[Any]] = {}
        for what, result in page.evaluate(ATTACK, targets):
            found.setdefault(what, []).append(result)
        return found


def test_a_page_of_another_site_reads_and_changes_nothing(start: Callable[..., Live], elsewhere: str) -> None:
    """By the service's own address, by ``localhost``, and by a name that is made to lead here afterwards."""
    service = start()
    service.learn("red")
    before = service.client.get("/v1/model").json()["state"]
    targets = [service.url, f"http://localhost:{service.port}", f"http://{EVIL}:{service.port}"]
    found = attacked(elsewhere, targets)
    assert all("red" not in str(result) for result in found["read"]), found
    assert set(found["picture"]) == {"not shown"}, found
    assert set(found["frame"]) == {"closed"}, found
    assert set(found["script"]) == {"not run"}, found
    assert set(found["socket"]) == {"closed"}, found
    assert service.names() == ["red"]
    assert service.client.get("/v1/model").json()["state"] == before


def test_a_name_that_was_made_to_lead_here_is_no_origin_of_ours(start: Callable[..., Live]) -> None:
    """After rebinding, page and service have one origin: the browser allows everything, the service nothing."""
    service = start()
    service.learn("red")
    before = service.client.get("/v1/model").json()["state"]
    same = f"http://{EVIL}:{service.port}"
    found = attacked(same + "/", [same])
    assert found["read"][0].startswith("421"), found
    assert "red" not in found["read"][0]
    assert {found[what][0] for what in ("post /v1/undo", "post /v1/predict", "delete", "rename")} == {421}, found
    assert found["picture"] == ["not shown"]
    assert found["script"] in (["not run"], ["TypeError"]), found
    assert service.client.get("/v1/model").json()["state"] == before
