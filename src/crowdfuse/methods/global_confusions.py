"""Methods with one confusion matrix an annotator, the same on every item: what an annotator says of each true class."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal

from torch import Tensor

from crowdfuse.functional import label_evidence, posterior
from crowdfuse.methods.base import Method


class GlobalConfusions(Method):
    """A method with matrices `A_r[k, y] = P(annotator r says y | the item is of class k)`, rows summing to 1."""

    confusion_given: ClassVar[Literal["true"]] = "true"

    @abstractmethod
    def log_confusions(self) -> Tensor:
        """The logs of the matrices, (R, K, K), axes (true, said)."""

    @abstractmethod
    def log_prior(self, features: Tensor) -> Tensor:
        """What is known of each item before its labels are: log class probabilities (B, K)."""

    def confusions(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        return self.log_confusions().exp()[annotator]

    def fused(self, features: Tensor, item: Tensor, annotator: Tensor, label: Tensor) -> Tensor:
        """The posterior of the class given the item's labels."""
        evidence = label_evidence(self.log_confusions(), annotator, label)
        return posterior(self.log_prior(features), evidence, item)
