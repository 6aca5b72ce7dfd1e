"""An estimator to copy together with `methods/_template.py`, which lists the steps of adding a method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from crowdfuse.checks.numbers import check_nonnegative
from crowdfuse.estimators.base import CrowdClassifier, SearchSpace
from crowdfuse.methods._template import TemplateMethod
from crowdfuse.methods.base import Method, ModelSpec


@dataclass(kw_only=True, eq=False, repr=False)
class TemplateClassifier(CrowdClassifier):
    """One sentence that tells users what the learning method does.

    Then say what users should know before they choose the learning method. Document only its own parameters here; the
    parameters that every classifier has are added automatically.

    Parameters
    ----------
    scale : float, default=1.0
        Factor of the annotators' biases.

    References
    ----------
    Authors, "Title", venue and year.

    Examples
    --------
    >>> import numpy as np
    >>> from crowdfuse.estimators._template import TemplateClassifier
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> truth = (X[:, 0] > 0).astype(int)
    >>> Y = np.stack([truth, truth, 1 - truth], axis=1)  # the third annotator is always wrong
    >>> TemplateClassifier(epochs=20).fit(X, Y).score(X, truth) > 0.9
    True
    """

    # The name on the command line; its underscored form is the name of this file.
    method_name: ClassVar[str] = "template"
    # What `crowdfuse methods` says about the method.
    assumes: ClassVar[str] = "annotators prefer some classes, the same on all items"
    # What `compare --tune` varies: a list of values, or a range from which values are drawn on a logarithmic scale.
    search_space: ClassVar[SearchSpace] = {"scale": (0.1, 10.0)}

    scale: float = 1.0

    def _build(self, spec: ModelSpec) -> Method:
        """Check the parameters and build the method."""
        check_nonnegative("scale", self.scale)
        return TemplateMethod(spec, scale=self.scale)
