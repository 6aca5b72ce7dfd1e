"""One scikit-learn classifier per method. Each is imported on first use, so that importing the package stays light."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crowdfuse.estimators.registry import import_estimator

if TYPE_CHECKING:
    from crowdfuse.estimators.annot_mix import AnnotMixClassifier
    from crowdfuse.estimators.base import CrowdClassifier
    from crowdfuse.estimators.coin_net import COINNetClassifier
    from crowdfuse.estimators.conal import CoNALClassifier
    from crowdfuse.estimators.consensus_training import ConsensusTrainingClassifier
    from crowdfuse.estimators.crowd_layer import CrowdLayerClassifier
    from crowdfuse.estimators.fusion import FusionClassifier
    from crowdfuse.estimators.gated import GatedClassifier
    from crowdfuse.estimators.geo_crowd_net import GeoCrowdNetClassifier
    from crowdfuse.estimators.madl import MaDLClassifier
    from crowdfuse.estimators.majority_vote import MajorityVoteClassifier
    from crowdfuse.estimators.max_mig import MaxMIGClassifier
    from crowdfuse.estimators.mbem import MBEMClassifier
    from crowdfuse.estimators.robust_vote import RobustVoteClassifier
    from crowdfuse.estimators.single_annotator import SingleAnnotatorClassifier
    from crowdfuse.estimators.trace_reg import TraceRegClassifier
    from crowdfuse.estimators.true_label import TrueLabelClassifier
    from crowdfuse.estimators.two_stage import TwoStageClassifier
    from crowdfuse.estimators.union_net import UnionNetClassifier
    from crowdfuse.estimators.wdn import WDNClassifier

__all__ = [
    "AnnotMixClassifier",
    "COINNetClassifier",
    "CoNALClassifier",
    "ConsensusTrainingClassifier",
    "CrowdClassifier",
    "CrowdLayerClassifier",
    "FusionClassifier",
    "GatedClassifier",
    "GeoCrowdNetClassifier",
    "MBEMClassifier",
    "MaDLClassifier",
    "MajorityVoteClassifier",
    "MaxMIGClassifier",
    "RobustVoteClassifier",
    "SingleAnnotatorClassifier",
    "TraceRegClassifier",
    "TrueLabelClassifier",
    "TwoStageClassifier",
    "UnionNetClassifier",
    "WDNClassifier",
]


def __getattr__(name: str) -> Any:
    return import_estimator(name)


def __dir__() -> list[str]:
    return sorted(__all__)
