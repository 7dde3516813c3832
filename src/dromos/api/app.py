"""The application: routes of both protocols behind one gate, and what they share while the server runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from dromos.api import documented, problems
from dromos.api.adapter import routes as adapter
from dromos.api.auth import Gate
from dromos.api.door import Deps, Door
from dromos.api.feed import Feeds
from dromos.api.lab import routes as lab
from dromos.api.metrics import Counted, HttpMetrics
from dromos.api.native import about, conversations, documents, grants, overview, questions, runs, stream
from dromos.api.silence import tell_of_silent_owners
from dromos.api.snapshots import Documents
from dromos.domain.errors import DromosError

DESCRIPTION = "A self-hosted server for durable agent runs. Errors are RFC 9457 problem documents."


def create_app(deps: Deps) -> FastAPI:
    """The doors over `deps`. Its lifespan ends the tasks of open streams."""
    options = deps.options
    feeds = Feeds(deps.lifecycle, deps.wakeup, deps.closing, options.heartbeat, options.reread)
    metrics = HttpMetrics(deps.registry, lambda: feeds.open)

    shown = Documents(deps.lifecycle, deps.live)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        silence = asyncio.create_task(tell_of_silent_owners(deps.lifecycle, deps.live, options.reread))
        try:
            yield
        finally:
            silence.cancel()
            await asyncio.gather(silence, return_exceptions=True)
            await feeds.aclose()
            await shown.aclose()

    app = FastAPI(
        title="Dromos",
        version=deps.version,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        middleware=[
            Middleware(Counted, metrics=metrics),
            Middleware(problems.Problems, ids=deps.ids),
            Middleware(Gate, hosts=options.hosts, origins=options.origins),
        ],
        exception_handlers={
            HTTPException: _answer,
            RequestValidationError: _answer,
            DromosError: _answer,
        },
    )
    app.state.door = Door(deps, feeds, metrics, shown)
    for router in (
        conversations.router,
        runs.router,
        documents.router,
        overview.router,
        questions.router,
        grants.router,
        stream.router,
        about.router,
        adapter.router,
        lab.router,
    ):
        # As they are: an included router would be asked, and its context set and reset, at every request.
        app.router.routes.extend(router.routes)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def _openapi(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        app.openapi_schema = documented.complete(app)
    return app.openapi_schema


async def _answer(request: Request, error: Exception) -> Response:
    response = problems.answer_to(error)
    if response is None:
        raise error
    if response.status_code == 405:
        response.headers["allow"] = ", ".join(sorted(_methods(request)))
    return response


def _methods(request: Request) -> set[str]:
    """Every method that is taken at this address; each is a route of its own."""
    matching = (route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE)
    return {method for route in matching for method in getattr(route, "methods", None) or ()}
