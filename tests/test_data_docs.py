"""The example of docs/data.md runs as it is written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

DOCS = (Path(__file__).parent.parent / "docs" / "data.md").read_text(encoding="utf-8")


def test_the_example_of_texts_runs(tmp_path: Path) -> None:
    example = re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL)[0]
    assert "fit(texts" in example
    done = subprocess.run([sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
