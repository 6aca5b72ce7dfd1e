"""Durations as people write them: parse settings such as "10m", and format durations for messages."""

from __future__ import annotations

import math
import re

import numpy as np

SECONDS_PER_UNIT = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400}


def parse_duration(name: str, value: object) -> float:
    """Return a duration in seconds.

    Parameters
    ----------
    name : str
        Name of the setting, for the error message.
    value : float or str
        Seconds, or a number with the unit s, m (or min), h or d, such as "90s", "10m", "1.5h" or "1h 30m".

    Returns
    -------
    seconds : float
        Above 0.

    Raises
    ------
    ValueError
        If the value has another form, or is not above 0.

    Examples
    --------
    >>> parse_duration("max_time", "10m"), parse_duration("max_time", "1h 30m"), parse_duration("max_time", 20)
    (600.0, 5400.0, 20.0)
    >>> parse_duration("max_time", "10 weeks")
    Traceback (most recent call last):
    ...
    ValueError: max_time must be a duration above 0 such as 90s, 10m or 2h, got '10 weeks'
    """
    seconds = math.nan
    if isinstance(value, str):
        if re.fullmatch(r"(\s*\d+(\.\d+)?\s*(s|min|m|h|d)?)+\s*", value):
            parts = re.findall(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d)?", value)
            seconds = sum(float(number) * SECONDS_PER_UNIT[unit] for number, unit in parts)
    elif isinstance(value, (int, float, np.number)) and not isinstance(value, bool):
        seconds = float(value)
    if not 0 < seconds < math.inf:
        raise ValueError(f"{name} must be a duration above 0 such as 90s, 10m or 2h, got {value!r}")
    return seconds


def format_duration(seconds: float) -> str:
    """Return a duration as text, in a unit that suits its length.

    Parameters
    ----------
    seconds : float
        The duration.

    Returns
    -------
    text : str

    Examples
    --------
    >>> format_duration(42), format_duration(187), format_duration(7600), format_duration(1e6)
    ('42 s', '3 min', '2 h 7 min', '12 days')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours / 24:,.0f} days"
