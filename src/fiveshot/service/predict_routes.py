"""The route that recognises."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request

from fiveshot.recognizer.prediction import Prediction
from fiveshot.service.replies import PHOTOS, replies
from fiveshot.service.request_checks import as_documented
from fiveshot.service.schemas import Candidate, PredictionEntry, PredictReply
from fiveshot.service.state import TheService
from fiveshot.service.uploads import checked_uploads, read_uploads

routes = APIRouter(prefix="/v1", tags=["recognise"], dependencies=[Depends(as_documented)])


@routes.post("/predict", responses=replies(409, 415), openapi_extra=PHOTOS)
async def predict(
    service: TheService,
    request: Request,
    top: Annotated[int, Query(ge=1, le=100, description="Candidates for each photo.")] = 5,
) -> PredictReply:
    """Say what photos show, or that they show nothing known."""
    uploads = checked_uploads(await read_uploads(request, service.limits))
    found, state = await service.engine.predict(uploads, top)
    return PredictReply(predictions=[_entry(one) for one in found], state=state)


def _entry(one: Prediction) -> PredictionEntry:
    return PredictionEntry(
        photo=one.photo,
        label=one.label,
        unknown=one.unknown,
        probability=one.probability,
        candidates=[Candidate(label=label, probability=share) for label, share in one.candidates],
        familiarity=one.familiarity,
        threshold=one.threshold,
    )
