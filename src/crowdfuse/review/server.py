"""The review page's server: for this machine's browser alone. Whatever does not come from the page itself is refused.

It answers on 127.0.0.1 only, to that name or localhost (so that no foreign name can be pointed at it), to pages of its
own (so that no other site can ask it anything), and changes something only for those who know the token of this start.
"""

from __future__ import annotations

import json
import secrets
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any

from crowdfuse.review.item_inputs import NoPictureError
from crowdfuse.review.refit import Refit
from crowdfuse.review.session import ItemFilter, RefusedError, ReviewSession, gold_csv, read_gold_rows

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
except ModuleNotFoundError as error:
    raise ValueError(
        f"crowdfuse review needs {error.name}, which is not installed: pip install 'crowdfuse[web]'"
    ) from error

HOST = "127.0.0.1"
MAX_PORT_TRIES = 100  # that are tried, one after another
MAX_BODY_BYTES = 10_000  # bytes that a page has to say
HEADERS = {
    "content-security-policy": "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
TYPES = {"page.js": "text/javascript", "page.css": "text/css", "icon.svg": "image/svg+xml"}


class BadRequestError(ValueError):
    """A request that the page would never send."""


def make_app(desk: ReviewSession, refit: Refit, port: int, token: str) -> ASGIApp:
    """The application; `port` and `token` are what requests must know."""

    def page(request: Request) -> Response:
        text = _packaged("page.html").replace("{{token}}", token)
        return Response(text, media_type="text/html")

    def part(request: Request) -> Response:
        name = request.url.path.strip("/")
        return Response(_packaged(name), media_type=TYPES[name])

    def about(request: Request) -> Response:
        return JSONResponse(desk.about())

    def view(request: Request) -> Response:
        choice = _choice(request, desk)
        at = _query_number(request, "at", len(desk.run.items))
        head = desk.decision_state().n_lines  # asked once: another tab may write at any time
        if request.query_params.get("head") == str(head):
            return JSONResponse({"head": head})
        return JSONResponse(desk.view(choice, at))

    def image(request: Request) -> Response:
        index = _whole(request.path_params["index"], len(desk.run.items), "index")
        try:
            data, kind = desk.exhibits.picture(index)
        except NoPictureError as error:
            return JSONResponse({"error": str(error)}, 404)
        return Response(data, media_type=kind)

    def export(request: Request) -> Response:
        rows, _ = read_gold_rows(desk.run.path)
        name = {"content-disposition": 'attachment; filename="gold.csv"'}
        return Response(gold_csv(rows), media_type="text/csv", headers=name)

    async def act(request: Request) -> Response:
        return await _in_thread(act_on, request, await _body(request))

    def act_on(request: Request, asked: dict[str, Any]) -> Response:
        action, choice = request.url.path.rpartition("/")[2], _choice(request, desk)
        try:
            if action == "undo":
                entry = desk.undo(_whole(asked.get("line"), 1 << 40, "line"))
            else:
                index = _whole(asked.get("index"), len(desk.run.items), "index")
                seen: dict[str, Any] = {
                    "shown": str(asked.get("shown")),
                    "version": _whole(asked.get("version"), 1 << 40, "version"),
                    "choice": choice,
                }
                if action == "skip":
                    entry = desk.skip(index, **seen)
                else:
                    entry = desk.settle(index, _whole(asked.get("label"), len(desk.run.classes), "label"), **seen)
        except RefusedError as error:
            return JSONResponse({"error": str(error), "view": desk.view(choice)}, 409)
        at = desk.position(entry["item"]) if action == "undo" else None
        return JSONResponse({"line": entry["line"], "item": entry["item"], "view": desk.view(choice, at)})

    async def start_refit(request: Request) -> Response:
        await _body(request)
        return await _in_thread(begin, request)

    def begin(request: Request) -> Response:
        try:
            refit.start()
        except ValueError as error:
            return JSONResponse({"error": str(error)}, 409)
        return JSONResponse(refit.status())

    def refit_status(request: Request) -> Response:
        return JSONResponse(refit.status())

    routes = [
        Route("/", page),
        *(Route(f"/{name}", part) for name in TYPES),
        Route("/api/about", about),
        Route("/api/view", view),
        *(Route(f"/api/{action}", act, methods=["POST"]) for action in ("settle", "skip", "undo")),
        Route("/api/refit", start_refit, methods=["POST"]),
        Route("/api/refit-status", refit_status),
        Route("/image/{index:str}", image),
        Route("/export.csv", export),
    ]
    handlers: dict[Any, Callable[..., Any]] = {BadRequestError: _say(400), ValueError: _say(500), OSError: _say(500)}
    return Guard(Starlette(routes=routes, exception_handlers=handlers), port, token)


class Guard:
    """Lets in what comes from the page itself, and sends every answer with headers that keep it to itself."""

    def __init__(self, app: ASGIApp, port: int, token: str) -> None:
        self.app, self.token = app, token
        self.hosts = {f"{name}:{port}" for name in (HOST, "localhost")}
        self.origins = {f"http://{host}" for host in self.hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message.get("headers", []), *added]
            await send(message)

        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        why = self.rejection_reason(Request(scope))
        if why is not None:
            await JSONResponse({"error": why}, 403)(scope, receive, send_guarded)
            return
        await self.app(scope, receive, send_guarded)

    def rejection_reason(self, request: Request) -> str | None:
        """Why a request is refused, None if it is not."""
        headers = request.headers
        if headers.getlist("host") != [headers.get("host")] or headers.get("host") not in self.hosts:
            return f"this server answers to {' and '.join(sorted(self.hosts))} only"
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return "this request comes from another site; type the address of the page instead of following a link"
        if headers.get("origin", next(iter(self.origins))) not in self.origins:
            return "this request comes from another site"
        if request.method not in ("GET", "HEAD"):
            given = headers.get("x-crowdfuse-token", "")
            if not secrets.compare_digest(given.encode(), self.token.encode()):
                return "this page is of an earlier start of crowdfuse review; reload it"
        return None


def serve(desk: ReviewSession, refit: Refit, port: int, say: Callable[[str], None]) -> None:
    """Answer until Ctrl-C. Where the port is taken, the next free one is; `say` is told which."""
    with _listening(port) as listener:
        taken = listener.getsockname()[1]
        if taken != port:
            say(f"port {port} is in use; this is on port {taken}")
        app = make_app(desk, refit, taken, secrets.token_urlsafe(24))
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, proxy_headers=False, ws="none",
            timeout_graceful_shutdown=2,
        )  # fmt: skip
        say(f"open http://{HOST}:{taken}/ in a browser on this machine; Ctrl-C ends")
        try:
            uvicorn.Server(config).run(sockets=[listener])
        except KeyboardInterrupt:
            say("ended; what was settled is on disk")
        finally:
            stopped = refit.stop()
            if stopped is not None:
                say(f"the refit was stopped; go on with crowdfuse fit --resume {stopped}")


