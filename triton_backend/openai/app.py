"""The application: routes, and the way of a request from its body to its answer.

It keeps nothing between requests but the connection to Triton and what it read of the models at the start.
"""

import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from triton_backend.openai.answering import Job, Shape, StreamedAnswer, WholeAnswer
from triton_backend.openai.asks import Ask
from triton_backend.openai.chat import ChatShape, chat_ask
from triton_backend.openai.completion_request import CompletionRequest
from triton_backend.openai.completions import CompletionShape, completion_asks
from triton_backend.openai.connection import JSON, read_json_body
from triton_backend.openai.errors import ApiError, shown, unavailable
from triton_backend.openai.face import Face
from triton_backend.openai.gate import Gate
from triton_backend.openai.model import Model, open_model
from triton_backend.openai.replies import ModelCard, ModelList
from triton_backend.openai.schema import Body, ChatRequest, CommonFields, decode
from triton_backend.openai.settings import ShimSettings
from triton_backend.openai.vouching import Vouching

ID_BYTES = 16
CLIENT_GONE = 499
"""Status for the log of nginx's invention; nobody is there to get it."""

Answer = StreamedAnswer | WholeAnswer


def create_app(settings: ShimSettings) -> Starlette:
    """Read the models and make the ASGI application.

    Raises:
        UserError: a model's artifact can't be used.
    """
    shim = Shim(settings)
    routes = [
        Route("/v1/models", shim.list_models, methods=["GET"]),
        Route("/v1/models/{model:path}", shim.show_model, methods=["GET"]),
        Route("/v1/chat/completions", shim.chat, methods=["POST"]),
        Route("/v1/completions", shim.complete, methods=["POST"]),
        Route("/health/live", shim.live, methods=["GET"]),
        Route("/health/ready", shim.ready, methods=["GET"]),
    ]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Gate, settings.api_keys)],
        exception_handlers={
            ApiError: _api_error,
            HTTPException: _routing_error,
            ClientDisconnect: _client_gone,
        },
        lifespan=shim.lifespan,
    )
    # A redirect would not be an error object, and clients don't resend a POST to it.
    app.router.redirect_slashes = False
    return app


class Shim:
    """The endpoints."""

    def __init__(self, settings: ShimSettings) -> None:
        """Read the models of `settings`.

        Raises:
            UserError: an artifact can't be used.
        """
        self._settings = settings
        self._started = int(settings.clock())
        models = [open_model(served, settings.clock) for served in settings.models]
        self._models: Mapping[str, Model] = {model.name: model for model in models}

    @asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[dict[str, Any]]:
        """Hold the connection to Triton while the application runs; requests find it in their state."""
        settings = self._settings
        vouching = Vouching(settings.secret, settings.clock)
        async with Face(settings.grpc_address, settings.deadline_s, vouching) as face:
            yield {"face": face}

    async def live(self, _: Request) -> Response:
        """Say that this process answers."""
        return _json({"status": "live"})

    async def ready(self, request: Request) -> Response:
        """Say whether every model can take requests."""
        for name in self._models:
            if not await request.state.face.is_ready(name):
                raise unavailable()
        return _json({"status": "ready"})

    async def list_models(self, _: Request) -> Response:
        """List the models."""
        return _json(ModelList([self._card(model) for model in self._models.values()]))

    async def show_model(self, request: Request) -> Response:
        """Describe one model."""
        return _json(self._card(self._model(request.path_params["model"])))

    async def chat(self, request: Request) -> Answer:
        """Continue a chat."""
        fields = await self._fields(request, ChatRequest)
        model = self._model(fields.model)
        asks = [await chat_ask(fields, model)]
        return self._answer(request, fields, asks=asks, shape=ChatShape(model, fields))

    async def complete(self, request: Request) -> Answer:
        """Continue texts."""
        fields = await self._fields(request, CompletionRequest)
        model = self._model(fields.model)
        prompts = fields.prompts(self._settings.max_prompts)
        asks = completion_asks(fields, prompts)
        shape = CompletionShape(model, fields, prompts)
        return self._answer(request, fields, asks=asks, shape=shape)

    async def _fields(self, request: Request, kind: type[Body]) -> Body:
        settings = self._settings
        body = await read_json_body(
            request, max_bytes=settings.max_body_bytes, timeout_s=settings.body_s
        )
        return decode(body, kind)

    def _model(self, name: str) -> Model:
        model = self._models.get(name)
        if model is None:
            known = ", ".join(self._models)
            text = f"there is no model {shown(name)!r}; known are {known}."
            raise ApiError(404, text, param="model", code="model_not_found")
        return model

    def _answer(
        self, request: Request, fields: CommonFields, *, asks: Sequence[Ask], shape: Shape
    ) -> Answer:
        job = Job(
            id=f"{shape.id_prefix}-{secrets.token_hex(ID_BYTES)}",
            created=int(self._settings.clock()),
            asks=asks,
            shape=shape,
            includes_usage=fields.includes_usage,
            tenant=request.state.tenant,
        )
        answer = StreamedAnswer if fields.stream else WholeAnswer
        return answer(request.state.face, job)

    def _card(self, model: Model) -> ModelCard:
        return ModelCard(model.name, self._started, model.max_seq_len)


def _json(content: Any) -> Response:
    return Response(msgspec.json.encode(content), media_type=JSON)


# Handlers are asynchronous, because Starlette runs others in a thread.
async def _api_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error.response()


async def _routing_error(request: Request, error: Exception) -> Response:
    """Answer for a path that is no route, or a method that its route has not."""
    assert isinstance(error, HTTPException)
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        text = f"{request.method} is not allowed here; the header Allow names what is."
        code = "method_not_allowed"
    else:
        text = f"there is no route {shown(request.url.path)}."
        code = "not_found"
    return ApiError(error.status_code, text, code=code, headers=error.headers).response()


async def _client_gone(_: Request, error: Exception) -> Response:  # noqa: ARG001
    return Response(status_code=CLIENT_GONE)
