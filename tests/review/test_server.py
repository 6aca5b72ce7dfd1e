"""The server: which requests it refuses, errors for malformed requests, images, ports, and the command."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from starlette.testclient import TestClient
from typer.testing import CliRunner

from crowdfuse.cli import app
from crowdfuse.review.decision_state import DecisionState
from crowdfuse.review.item_inputs import ItemInputs
from crowdfuse.review.refit import Refit
from crowdfuse.review.review_order import ItemFilter
from crowdfuse.review.run_folder import read_run
from crowdfuse.review.server import _listening, make_app
from crowdfuse.review.session import ReviewSession
from tests.review.conftest import N, read_rows

PORT, TOKEN = 8765, "the-token"
HERE = f"http://127.0.0.1:{PORT}"


@pytest.fixture
def client(run: Path) -> Iterator[TestClient]:
    """Return a client that sends the headers of the page."""
    folder = read_run(run)
    session = ReviewSession(folder, ItemInputs(folder), "rita")
    headers = {"x-crowdfuse-token": TOKEN, "origin": HERE, "sec-fetch-site": "same-origin"}
    with TestClient(make_app(session, Refit(folder), PORT, TOKEN), base_url=HERE, headers=headers) as made:
        yield made


def settle(client: TestClient, label: int = 0) -> Any:
    item = client.get("/api/view").json()["item"]
    body = {name: item[name] for name in ("index", "facts_hash", "version")} | {"label": label}
    return client.post("/api/settle", json=body)


def test_nothing_is_exported_if_items_were_only_skipped(client: TestClient, run: Path, tmp_path: Path) -> None:
    item = client.get("/api/view").json()["item"]
    assert (
        client.post("/api/skip", json={key: item[key] for key in ("index", "facts_hash", "version")}).status_code == 200
    )
    result = CliRunner().invoke(app, ["review", str(run), "--export", str(tmp_path / "gold.csv")])
    assert result.exit_code == 2
    assert "only skips and decisions that were undone" in " ".join(result.output.split())
    assert not (tmp_path / "gold.csv").exists()


def test_a_decision_is_on_disk_before_the_next_item_shows(client: TestClient, run: Path) -> None:
    before = client.get("/api/view").json()["item"]
    answer = settle(client, 2).json()
    assert answer["item"] == before["item"]
    assert answer["view"]["item"]["item"] != before["item"]
    assert f'"item": "{before["item"]}"' in (run / "decisions.jsonl").read_text()
    exported = client.get("/export.csv")
    assert list(csv.reader(io.StringIO(exported.text))) == [["item", "label"], [before["item"], "owl"]]
    assert "attachment" in exported.headers["content-disposition"]
    undone = client.post("/api/undo", json={"line": answer["line"]}).json()
    assert undone["view"]["item"]["item"] == before["item"]
    assert client.get("/export.csv").text == "item,label\n"


HOSTS = [
    "evil.example",
    "evil.example:8765",
    "127.0.0.1",
    "127.0.0.1:1",
    "127.0.0.1.evil.example:8765",
    "[::1]:8765",
    "",
]


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("path", ["/", "/api/view", "/image/0", "/export.csv", "/nothing"])
def test_foreign_hosts_are_refused(client: TestClient, host: str, path: str) -> None:
    answer = client.get(path, headers={"host": host})
    assert answer.status_code == 403
    assert "answers to" in answer.json()["error"]


@pytest.mark.parametrize("hosts", [["own", "evil"], ["evil", "own"], ["own", "own"], []], ids="-".join)
def test_a_request_needs_exactly_one_host(client: TestClient, hosts: list[str]) -> None:
    """Servers and proxies differ in which of two hosts they take. HTTP clients refuse to send two."""
    names = {"own": f"127.0.0.1:{PORT}".encode(), "evil": b"evil.example"}
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/api/view",
        "query_string": b"",
        "headers": [(b"host", names[host]) for host in hosts],
    }
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(client.app(scope, receive, send))  # type: ignore[arg-type]  # an application of ASGI 3
    assert sent[0]["status"] == 403
    assert "answers to" in json.loads(sent[1]["body"])["error"]


def test_localhost_is_allowed(client: TestClient) -> None:
    there = f"localhost:{PORT}"
    assert client.get("/", headers={"host": there, "origin": f"http://{there}"}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": f"https://127.0.0.1:{PORT}"},
        {"origin": "http://127.0.0.1:1"},
    ],
)
@pytest.mark.parametrize("path", ["/", "/api/view", "/image/0", "/export.csv"])
def test_cross_site_requests_are_refused(client: TestClient, headers: dict[str, str], path: str) -> None:
    assert client.get(path, headers=headers).status_code == 403
    assert client.post("/api/settle", headers=headers, json={}).status_code == 403


@pytest.mark.parametrize("token", ["", "another", TOKEN + "x", "ü"])
@pytest.mark.parametrize("path", ["/api/settle", "/api/skip", "/api/undo", "/api/refit"])
def test_nothing_changes_without_the_token(client: TestClient, token: str, path: str, run: Path) -> None:
    answer = client.post(path, json={"line": 1}, headers={"x-crowdfuse-token": token.encode()})
    assert answer.status_code == 403
    assert "reload" in answer.json()["error"]
    assert not (run / "decisions.jsonl").exists()


@pytest.mark.parametrize("path", ["/api/about", "/api/view", "/api/view?head=0", "/api/refit-status"])
def test_a_page_of_an_earlier_start_reads_nothing_of_this_one(client: TestClient, path: str) -> None:
    """It may be of another run, with other items and classes."""
    assert client.get(path).status_code == 200
    answer = client.get(path, headers={"x-crowdfuse-token": "of the earlier start"})
    assert answer.status_code == 403
    assert "reload" in answer.json()["error"]


def test_every_answer_has_the_security_headers(client: TestClient) -> None:
    answers = [
        client.get(path) for path in ("/", "/page.js", "/page.css", "/icon.svg", "/api/about", "/image/0", "/nothing")
    ]
    answers.append(client.get("/", headers={"host": "evil.example"}))
    answers.append(client.post("/api/undo", json={"line": 7}))
    for answer in answers:
        assert answer.headers["content-security-policy"].startswith("default-src 'self'; ")
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert "access-control-allow-origin" not in answer.headers
    assert [answer.status_code for answer in answers] == [200] * 6 + [404, 403, 409]


def test_the_page_has_the_token_and_no_inline_script(client: TestClient) -> None:
    page = client.get("/").text
    assert f'content="{TOKEN}"' in page
    assert page.count("<script") == 1
    assert " style=" not in page
    assert "innerHTML" not in client.get("/page.js").text


@pytest.mark.parametrize(
    "index", ["-1", str(N), "1e3", "../labels.csv", "%2e%2e%2flabels.csv", "٣", "9" * 5000, "0x1", ""]
)
def test_images_are_requested_by_number_only(client: TestClient, index: str) -> None:
    assert client.get(f"/image/{index}").status_code in (400, 404)


def test_images_are_encoded_anew(client: TestClient, run: Path) -> None:
    item = client.get("/api/view").json()["item"]
    path = run.parent / "inputs" / item["item"]
    pixels = Image.open(path).convert("RGB")
    with path.open("ab") as file:
        file.write(b"<script>alert(1)</script>")
    sent = client.get(f"/image/{item['index']}")
    assert sent.headers["content-type"] == "image/png"
    assert b"script" not in sent.content
    assert Image.open(io.BytesIO(sent.content)).tobytes() == pixels.tobytes()
    path.unlink()
    gone = client.get(f"/image/{item['index']}")
    assert gone.status_code == 404
    assert item["item"] in gone.json()["error"]


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b'"x"', b"{}", b'{"index": 0}', b"\xff", b'{"index": true, "label": 0}',
     b'{"index": -1, "label": 0, "facts_hash": "", "version": 0}',
     b'{"index": 0, "label": 3, "facts_hash": "", "version": 0}',
     b'{"index": 0.0, "label": 0, "facts_hash": "", "version": 0}',
     b'{"index": 0, "label": null, "facts_hash": "", "version": 0}',
     b'{"index": 1e99, "label": 0}', b'{"index": 0, "x": "' + b"x" * 20_000 + b'"}', b"[" * 9_000],
)  # fmt: skip
def test_malformed_bodies_are_refused_with_a_message(client: TestClient, body: bytes, run: Path) -> None:
    answer = client.post("/api/settle", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error"]
    assert not (run / "decisions.jsonl").exists()


def test_bodies_that_are_not_json_are_refused(client: TestClient) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        answer = client.post("/api/settle", content=b"{}", headers={"content-type": kind})
        assert answer.status_code == 400


@pytest.mark.parametrize(
    "query", ["items=some", "annotator=99", "class=-1", "class=x", "at=1000", "annotator=" + "9" * 99]
)
def test_malformed_filters_are_refused_with_a_message(client: TestClient, query: str) -> None:
    answer = client.get(f"/api/view?{query}")
    assert answer.status_code == 400
    assert "must be" in answer.json()["error"]


def test_an_item_that_another_tab_settled_is_not_settled_again(client: TestClient, run: Path) -> None:
    item = client.get("/api/view").json()["item"]
    assert settle(client).status_code == 200
    body = {name: item[name] for name in ("index", "facts_hash", "version")} | {"label": 1}
    late = client.post("/api/settle", json=body)
    assert late.status_code == 409
    assert "meanwhile, rita settled" in late.json()["error"]
    assert late.json()["view"]["item"]["item"] != item["item"]
    assert len((run / "decisions.jsonl").read_text().splitlines()) == 1


def test_tampering_while_the_server_runs_is_reported(client: TestClient, run: Path) -> None:
    settle(client)
    path = run / "decisions.jsonl"
    path.write_text(path.read_text() + "{}\n")
    answer = client.post("/api/undo", json={"line": 1})
    assert answer.status_code == 500
    assert "decisions.jsonl, line 2 was changed" in answer.json()["error"]


def test_the_answer_is_short_if_the_ledger_has_no_new_lines(client: TestClient) -> None:
    assert client.get("/api/view?n_ledger_lines=0").json() == {"n_ledger_lines": 0}
    settle(client)
    assert client.get("/api/view?n_ledger_lines=0").json()["n_settled"] == 1


def test_a_view_is_complete_if_another_tab_writes_meanwhile(
    client: TestClient, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = read_run(run)
    sam, positions = ReviewSession(folder, ItemInputs(folder), "sam"), iter(range(N))
    decision_state = ReviewSession.decision_state

    def read_then_write(session: ReviewSession) -> DecisionState:
        found = replace(decision_state(session))
        if session is not sam:
            index, choice = next(positions), ItemFilter(disputed=False)
            item = sam.view(choice, at=index)["item"]
            sam.settle(index, 0, facts_hash=item["facts_hash"], version=item["version"], item_filter=choice)
        return found

    monkeypatch.setattr(ReviewSession, "decision_state", read_then_write)
    view = client.get("/api/view?n_ledger_lines=0").json()
    assert view == {"n_ledger_lines": 0} or "item" in view


def test_a_refit_without_decisions_is_refused(client: TestClient) -> None:
    answer = client.post("/api/refit", json={})
    assert answer.status_code == 409
    assert "nothing is settled yet" in answer.json()["error"]
    assert client.get("/api/refit-status").json() == {"state": "none"}


def test_the_next_free_port_is_taken() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        with _listening(taken) as listener:
            host, port = listener.getsockname()
            assert host == "127.0.0.1"
            assert taken < port < taken + 100


# ---- the command -----------------------------------------------------------------------------------


def command(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["review", *map(str, arguments)])
    return result.exit_code, result.output


def test_export_writes_the_decisions(client: TestClient, run: Path, tmp_path: Path) -> None:
    out = tmp_path / "gold.csv"
    code, said = command(run, "--export", out)
    assert code == 2
    assert "nothing is settled yet" in said
    first = settle(client, 1).json()
    assert command(run, "--export", out)[0] == 0
    assert read_rows(out) == [["item", "label"], [first["item"], "dog"]]
    assert "exists already" in command(run, "--export", out)[1]
    assert command(run, "--export", out, "--force")[0] == 0
    decisions = (run / "decisions.jsonl").read_bytes()
    assert command(run, "--export", run / "decisions.jsonl", "--force")[0] == 2
    assert (run / "decisions.jsonl").read_bytes() == decisions
    client.post("/api/undo", json={"line": 1})
    assert "nothing to export" in command(run, "--export", tmp_path / "other.csv")[1]
    (run / "decisions.jsonl").write_bytes(decisions.replace(b"dog", b"cat"))
    assert "line 1 was changed" in command(run, "--export", tmp_path / "other.csv")[1]
    assert not (tmp_path / "other.csv").exists()


def test_without_the_extra_the_error_says_what_to_install(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "crowdfuse.review.server")
    code, said = command(run)
    assert code == 2
    assert "pip install 'crowdfuse[web]'" in said


@pytest.mark.parametrize("what", ["nowhere", "."])
def test_a_folder_that_is_not_a_run_is_refused(what: str, tmp_path: Path) -> None:
    code, said = command(tmp_path / what)
    assert code == 2
    assert "run folder" in said


def test_the_command_line_starts_without_the_extra() -> None:
    code = "import sys, crowdfuse.cli; assert not {'starlette', 'uvicorn', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
