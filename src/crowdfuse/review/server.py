"""The server of the review page, for browsers on this machine. It refuses requests that come from other sites.

It listens on 127.0.0.1 only. It accepts only requests addressed to 127.0.0.1 or localhost (protection against DNS
rebinding), and only requests from its own pages (protection against cross-site requests). Requests that change
something must carry a token, which is new at every start.
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
from crowdfuse.review.review_order import ItemFilter
from crowdfuse.review.session import RefusedError, ReviewSession, gold_csv, read_gold_rows

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
        f"'crowdfuse review' requires {error.name}, which is not installed. Install it with: "
        "pip install 'crowdfuse[web]'"
    ) from error

HOST = "127.0.0.1"
MAX_PORT_TRIES = 100
MAX_BODY_BYTES = 10_000  # of a request
SECURITY_HEADERS = {
    "content-security-policy": "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
MEDIA_TYPES = {"page.js": "text/javascript", "page.css": "text/css", "icon.svg": "image/svg+xml"}


class BadRequestError(ValueError):
    """Raised if a request is malformed. The message says what is wrong."""


def make_app(session: ReviewSession, refit: Refit, port: int, token: str) -> ASGIApp:
    """Return the web application. It checks that requests use this port and that changes carry the token."""

    def page(request: Request) -> Response:
        text = _read_asset("page.html").replace("{{token}}", token)
        return Response(text, media_type="text/html")

    def asset(request: Request) -> Response:
        name = request.url.path.strip("/")
        return Response(_read_asset(name), media_type=MEDIA_TYPES[name])

    def about(request: Request) -> Response:
        return JSONResponse(session.about())

    def view(request: Request) -> Response:
        item_filter = _item_filter(request, session)
        at = _query_integer(request, "at", len(session.run.items))
        n_lines = session.decision_state().n_lines  # read once, since another tab may write at any time
        if request.query_params.get("n_ledger_lines") == str(n_lines):
            return JSONResponse({"n_ledger_lines": n_lines})
        return JSONResponse(session.view(item_filter, at))

    def image(request: Request) -> Response:
        index = _parse_integer(request.path_params["index"], len(session.run.items), "index")
        try:
            data, media_type = session.item_inputs.picture(index)
        except NoPictureError as error:
            return JSONResponse({"error": str(error)}, 404)
        return Response(data, media_type=media_type)

    def export(request: Request) -> Response:
        rows, _ = read_gold_rows(session.run.path)
        headers = {"content-disposition": 'attachment; filename="gold.csv"'}
        return Response(gold_csv(rows), media_type="text/csv", headers=headers)

    async def decide(request: Request) -> Response:
        return await run_in_threadpool(record_decision, request, await _read_body(request))

    def record_decision(request: Request, body: dict[str, Any]) -> Response:
        action, item_filter = request.url.path.rpartition("/")[2], _item_filter(request, session)
        try:
            if action == "undo":
                entry = session.undo(_parse_integer(body.get("line"), 1 << 40, "line"))
            else:
                index = _parse_integer(body.get("index"), len(session.run.items), "index")
                shown: dict[str, Any] = {
                    "facts_hash": str(body.get("facts_hash")),
                    "version": _parse_integer(body.get("version"), 1 << 40, "version"),
                    "item_filter": item_filter,
                }
                if action == "skip":
                    entry = session.skip(index, **shown)
                else:
                    entry = session.settle(
                        index, _parse_integer(body.get("label"), len(session.run.classes), "label"), **shown
                    )
        except RefusedError as error:
            return JSONResponse({"error": str(error), "view": session.view(item_filter)}, 409)
        at = session.position(entry["item"]) if action == "undo" else None
        return JSONResponse({"line": entry["line"], "item": entry["item"], "view": session.view(item_filter, at)})

    async def start_refit(request: Request) -> Response:
        await _read_body(request)
        return await run_in_threadpool(start_refit_now)

    def start_refit_now() -> Response:
        try:
            refit.start()
        except ValueError as error:
            return JSONResponse({"error": str(error)}, 409)
        return JSONResponse(refit.status())

    def refit_status(request: Request) -> Response:
        return JSONResponse(refit.status())

    routes = [
        Route("/", page),
        *(Route(f"/{name}", asset) for name in MEDIA_TYPES),
        Route("/api/about", about),
        Route("/api/view", view),
        *(Route(f"/api/{action}", decide, methods=["POST"]) for action in ("settle", "skip", "undo")),
        Route("/api/refit", start_refit, methods=["POST"]),
        Route("/api/refit-status", refit_status),
        Route("/image/{index:str}", image),
        Route("/export.csv", export),
    ]
    handlers: dict[Any, Callable[..., Any]] = {
        BadRequestError: _error_handler(400),
        ValueError: _error_handler(500),
        OSError: _error_handler(500),
    }
    return RequestGuard(Starlette(routes=routes, exception_handlers=handlers), port, token)


class RequestGuard:
    """Middleware that refuses requests from other sites, and adds security headers to every answer."""

    def __init__(self, app: ASGIApp, port: int, token: str) -> None:
        self.app, self.token = app, token
        self.hosts = {f"{name}:{port}" for name in (HOST, "localhost")}
        self.origins = {f"http://{host}" for host in self.hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it with status 403."""

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(name.encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]
                message["headers"] = [*message.get("headers", []), *added]
            await send(message)

        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        reason = self.rejection_reason(Request(scope))
        if reason is not None:
            await JSONResponse({"error": reason}, 403)(scope, receive, send_guarded)
            return
        await self.app(scope, receive, send_guarded)

    def rejection_reason(self, request: Request) -> str | None:
        """Return why a request is refused; None if it is allowed."""
        headers = request.headers
        if headers.getlist("host") != [headers.get("host")] or headers.get("host") not in self.hosts:
            return (
                f"this server answers to {' and '.join(sorted(self.hosts))} only; open the page under one of these "
                "addresses"
            )
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return "this request comes from another site; type the address of the page instead of following a link"
        if headers.get("origin", next(iter(self.origins))) not in self.origins:
            return "this request comes from another site; open the review page itself and try again there"
        if request.method not in ("GET", "HEAD") or "x-crowdfuse-token" in headers:
            token = headers.get("x-crowdfuse-token", "")
            if not secrets.compare_digest(token.encode(), self.token.encode()):
                return "this page was loaded before 'crowdfuse review' was restarted; reload the page"
        return None


