"""The memory that training needs, counted from tensor sizes, so that the number is the same on every machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

ADAM_COPIES_PER_PARAMETER = 4  # the parameter, its gradient, and Adam's two running means


class _SavedTensor:
    """A tensor that is saved for the backward pass; calls `release` when the graph no longer needs it."""

    def __init__(self, tensor: Tensor, release: Callable[[], None]) -> None:
        self.tensor, self.release = tensor, release

    def __del__(self) -> None:
        self.release()


class SavedTensorBytes:
    """Bytes that are saved for the backward pass. Storage that is saved several times counts once.

    Attributes
    ----------
    current : int
        Bytes that are saved now.
    peak : int
        Largest value that `current` had.
    """

    def __init__(self) -> None:
        self.current = self.peak = 0
        self._n_uses_by_address: dict[int, int] = {}

    def save(self, tensor: Tensor) -> Tensor | _SavedTensor:
        """Count a tensor that autograd saves; parameters are not counted, as they exist anyway."""
        source = tensor._base if tensor._is_view() and tensor._base is not None else tensor
        if isinstance(source, nn.Parameter):
            return tensor
        storage = source.untyped_storage()
        address, size = storage.data_ptr(), storage.nbytes()
        self._n_uses_by_address[address] = self._n_uses_by_address.get(address, 0) + 1
        if self._n_uses_by_address[address] == 1:
            self.current += size
            self.peak = max(self.peak, self.current)

        def release() -> None:
            self._n_uses_by_address[address] -= 1
            if not self._n_uses_by_address[address]:
                del self._n_uses_by_address[address]
                self.current -= size

        return _SavedTensor(tensor.detach(), release)


@contextmanager
def count_saved_tensors() -> Iterator[SavedTensorBytes]:
    """Count the bytes that torch saves for the backward pass within the block.

    Examples
    --------
    >>> import torch
    >>> x = torch.ones(100, 8, requires_grad=True)
    >>> with count_saved_tensors() as saved:
    ...     (x.exp() * 3).sum().backward()
    >>> saved.peak, saved.current                       # exp saves its result: 800 numbers of 4 bytes
    (3200, 0)
    """
    saved = SavedTensorBytes()

    def unpack(tensor: Tensor | _SavedTensor) -> Tensor:
        return tensor.tensor if isinstance(tensor, _SavedTensor) else tensor

    with saved_tensors_hooks(saved.save, unpack):
        yield saved


def peak_training_bytes(fit: Callable[[], nn.Module]) -> int:
    """Return the peak memory of training a network with Adam, in bytes. The memory of the data is not counted.

    Parameters
    ----------
    fit : callable
        Trains a network and returns it.
    """
    with count_saved_tensors() as saved:
        network = fit()
    parameters = sum(tensor.numel() * tensor.element_size() for tensor in network.parameters())
    return saved.peak + ADAM_COPIES_PER_PARAMETER * parameters
