"""The OpenAPI document holds: whatever it allows, and what it does not, is answered as it says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from hypothesis import HealthCheck, given, settings
from live import live

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
conformance = pytest.importorskip("schemathesis.specs.openapi.checks")

# Nothing in these can be wrong; any text is a name.
ANYTHING = (
    ("/metrics", "GET"),
    ("/v1/classes/{name}/photos", "GET"),
    ("/v1/health", "GET"),
    ("/v1/model", "GET"),
    ("/v1/negatives", "GET"),
    ("/v1/ready", "GET"),
    ("/v1/sort", "POST"),
)
EXAMPLES = 10  # of each route, for requests that keep to the document, and as many for those that do not
OPERATIONS = (
    ("/metrics", "GET"),
    ("/v1/classes", "GET"),
    ("/v1/classes/{name}", "DELETE"),
    ("/v1/classes/{name}", "PATCH"),
    ("/v1/classes/{name}/photos", "GET"),
    ("/v1/classes/{name}/photos", "POST"),
    ("/v1/classes/{name}/photos/{number}", "GET"),
    ("/v1/correct", "POST"),
    ("/v1/health", "GET"),
    ("/v1/model", "GET"),
    ("/v1/model", "PATCH"),
    ("/v1/negatives", "GET"),
    ("/v1/negatives", "POST"),
    ("/v1/photos/move", "POST"),
    ("/v1/photos/remove", "POST"),
    ("/v1/photos/{id}", "GET"),
    ("/v1/predict", "POST"),
    ("/v1/ready", "GET"),
    ("/v1/rejection", "GET"),
    ("/v1/review", "GET"),
    ("/v1/review/apply", "POST"),
    ("/v1/review/keep", "POST"),
    ("/v1/sightings", "GET"),
    ("/v1/sightings/confirm", "POST"),
    ("/v1/sightings/dismiss", "POST"),
    ("/v1/sightings/name", "POST"),
    ("/v1/sightings/{id}", "GET"),
    ("/v1/sort", "POST"),
    ("/v1/sort/{id}", "DELETE"),
    ("/v1/sort/{id}", "GET"),
    ("/v1/sort/{id}/learn", "POST"),
    ("/v1/sort/{id}/photos", "POST"),
    ("/v1/sort/{id}/photos/{number}", "GET"),
    ("/v1/sort/{id}/places", "GET"),
    ("/v1/undo", "POST"),
)


@pytest.fixture(scope="module")
def document(model_path: Path) -> Iterator[Any]:
    with live(model_path) as service:
        service.learn("red")
        service.learn("barn owl")
        yield schemathesis.openapi.from_url(f"{service.url}/v1/openapi.json")


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    """One connection for all requests, which looks for neither a proxy nor a password before each."""
    with requests.Session() as opened:
        opened.trust_env = False
        yield opened


def test_all_routes_are_tried(document: Any) -> None:
    found = {(one.ok().path, one.ok().method.upper()) for one in document.get_all_operations()}
    assert found == set(OPERATIONS)


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode), ids=lambda mode: mode.value)
def test_a_route_keeps_to_the_document(
    document: Any, session: requests.Session, path: str, method: str, mode: Any
) -> None:
    operation = document[path][method]
    if mode is schemathesis.GenerationMode.NEGATIVE and (path, method) in ANYTHING:
        return

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), deadline=None, derandomize=True)
    def ask(case: Any) -> None:
        case.call_and_validate(
            checks=[
                schemathesis.checks.not_a_server_error,
                conformance.status_code_conformance,
                conformance.content_type_conformance,
                conformance.response_schema_conformance,
            ],
            session=session,
        )

    ask()
