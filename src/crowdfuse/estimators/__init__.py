"""What people import: one scikit-learn classifier a method, thin. The verbs are in `CrowdClassifier`."""

from __future__ import annotations

from crowdfuse.estimators.annot_mix import AnnotMixClassifier as AnnotMixClassifier
from crowdfuse.estimators.coin_net import COINNetClassifier as COINNetClassifier
from crowdfuse.estimators.conal import CoNALClassifier as CoNALClassifier
from crowdfuse.estimators.crowd_layer import CrowdLayerClassifier as CrowdLayerClassifier
from crowdfuse.estimators.fusion import FusionClassifier as FusionClassifier
from crowdfuse.estimators.gated import GatedClassifier as GatedClassifier
from crowdfuse.estimators.geo_crowd_net import GeoCrowdNetClassifier as GeoCrowdNetClassifier
from crowdfuse.estimators.madl import MaDLClassifier as MaDLClassifier
from crowdfuse.estimators.majority_vote import MajorityVoteClassifier as MajorityVoteClassifier
from crowdfuse.estimators.max_mig import MaxMIGClassifier as MaxMIGClassifier
from crowdfuse.estimators.mbem import MBEMClassifier as MBEMClassifier
from crowdfuse.estimators.robust_vote import RobustVoteClassifier as RobustVoteClassifier
from crowdfuse.estimators.single_annotator import SingleAnnotatorClassifier as SingleAnnotatorClassifier
from crowdfuse.estimators.trace_reg import TraceRegClassifier as TraceRegClassifier
from crowdfuse.estimators.true_label import TrueLabelClassifier as TrueLabelClassifier
from crowdfuse.estimators.two_stage import TwoStageClassifier as TwoStageClassifier
from crowdfuse.estimators.union_net import UnionNetClassifier as UnionNetClassifier
from crowdfuse.estimators.wdn import WDNClassifier as WDNClassifier
