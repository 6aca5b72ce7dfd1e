"""The experiments of Gao et al. (2022) and further comparisons: grids of runs, their execution, and their tables."""

from __future__ import annotations

from crowdfuse.experiments.grid import Cell, Experiment, MethodVariant, Scale
from crowdfuse.experiments.result_table import PairedDifference, Table, TableEntry, make_table
from crowdfuse.experiments.run_executor import DataSplit, PaperExecutor, split_data
from crowdfuse.experiments.runner import GridResult, RunExecutor, run_grid, run_locally
from crowdfuse.experiments.store import Record, Store, run_key

__all__ = [
    "Cell",
    "DataSplit",
    "Experiment",
    "GridResult",
    "MethodVariant",
    "PairedDifference",
    "PaperExecutor",
    "Record",
    "RunExecutor",
    "Scale",
    "Store",
    "Table",
    "TableEntry",
    "make_table",
    "run_grid",
    "run_key",
    "run_locally",
    "split_data",
]
