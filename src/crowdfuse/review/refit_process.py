"""The process of a refit, `python -m crowdfuse.review.refit_process`: read a job from standard input and run it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from crowdfuse import runs


def main() -> int:
    """Run the job from standard input and return the exit code. If it fails, the error is the last line of stderr."""
    request = json.load(sys.stdin)
    try:
        runs.start(runs.Job.from_json(request["job"]), Path(request["out"]), force=False, verbose=1)
    except (ValueError, OSError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
