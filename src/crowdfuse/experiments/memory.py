"""What a training holds in memory, counted and not measured: the same on every machine, whatever else it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

ADAM_COPIES_PER_PARAMETER = 4  # numbers a parameter: itself, its gradient, and two means that Adam keeps


class _Kept:
    """A tensor that waits for the way back; what it holds is given back when nobody waits any more."""

    def __init__(self, tensor: Tensor, let_go: Callable[[], None]) -> None:
        self.tensor, self.let_go = tensor, let_go

    def __del__(self) -> None:
        self.let_go()


class SavedTensorBytes:
    """Bytes that are kept for the way back, now and at most. What several places keep counts once."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self._places: dict[int, int] = {}

    def keep(self, tensor: Tensor) -> Tensor | _Kept:
        source = tensor._base if tensor._is_view() and tensor._base is not None else tensor
        if isinstance(source, nn.Parameter):
            return tensor  # there anyway
        storage = source.untyped_storage()
        place, size = storage.data_ptr(), storage.nbytes()
        self._places[place] = self._places.get(place, 0) + 1
        if self._places[place] == 1:
            self.now += size
            self.most = max(self.most, self.now)

        def let_go() -> None:
            self._places[place] -= 1
            if not self._places[place]:
                del self._places[place]
                self.now -= size

        return _Kept(tensor.detach(), let_go)


@contextmanager
def count_saved_tensors() -> Iterator[SavedTensorBytes]:
    """Count what torch keeps for the way back.

    >>> import torch
    >>> x = torch.ones(100, 8, requires_grad=True)
    >>> with counting() as held:
    ...     (x.exp() * 3).sum().backward()
    >>> held.most, held.now                                        # exp keeps what it made: 800 numbers of 4 bytes
    (3200, 0)
    """
    held = SavedTensorBytes()

    def back(kept: Tensor | _Kept) -> Tensor:
        return kept.tensor if isinstance(kept, _Kept) else kept

    with saved_tensors_hooks(held.keep, back):
        yield held


def bytes_to_train(fit: Callable[[], nn.Module]) -> int:
    """The bytes that training a network with Adam holds at most, apart from data: `fit` trains and returns it."""
    with count_saved_tensors() as held:
        network = fit()
    parameters = sum(tensor.numel() * tensor.element_size() for tensor in network.parameters())
    return held.most + ADAM_COPIES_PER_PARAMETER * parameters
