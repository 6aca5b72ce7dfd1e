"""The time limit of a training (`max_time`): how many epochs of a phase fit into its share of the time."""

from __future__ import annotations

from collections.abc import Sequence


def affordable_epochs(n_epochs: int, n_done: int, seconds: float, planned: Sequence[int], seconds_left: float) -> int:
    """Return how many epochs the current phase keeps, at least those that are done.

    When a phase begins, the remaining time is divided among this phase and all later phases, in proportion to their
    planned numbers of epochs.

    Parameters
    ----------
    n_epochs : int
        Current number of epochs of the phase.
    n_done : int
        Number of epochs of the phase that are done, at least 1.
    seconds : float
        Duration of these epochs.
    planned : sequence of int
        Planned numbers of epochs, of this phase and all later phases.
    seconds_left : float
        Remaining time when the phase began.

    Returns
    -------
    n_kept : int
        At most `n_epochs`.

    Examples
    --------
    >>> affordable_epochs(n_epochs=10, n_done=1, seconds=2.0, planned=[10, 10], seconds_left=20.0)
    5
    """
    time_for_phase = max(0.0, seconds_left) * planned[0] / sum(planned)
    n_affordable = int(time_for_phase / (seconds / n_done)) if seconds > 0 else n_epochs
    return min(n_epochs, max(n_done, n_affordable))