@contextmanager
def _listening(port: int) -> Iterator[socket.socket]:
    for candidate in range(port, min(port + MAX_PORT_TRIES, 65536)):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if sys.platform != "win32":  # where it would let two servers have one port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, candidate))
            listener.listen()  # of two that have bound a port, one may listen
        except OSError:
            listener.close()
            continue
        with listener:
            yield listener
        return
    raise OSError(f"no port from {port} to {min(port + MAX_PORT_TRIES, 65536) - 1} is free; choose another with --port")


# ---- reading requests ------------------------------------------------------------------------


async def _body(request: Request) -> dict[str, Any]:
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise BadRequestError("the request must be JSON")
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > MAX_BODY_BYTES:
            raise BadRequestError(f"the request is longer than {MAX_BODY_BYTES:,} bytes")
    try:
        asked = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"the request is not JSON: {error}") from error
    if not isinstance(asked, dict):
        raise BadRequestError("the request must be a JSON object")
    return asked


async def _in_thread(work: Callable[..., Response], *given: Any) -> Response:
    return await run_in_threadpool(work, *given)


def _choice(request: Request, desk: ReviewSession) -> ItemFilter:
    which = request.query_params.get("items", "disputed")
    if which not in ("disputed", "all"):
        raise BadRequestError(f"items must be disputed or all, got {which!r}")
    return ItemFilter(
        disputed=which == "disputed",
        annotator=_query_number(request, "annotator", len(desk.names)),
        label=_query_number(request, "class", len(desk.run.classes)),
    )


def _query_number(request: Request, name: str, end: int) -> int | None:
    text = request.query_params.get(name)
    return _whole(text, end, name) if text else None


def _whole(value: Any, end: int, name: str) -> int:
    """A whole number from 0 to below `end`, as JSON or as digits."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16:
        value = int(value)
    if type(value) is not int or not 0 <= value < end:
        raise BadRequestError(f"{name} must be a whole number from 0 to {end - 1}, got {str(value)[:40]!r}")
    return value


def _say(status: int) -> Callable[[Request, Exception], Response]:
    return lambda request, error: JSONResponse({"error": str(error)}, status)


def _packaged(name: str) -> str:
    return (files("crowdfuse.review") / name).read_text(encoding="utf-8")
