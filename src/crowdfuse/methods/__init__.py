"""One file per method: an `nn.Module` with a loss over a batch of labels. Copy `_template.py` to add a method.

The classes of the methods are imported from their own modules, such as `crowdfuse.methods.fusion.Fusion`.
"""

from crowdfuse.methods.base import HeldOutScorer, LabelFunction, Loss, Method, ModelSpec, Phase, Predict
from crowdfuse.methods.data import Batch, TrainingData
from crowdfuse.methods.global_confusions import CountedConfusions, GlobalConfusions

__all__ = [
    "Batch",
    "CountedConfusions",
    "GlobalConfusions",
    "HeldOutScorer",
    "LabelFunction",
    "Loss",
    "Method",
    "ModelSpec",
    "Phase",
    "Predict",
    "TrainingData",
]
