"""Checks of settings and names, with error messages that say what values are allowed."""

from __future__ import annotations

from crowdfuse.checks.choices import check_choice, did_you_mean
from crowdfuse.checks.durations import format_duration, parse_duration
from crowdfuse.checks.numbers import (
    check_above_chance,
    check_layer_widths,
    check_nonnegative,
    check_positive_integer,
    check_probability,
    check_share_below_one,
)

__all__ = [
    "check_above_chance",
    "check_choice",
    "check_layer_widths",
    "check_nonnegative",
    "check_positive_integer",
    "check_probability",
    "check_share_below_one",
    "did_you_mean",
    "format_duration",
    "parse_duration",
]
