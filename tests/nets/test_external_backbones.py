"""Backbones by name: what is imported, what is opened, and one clear message for whatever is neither."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from crowdfuse.nets.external_backbones import load_backbone

SOURCE = """
from torch import nn

READY = nn.Linear(3, 2)
NUMBER = 7

class Net(nn.Linear):
    def __init__(self, width=2):
        super().__init__(3, width)

    @classmethod
    def wide(cls):
        return cls(50)

def resnet50(width=2, kind="plain"):
    if kind != "plain":
        raise KeyError(kind)
    return nn.Linear(3, width)

def a_dict():
    return {}
"""


@pytest.fixture
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with `some_nets.py` that Python looks in."""
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("some_nets", "lacking", "broken"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "some_nets.py").write_text(SOURCE)
    (tmp_path / "lacking.py").write_text("import surely_not_installed\n")
    (tmp_path / "broken.py").write_text("1 / 0\n")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "arguments", "width"),
    [
        ("some_nets:READY", {}, 2),
        ("some_nets:Net", {}, 2),
        ("some_nets:Net", {"width": 5}, 5),
        ("some_nets:Net.wide", {}, 50),
        ("some_nets:resnet50", {"width": 4, "kind": "plain"}, 4),
    ],
)
def test_modules_classes_and_functions_are_accepted(nets: Path, name: str, arguments: Any, width: int) -> None:
    found = load_backbone(name, arguments)
    assert isinstance(found, nn.Linear)
    assert found.out_features == width


@pytest.mark.parametrize("name", ["READY", "resnet50"])
def test_an_untrained_network_is_the_same_every_time(nets: Path, name: str) -> None:
    weights = []
    with torch.random.fork_rng(devices=[]):
        for seed in (1, 2):
            sys.modules.pop("some_nets", None)  # as in a process of its own
            torch.manual_seed(seed)
            before = torch.get_rng_state()
            weights.append(next(load_backbone(f"some_nets:{name}").parameters()))
            assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(*weights)


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("resnet50", {}, r"'resnet50' is not of the form module:callable; for example, 'mynets:net'"),
        (":resnet50", {}, "not of the form module:callable"),
        ("some_nets:", {}, "not of the form module:callable"),
        ("some_nets.py:resnet50", {}, r"not a file; write 'some_nets:resnet50', .*folder that contains some_nets\.py"),
        ("sub/some_nets.py:Net", {}, "write 'some_nets:Net'"),
        ("surely_not_installed:net", {}, "there is no module 'surely_not_installed'; install it, or start Python in"),
        ("torch.surely_not:net", {}, r"there is no module 'torch\.surely_not'"),
        ("lacking:net", {}, "lacking needs the module 'surely_not_installed', which is not installed"),
        ("broken:net", {}, "importing broken failed: ZeroDivisionError"),
        ("some_nets:resnet5", {}, "some_nets has no 'resnet5'; did you mean 'resnet50'?"),
        ("some_nets:Net.high", {}, "has no 'high'"),
        ("some_nets:NUMBER", {}, "an nn.Module or a callable that returns one, got int"),
        ("some_nets:a_dict", {}, "must return an nn.Module, got dict"),
        ("some_nets:resnet50", {"kind": "odd"}, r"calling it with \(kind='odd'\) failed: KeyError: 'odd'"),
        ("some_nets:resnet50", {"depth": 3}, r"calling it with \(depth=3\) failed: TypeError.*depth"),
        ("some_nets:READY", {"width": 3}, "is already a network and takes no arguments; leave out width"),
    ],
)
def test_a_name_without_a_network_is_refused(nets: Path, name: str, arguments: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        load_backbone(name, arguments)


@pytest.mark.parametrize("ending", [".pt", ".pth", ".pkl", ".ckpt", ".PT"])
def test_pickles_are_never_opened(tmp_path: Path, ending: str) -> None:
    for trust in (False, True):
        with pytest.raises(ValueError, match=r"are pickles, .*can run any code\. Write a function .*weights of net"):
            load_backbone(str(tmp_path / f"net{ending}"), trust_model=trust)


def test_bare_weights_are_refused_with_the_way_out() -> None:
    with pytest.raises(ValueError, match=r"hold weights but no network.*mynets:net"):
        load_backbone("net.safetensors")


# ---- .pt2 --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, nn.Module]:
    torch.manual_seed(0)
    net = nn.Linear(3, 2).eval()
    path = tmp_path_factory.mktemp("exported") / "net.pt2"
    torch.export.save(
        torch.export.export(net, (torch.zeros(2, 3),), dynamic_shapes=({0: torch.export.Dim("n")},)), path
    )
    return path, net


def test_an_exported_network_is_opened_only_if_it_is_trusted(
    exported: tuple[Path, nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, net = exported
    x = torch.arange(15.0).reshape(5, 3)
    assert torch.equal(load_backbone(str(path), trust_model=True)(x), net(x))
    monkeypatch.setattr(torch.export, "load", lambda *_, **__: pytest.fail("it was opened"))
    with pytest.raises(ValueError, match=r"net\.pt2: loading .* can run code .*--trust-model \(trust_model=True\)"):
        load_backbone(str(path))


def test_an_exported_network_that_cannot_be_used_is_refused(exported: tuple[Path, nn.Module], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="takes no arguments; leave out width"):
        load_backbone(str(exported[0]), {"width": 3}, trust_model=True)
    with pytest.raises(FileNotFoundError, match=r"none\.pt2: there is no such file"):
        load_backbone(str(tmp_path / "none.pt2"), trust_model=True)
    bad = tmp_path / "bad.pt2"
    for content, words in (
        (b"no zip", "was not written by torch"),
        (exported[0].read_bytes()[300:], "cannot be loaded"),
    ):
        bad.write_bytes(content)
        with pytest.raises(ValueError, match=rf"bad\.pt2.* {words}"):
            load_backbone(str(bad), trust_model=True)


def test_trust_model_is_only_for_exported_networks(nets: Path) -> None:
    with pytest.raises(ValueError, match=r"--trust-model .* only with \.pt2 files, but some_nets:READY is not"):
        load_backbone("some_nets:READY", trust_model=True)
