"""Explain rows on request, in a time that is promised: a service for one model.

    DASP_MODEL=mymodel:Net DASP_WEIGHTS=net.safetensors DASP_BACKGROUND=rows.npy \
        uvicorn --factory serve:app --workers 2

`POST /explain` with `{"row": [0.1, …]}` answers with the Shapley values of that row, or, if nobody is free to explain
it in time, with 503: a caller waits `DASP_SECONDS` (0.2) for its turn and about as long for the answer, at most.
`GET /health` answers as soon as the model is traced. Tables of many rows are for `dasp explain`.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Any

import numpy as np
import torch
from fastapi import FastAPI, HTTPException
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel

from dasp import Explainer
from dasp.models.loading import load_model

log = logging.getLogger(__name__)


class Row(BaseModel):
    """What is explained."""

    row: list[float]


class Answer(BaseModel):
    """Its values, which sum to `prediction` − `base_value` but for their errors."""

    values: list[float]
    error_std: list[float] | None
    prediction: float
    base_value: float
    method: str
    evaluations: int
    seconds: float


def service(explainer: Explainer, example: torch.Tensor, *, patience: float, at_once: int = 1) -> FastAPI:
    """Return the service of an explainer, whose `max_seconds` is the time that an answer takes.

    Args:
        explainer: of a model with one output, or with a `target`.
        example: rows like those to come, (rows, inputs), of which the first is explained before the service is ready.
        patience: the seconds that a request waits for its turn.
        at_once: how many requests are explained at the same time. They share the cores of the process, and the
            interpreter's lock: more processes are better than more threads.
    """
    turns = asyncio.Semaphore(at_once)

    @asynccontextmanager
    async def ready(_: FastAPI) -> AsyncIterator[None]:
        for _time in range(2):  # the first call traces the model and chooses a method, the second is like all others
            await run_in_threadpool(explained, example[:1])
        yield

    app = FastAPI(title="Shapley values", lifespan=ready)

    def explained(x: torch.Tensor) -> Answer:
        start = perf_counter()
        found = explainer.attribute(x)
        return Answer(
            values=found.values[0].tolist(),
            error_std=None if found.std is None else found.std[0].tolist(),
            prediction=float(found.prediction),
            base_value=float(found.base.reshape(-1)[0]),
            method=found.method,
            evaluations=0 if found.evaluations is None else int(found.evaluations),
            seconds=perf_counter() - start,
        )

    @app.post("/explain")
    async def explain(given: Row) -> Answer:
        if len(given.row) != example.shape[1]:
            raise HTTPException(422, f"the row has {len(given.row)} numbers; {example.shape[1]} are needed")
        try:
            async with asyncio.timeout(patience):
                await turns.acquire()
        except TimeoutError:
            raise HTTPException(503, "all explainers are busy", headers={"Retry-After": "1"}) from None
        try:
            return await run_in_threadpool(explained, torch.tensor([given.row], dtype=example.dtype))
        except ValueError as error:  # of a row that cannot be explained; the message says why
            raise HTTPException(422, str(error)) from error
        finally:
            turns.release()

    @app.get("/health")
    def health() -> dict[str, Any]:
        return {"ready": True}

    return app


def app() -> FastAPI:
    """Return the service that the environment describes."""
    torch.set_num_threads(1)  # of each process
    seconds = float(os.environ.get("DASP_SECONDS", "0.2"))
    background = torch.from_numpy(np.load(os.environ["DASP_BACKGROUND"]))
    model = load_model(os.environ["DASP_MODEL"], weights=os.environ.get("DASP_WEIGHTS"))
    target = os.environ.get("DASP_TARGET", "predicted")
    explainer = Explainer(
        model,
        background=background,
        target=int(target) if target.isdecimal() else target,
        max_seconds=seconds,
        threads=1,
        show_progress=False,
    )
    return service(explainer, background, patience=seconds)