def serve(session: ReviewSession, refit: Refit, port: int, echo: Callable[[str], None]) -> None:
    """Serve the page until Ctrl-C. If `port` is in use, the next free port is used. `echo` prints messages."""
    with _listening(port) as listener:
        free_port = listener.getsockname()[1]
        if free_port != port:
            echo(f"port {port} is in use; using port {free_port} instead")
        app = make_app(session, refit, free_port, secrets.token_urlsafe(24))
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, proxy_headers=False, ws="none",
            timeout_graceful_shutdown=2,
        )  # fmt: skip
        echo(f"open http://{HOST}:{free_port}/ in a browser on this machine; stop with Ctrl-C")
        try:
            uvicorn.Server(config).run(sockets=[listener])
        except KeyboardInterrupt:
            echo("stopped; all decisions are on disk")
        finally:
            stopped = refit.stop()
            if stopped is not None:
                echo(f"the refit was stopped; continue it with 'crowdfuse fit --resume {stopped}'")


@contextmanager
def _listening(port: int) -> Iterator[socket.socket]:
    """Yield a socket that listens on this port, or on the next free port."""
    for candidate in range(port, min(port + MAX_PORT_TRIES, 65536)):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if sys.platform != "win32":  # on Windows this option would let two servers share a port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, candidate))
            listener.listen()  # two sockets may bind a port, but only one may listen
        except OSError:
            listener.close()
            continue
        with listener:
            yield listener
        return
    raise OSError(
        f"no port from {port} to {min(port + MAX_PORT_TRIES, 65536) - 1} is free; choose another port with --port"
    )


# ---- reading requests ------------------------------------------------------------------------


async def _read_body(request: Request) -> dict[str, Any]:
    """Return the JSON object in the body of a request."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise BadRequestError("the content type of the request must be application/json")
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > MAX_BODY_BYTES:
            raise BadRequestError(f"the request is longer than {MAX_BODY_BYTES:,} bytes")
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"the request is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise BadRequestError("the request must be a JSON object")
    return body


def _item_filter(request: Request, session: ReviewSession) -> ItemFilter:
    """Return the filter in the query of a request."""
    items = request.query_params.get("items", "disputed")
    if items not in ("disputed", "all"):
        raise BadRequestError(f"the parameter 'items' in the address must be 'disputed' or 'all', got {items!r}")
    return ItemFilter(
        disputed=items == "disputed",
        annotator=_query_integer(request, "annotator", len(session.annotator_names)),
        label=_query_integer(request, "class", len(session.run.classes)),
    )


def _query_integer(request: Request, name: str, end: int) -> int | None:
    """Return a whole number in the query of a request, None if it is absent or empty."""
    text = request.query_params.get(name)
    return _parse_integer(text, end, name) if text else None


def _parse_integer(value: Any, end: int, name: str) -> int:
    """Return a whole number from 0 to below `end`, given as JSON or as digits."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16:
        value = int(value)
    if type(value) is not int or not 0 <= value < end:
        raise BadRequestError(f"{name} must be a whole number from 0 to {end - 1}, got {str(value)[:40]!r}")
    return value


def _error_handler(status: int) -> Callable[[Request, Exception], Response]:
    """Return a handler that answers with the message of an error."""
    return lambda request, error: JSONResponse({"error": str(error)}, status)


def _read_asset(name: str) -> str:
    """Return the text of a file of this package."""
    return (files("crowdfuse.review") / name).read_text(encoding="utf-8")
