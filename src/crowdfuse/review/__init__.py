"""Review of disputed items: record the decisions of reviewers, export them as gold labels, and refit with them.

The web page is served by `crowdfuse.review.server`, which needs the extra `crowdfuse[web]`.
"""

from __future__ import annotations

from crowdfuse.review.changes import compare_run_folders
from crowdfuse.review.decision_state import DecisionState, replay
from crowdfuse.review.item_inputs import ItemInputs, NoPictureError
from crowdfuse.review.ledger import Ledger, LedgerError
from crowdfuse.review.refit import Refit
from crowdfuse.review.review_order import ItemFilter, next_open_items
from crowdfuse.review.run_folder import RunFolder, read_run
from crowdfuse.review.session import RefusedError, ReviewSession, gold_csv, read_gold_rows

__all__ = [
    "DecisionState",
    "ItemFilter",
    "ItemInputs",
    "Ledger",
    "LedgerError",
    "NoPictureError",
    "Refit",
    "RefusedError",
    "ReviewSession",
    "RunFolder",
    "compare_run_folders",
    "gold_csv",
    "next_open_items",
    "read_gold_rows",
    "read_run",
    "replay",
]
