"""What people import: one scikit-learn classifier a method, thin. The verbs are in `CrowdClassifier`."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from crowdfuse.aggregation import METHODS
from crowdfuse.annotations import Annotations
from crowdfuse.batches import TrainingData
from crowdfuse.choices import one_of
from crowdfuse.classifier import CrowdClassifier
from crowdfuse.diagnostics import NO_LABELS, diagnose
from crowdfuse.ids import few, find, tidy
from crowdfuse.methods.base import Method, Problem
from crowdfuse.methods.fusion import BasisConfusions, Fusion
from crowdfuse.methods.gated import Gated
from crowdfuse.methods.global_confusions import GlobalConfusions
from crowdfuse.methods.gold_reading import FEWEST
from crowdfuse.methods.majority_vote import MajorityVote
from crowdfuse.methods.mbem import MBEM
from crowdfuse.methods.single_annotator import SingleAnnotator
from crowdfuse.methods.trace_reg import TraceReg
from crowdfuse.methods.true_label import TrueLabel
from crowdfuse.methods.two_stage import TwoStage
from crowdfuse.methods.wdn import WDN
from crowdfuse.methods.wrong_labels import AnnotatorWrong, BasisWrong, SharedWrong, UniformWrong, WrongLabels
from crowdfuse.nets.rows import FEW
from crowdfuse.progress import say
from crowdfuse.recipes import at_least_0, at_least_1, probability, widths
from crowdfuse.training import Validation

GATED_SHARED = 1_000  # annotators: with 203, on Sentiment Polarity, shared heads were a point better than embedded
LOOKED_AT = 20_000  # items, when a fit looks back
FULL_LIMIT = 100  # classes: a free matrix a pair has K^2 outputs


@dataclass(kw_only=True, eq=False, repr=False)
class FusionClassifier(CrowdClassifier):
    """Sample-wise label fusion: weights and confusion matrices per item and annotator (Gao et al., ECCV 2022).

    Mind who always says the same: such an annotator is the easiest to predict, and fusion comes to believe it. Where
    each item has many labels, the weights can end on one annotator, and not the best: look at `annotator_weights`.

    Parameters
    ----------
    n_bases : how many permutations M span the confusion matrices; at most K! are used. 1 leaves the
        identity alone: the ablation with weights only
    basis : "random" as in the paper; "latin" lets every class be reached from every label once M >= K
    penalty : lambda, how strongly the matrices are drawn to the identity
    confusions : "basis", or "full": a free column-stochastic matrix a pair, for small K
    weights : "learned", or "uniform": the ablation with confusions only
    annotator_heads : what makes the weights and matrices of an annotator. "separate": a network each, as in the
        paper, for few annotators (the weights' networks share all but their last layer); "shared": one network for
        all, but for its last layer; "embedded": one network for all that reads a few numbers an annotator, for many.
        "auto": "shared" for up to 100 annotators, else "embedded"
    embedding : how many numbers describe an annotator, with embedded heads
    annotator_hidden : widths of the hidden layers of the annotators' heads; None for those of the class
        head (one layer of 64 where that has none)
    loss_scale : "plain": the mean over items; "paper": that divided by K, as the paper's figures were trained

    The other parameters are those of every classifier here: see `CrowdClassifier`.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> truth = (X[:, 0] > 0).astype(int)
    >>> Y = np.stack([truth, truth, 1 - truth], axis=1)      # the third annotator is always wrong
    >>> clf = FusionClassifier(epochs=20).fit(X, Y)
    >>> clf.score(X, truth) > 0.9
    True
    >>> clf.annotator_weights(X).shape, clf.confusion_matrices(X).shape
    ((200, 3), (200, 3, 2, 2))
    """

    method_name: ClassVar[str] = "fusion"
    paper_settings: ClassVar[dict[str, Any]] = {
        "n_bases": 20,
        "penalty": 1.0,
        "annotator_heads": "separate",
        "loss_scale": "paper",
    }

    n_bases: int = 20
    basis: Literal["random", "latin"] = "random"
    penalty: float = 1.0
    confusions: Literal["basis", "full"] = "basis"
    weights: Literal["learned", "uniform"] = "learned"
    annotator_heads: Literal["auto", "shared", "separate", "embedded"] = "auto"
    embedding: int = 16
    annotator_hidden: tuple[int, ...] | None = None
    loss_scale: Literal["plain", "paper"] = "plain"

    def _build(self, problem: Problem) -> Method:
        one_of("confusions", self.confusions, ("basis", "full"))
        one_of("weights", self.weights, ("learned", "uniform"))
        one_of("annotator_heads", self.annotator_heads, ("auto", "shared", "separate", "embedded"))
        one_of("loss_scale", self.loss_scale, ("plain", "paper"))
        at_least_0("penalty", self.penalty)
        at_least_1("n_bases", self.n_bases)
        at_least_1("embedding", self.embedding)
        if self.confusions == "full" and problem.n_classes > FULL_LIMIT:
            raise ValueError(
                f"confusions='full' is for at most {FULL_LIMIT} classes, got {problem.n_classes}; use 'basis'"
            )
        possible = math.factorial(problem.n_classes)
        if self.confusions == "basis" and self.n_bases > possible:
            say(self.verbose, f"n_bases={self.n_bases}: {problem.n_classes} classes have only {possible} permutations")
        hidden = (
            (problem.head_hidden or (64,))
            if self.annotator_hidden is None
            else widths("annotator_hidden", self.annotator_hidden)
        )
        return Fusion(
            problem,
            n_bases=self.n_bases,
            basis=self.basis,
            penalty=self.penalty,
            confusions=self.confusions,
            weights=self.weights,
            annotator_heads=self._heads(problem.n_annotators),
            embedding=self.embedding,
            annotator_hidden=hidden,
            loss_scale=self.loss_scale,
        )

    def _heads(self, n_annotators: int) -> Literal["shared", "separate", "embedded"]:
        if self.annotator_heads != "auto":
            return self.annotator_heads
        return "shared" if n_annotators <= FEW else "embedded"

    def _settled(self) -> dict[str, Any]:
        assert isinstance(self.method_, Fusion)
        built = self.method_.annotator_heads
        return {} if built == self._heads(len(self.annotators_)) else {"annotator_heads": built}

    @property
    def n_bases_(self) -> int | None:
        """How many permutations there are: min(n_bases, K!); None with full confusions."""
        assert isinstance(self.method_, Fusion)
        return len(self.method_.confuse.basis) if isinstance(self.method_.confuse, BasisConfusions) else None


@dataclass(kw_only=True, eq=False, repr=False)
class GatedClassifier(CrowdClassifier):
    """How likely each annotator is right on each item, learned with the classifier from the labels alone.

    Three phases: what annotators would say of an item; what it therefore is, as a start; and then the likelihood of
    all labels of an item together. See `crowdfuse.methods.gated` for the model, and docs/method.md for what it was
    measured against, and where it fails: annotators who make the same mistakes, and two classes, need gold. Gold items
    are worth much here: from ten on they can overrule what labels alone say.

    Parameters
    ----------
    wrong : what annotators say where they are wrong. "uniform": all wrong classes alike; "annotator": a table each,
        learned; "shared": one table for all; "basis": a mixture of permutations an annotator, the paper's basis read
        forward
    n_bases : how many permutations there are, for "basis"
    hold_out : keep some labels (a tenth, at most 5,000) of items that have several out of training, to choose the
        start and the epoch by. Without it, or where no item has two labels, the last epoch is kept
    annotator_heads : "shared": one network for all annotators, but for its last layer; "embedded": one for all that
        reads a few numbers an annotator, for many. "auto": "shared" for up to 1,000 annotators, else "embedded"
    embedding : how many numbers describe an annotator, with embedded heads

    The other parameters are those of every classifier here: see `CrowdClassifier`.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> truth = (X[:, 0] > 0) + 2 * (X[:, 1] > 0)
    >>> Y = np.stack([truth, np.where(X[:, 0] > 0, truth, (truth + 1) % 4), truth], axis=1)
    >>> clf = GatedClassifier(epochs=20, batch_size=32).fit(X, Y)
    >>> clf.score(X, truth) > 0.9
    True
    >>> clf.confusion_matrices(X).shape
    (300, 3, 4, 4)

    Attributes, beside those of every classifier
    ----------
    diagnostics_ : what the labels cannot decide: figures, `gates_can_be_trusted`, and `messages` in words
    """

    method_name: ClassVar[str] = "gated"

    wrong: Literal["uniform", "annotator", "shared", "basis"] = "uniform"
    n_bases: int = 20
    hold_out: bool = True
    annotator_heads: Literal["auto", "shared", "embedded"] = "auto"
    embedding: int = 16

    def _build(self, problem: Problem) -> Method:
        one_of("wrong", self.wrong, ("uniform", "annotator", "shared", "basis"))
        one_of("annotator_heads", self.annotator_heads, ("auto", "shared", "embedded"))
        at_least_1("n_bases", self.n_bases)
        at_least_1("embedding", self.embedding)
        if self.epochs < 2:
            raise ValueError(
                f"gated needs at least 2 epochs, got epochs={self.epochs}: one on what annotators say, one on what the "
                "items therefore are; from 3 on the likelihood of the labels is trained too"
            )
        wrong: WrongLabels = UniformWrong(problem.n_classes, problem.n_annotators)
        if self.wrong == "annotator":
            wrong = AnnotatorWrong(problem.n_classes, problem.n_annotators)
        elif self.wrong == "shared":
            wrong = SharedWrong(problem.n_classes)
        elif self.wrong == "basis":
            wrong = BasisWrong(problem.n_classes, problem.n_annotators, self.n_bases, problem.seed)
        return Gated(problem, heads=self._heads(problem.n_annotators), embedding=self.embedding, wrong=wrong)

    def _heads(self, n_annotators: int) -> Literal["shared", "embedded"]:
        if self.annotator_heads != "auto":
            return self.annotator_heads
        return "shared" if n_annotators <= GATED_SHARED else "embedded"

    def _settled(self) -> dict[str, Any]:
        assert isinstance(self.method_, Gated)
        built = self.method_.heads
        return {} if built == self._heads(len(self.annotators_)) else {"annotator_heads": built}

    def _validation(self, given: Any, data: TrainingData, seed: int) -> tuple[TrainingData, Validation | None]:
        several = np.diff(data.annotations.indptr) > 1
        if given is None and self.hold_out and (several & (data.weight > 0)).any():
            given = "annotations"
        return super()._validation(given, data, seed)

    def _look_back(self, data: TrainingData) -> None:
        """What the labels cannot decide; of much data, a sample tells."""
        rows = np.flatnonzero(np.diff(data.annotations.indptr) > 0)
        rows = np.sort(np.random.default_rng(0).permutation(rows)[:LOOKED_AT])
        if not len(rows):
            self.diagnostics_ = NO_LABELS.as_json()
            return
        inputs, ann = data.inputs.take(rows), data.annotations[rows]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gates = self._gates(inputs, ann, None)
        probabilities = self.predict_proba(inputs)
        assert isinstance(self.method_, Gated)
        enough = int((data.gold >= 0).sum()) >= FEWEST
        by_labels = "vote" if self.method_.by_vote else "labels and gold" if enough else "labels"
        decided_by = "gold" if self.method_.by_gold else by_labels
        self.diagnostics_ = diagnose(probabilities, gates, ann, decided_by=decided_by).as_json()
        if isinstance(self.method_.wrong, UniformWrong):
            annotator, label = (torch.from_numpy(part.astype(np.int64)) for part in (ann.annotator, ann.label))
            self.method_.wrong.count(annotator, label, torch.from_numpy(probabilities[ann.item]).float())

    def annotator_accuracy(
        self, X: Any, annotations: Any = None, *, items: ArrayLike | None = None
    ) -> NDArray[np.float32]:
        """How likely each annotator is right on each item: the gates, (N, R).

        With annotations, those of the labelled pairs alone, (labels,), in the order of the annotations. A warning says
        if the labels give reason not to trust them; `diagnostics_` says which.
        """
        check_is_fitted(self)
        if not self.diagnostics_["gates_can_be_trusted"]:
            warnings.warn("; ".join(self.diagnostics_["messages"]), stacklevel=2)
        return self._gates(X, annotations, items)

    def _gates(self, X: Any, annotations: Any, items: ArrayLike | None) -> NDArray[np.float32]:
        return self._of_pairs("annotator_accuracy", "accuracies", X, annotations, items)


@dataclass(kw_only=True, eq=False, repr=False)
class MajorityVoteClassifier(CrowdClassifier):
    """All annotators count the same.

    Parameters
    ----------
    vote : "soft" trains on the share of labels a class got, "hard" on the winner, ties broken from the seed
    loss_scale : "plain": the mean over items; "paper": that divided by K, as the paper trains its soft vote

    The other parameters are those of every classifier here: see `CrowdClassifier`.
    """

    method_name: ClassVar[str] = "majority-vote"
    paper_settings: ClassVar[dict[str, Any]] = {"vote": "soft", "loss_scale": "paper"}

    vote: Literal["soft", "hard"] = "soft"
    loss_scale: Literal["plain", "paper"] = "plain"

    def _build(self, problem: Problem) -> Method:
        one_of("vote", self.vote, ("soft", "hard"))
        one_of("loss_scale", self.loss_scale, ("plain", "paper"))
        return MajorityVote(problem, vote=self.vote, loss_scale=self.loss_scale)


@dataclass(kw_only=True, eq=False, repr=False)
class SingleAnnotatorClassifier(CrowdClassifier):
    """One annotator's labels and nobody else's.

    Parameters
    ----------
    annotator : the annotator's name; None where there is only one

    The other parameters are those of every classifier here: see `CrowdClassifier`.
    """

    method_name: ClassVar[str] = "single-annotator"

    annotator: Any = None

    @classmethod
    def variants(cls, annotators: Sequence[Any]) -> dict[str, dict[str, Any]]:
        """One an annotator."""
        return {f"{cls.method_name} {name}": {"annotator": name} for name in annotators}

    def _build(self, problem: Problem) -> Method:
        if self.annotator is None:
            if len(self.annotators_) > 1:
                raise ValueError(
                    "say which annotator with annotator= (--set annotator=NAME on the command line); "
                    f"there are {few(self.annotators_)}"
                )
            return SingleAnnotator(problem, annotator=0)
        position = int(find(tidy(np.asarray([self.annotator]), "annotator"), self.annotators_)[0])
        if position < 0:
            raise ValueError(f"annotator {self.annotator!r} is not one of the annotators ({few(self.annotators_)})")
        return SingleAnnotator(problem, annotator=position)

    def _judged_by(self, ann: Annotations) -> Annotations:
        return ann if self.annotator is None else ann.of(self.annotator)

    def _settled(self) -> dict[str, Any]:
        assert isinstance(self.method_, SingleAnnotator)
        open_now = self.annotator is None and len(self.annotators_) > 1
        return {"annotator": self.annotators_[self.method_.annotator]} if open_now else {}


@dataclass(kw_only=True, eq=False, repr=False)
class GlobalConfusionsClassifier(CrowdClassifier):
    """Base of the classifiers with one confusion matrix an annotator, the same on every item."""

    @property
    def confusion_matrices_(self) -> NDArray[np.float32]:
        """One matrix an annotator, (R, K, K), axes (annotator, true, said).

        Global, and true to noisy: row k is what the annotator says of items of class k, and sums to 1.
        """
        check_is_fitted(self)
        assert isinstance(self.method_, GlobalConfusions)
        matrices: NDArray[np.float32] = (
            self.method_.log_confusions(torch.arange(len(self.annotators_))).detach().exp().numpy()
        )
        return matrices


@dataclass(kw_only=True, eq=False, repr=False)
class TraceRegClassifier(GlobalConfusionsClassifier):
    """One global confusion matrix an annotator, learned with the network under a trace penalty (Tanno et al., 2019).

    Parameters
    ----------
    trace_weight : how strongly the traces of the matrices are pulled down; 0.01 in the paper
    start : how often annotators are taken to be right before anything is learned; None: e / (e + K - 1), as in the
        fusion paper's code, which is little where there are many classes

    The other parameters are those of every classifier here: see `CrowdClassifier`. An item's loss is the sum over
    its labels, so items with more labels count more.

    Attributes
    ----------
    confusion_matrices_ (R, K, K) : axes (annotator, true, said): the same on every item, true to noisy, P(said | true)

    `fused_labels` takes the network's prediction as the prior, and the labels as evidence by Bayes.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> truth = (X[:, 0] > 0).astype(int)
    >>> Y = np.stack([truth, truth, 1 - truth], axis=1)      # the third annotator is always wrong
    >>> clf = TraceRegClassifier(epochs=20, learning_rate=0.02).fit(X, Y)
    >>> clf.score(X, truth) > 0.9
    True
    >>> clf.confusion_matrices_[2].argmax(1)                 # what it says of each class
    array([1, 0])
    """

    method_name: ClassVar[str] = "trace-reg"
    paper_settings: ClassVar[dict[str, Any]] = {"trace_weight": 0.01, "start": None}

    trace_weight: float = 0.01
    start: float | None = 0.75

    def _build(self, problem: Problem) -> Method:
        at_least_0("trace_weight", self.trace_weight)
        if self.start is not None:
            probability("start", self.start)
            if self.start * problem.n_classes <= 1:
                raise ValueError(
                    f"start={self.start} is no more than chance with {problem.n_classes} classes: nothing would tell "
                    "the classes apart"
                )
        return TraceReg(problem, trace_weight=self.trace_weight, start=self.start)


@dataclass(kw_only=True, eq=False, repr=False)
class MBEMClassifier(GlobalConfusionsClassifier):
    """Model-bootstrapped EM: the network's predictions say how far each annotator is right (Khetan et al., 2018).

    Each round trains on the posterior of the class given an item's labels, which starts as the vote shares. Before
    every later round, the network's predictions are taken for the truth: from them come a class prior and a matrix
    an annotator, and from these, by Bayes, the new posterior.

    Parameters
    ----------
    rounds : how often to train; `epochs` is split evenly over them, so 40 epochs in 2 rounds are 20 and 20. The
        learning-rate schedule starts over in each round, the network and the optimiser's memory carry on
    chosen : what validation chooses among. "epoch": the epochs of the last round; "round": the ends of the rounds,
        as in the fusion paper's code

    The other parameters are those of every classifier here: see `CrowdClassifier`.

    Attributes
    ----------
    confusion_matrices_ (R, K, K) : axes (annotator, true, said): the same on every item, true to noisy, P(said | true);
        those that the round of the kept epoch was trained with (in the first round: counted from the vote)

    `history_` says the round as "phase". `fused_labels` is the posterior.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> truth = (X[:, 0] > 0).astype(int)
    >>> Y = np.stack([truth, truth, 1 - truth], axis=1)      # the third annotator is always wrong
    >>> clf = MBEMClassifier(epochs=20).fit(X, Y)
    >>> clf.score(X, truth) > 0.9
    True
    >>> clf.confusion_matrices_[2].argmax(1)                 # what it says of each class
    array([1, 0])
    >>> clf.history_[-1]["phase"]
    'round 2 of 2'
    """

    method_name: ClassVar[str] = "mbem"
    paper_settings: ClassVar[dict[str, Any]] = {"rounds": 2, "chosen": "round"}

    rounds: int = 2
    chosen: Literal["epoch", "round"] = "epoch"

    def _build(self, problem: Problem) -> Method:
        at_least_1("rounds", self.rounds)
        if self.rounds > self.epochs:
            raise ValueError(
                f"rounds={self.rounds} needs at least as many epochs, got epochs={self.epochs}: every round trains"
            )
        one_of("chosen", self.chosen, ("epoch", "round"))
        return MBEM(problem, rounds=int(self.rounds), chosen=self.chosen)


@dataclass(kw_only=True, eq=False, repr=False)
class WDNClassifier(CrowdClassifier):
    """Weighted doctor net: a network for each annotator, and weights to average them by (Guan et al., 2018).

    First, for `epochs`, one network an annotator on its own labels; all but their last layers is shared. Then, for
    `weight_epochs` and with the networks frozen, one weight an annotator, so that the average of all networks comes
    close to the vote. Predicts with the weighted average, in time and memory that grow with the number of annotators.

    Parameters
    ----------
    weights : "softmax": positive and summing to 1, as in Guan et al., from the plain average on; "released": free
        numbers from a normal start, as in the fusion paper's code, where the weighted sum of probabilities is taken
        for class logits. These want some thousand steps: a weight that is still negative turns its network round
    weight_epochs : how long the weights are trained, by an optimiser and a run of the schedule of their own;
        validation chooses among these epochs
    loss_scale : of the weights' loss. "plain": the mean over items; "paper": that divided by K

    The other parameters are those of every classifier here: see `CrowdClassifier`. An item's loss for the networks is
    the sum over its labels, so items with more labels count more.

    Attributes
    ----------
    weights_ (R,) : the weights in the average; 0 for annotators without labels. "released" ones can be negative

    `annotator_weights` are the same on every item: `weights_` without the negative ones, and the mean of the others for
    who has no labels, made to sum to 1. They say
    who makes up the vote, which the average is fitted to, not who is right: `annotator_reliability` does.
    `history_` says as "phase" whether networks or weights were trained.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> truth = (X[:, 0] > 0).astype(int)
    >>> Y = np.stack([truth, truth, 1 - truth], axis=1)      # the third annotator is always wrong
    >>> clf = WDNClassifier(epochs=20).fit(X, Y)
    >>> clf.score(X, truth) > 0.9
    True
    >>> clf.weights_.round(1)                                # each makes up a third of the vote
    array([0.3, 0.3, 0.3], dtype=float32)
    >>> clf.annotator_reliability(X, Y).argmin()
    np.int64(2)
    """

    method_name: ClassVar[str] = "wdn"
    paper_settings: ClassVar[dict[str, Any]] = {"weights": "released", "weight_epochs": 5, "loss_scale": "paper"}

    weights: Literal["released", "softmax"] = "softmax"
    weight_epochs: int = 5
    loss_scale: Literal["plain", "paper"] = "plain"

    def _build(self, problem: Problem) -> Method:
        one_of("weights", self.weights, ("released", "softmax"))
        one_of("loss_scale", self.loss_scale, ("plain", "paper"))
        at_least_1("weight_epochs", self.weight_epochs)
        return WDN(problem, weights=self.weights, weight_epochs=int(self.weight_epochs), loss_scale=self.loss_scale)

    @property
    def weights_(self) -> NDArray[np.float32]:
        """How much each annotator's network counts in the average, (R,)."""
        check_is_fitted(self)
        assert isinstance(self.method_, WDN)
        weights: NDArray[np.float32] = self.method_.average().detach().numpy()
        return weights


@dataclass(kw_only=True, eq=False, repr=False)
class TwoStageClassifier(GlobalConfusionsClassifier):
    """First aggregate the labels, then train on what came out: what most people do, and the baseline to beat.

    Parameters
    ----------
    aggregator : "dawid-skene", "one-coin", "glad", "mace", "wawa" or "majority-vote": see `crowdfuse.aggregation`
    target : "soft" trains on the aggregator's probabilities, "hard" on the most likely class

    The other parameters are those of every classifier here: see `CrowdClassifier`. Gold takes the place of the
    aggregate where there is any; of the aggregators, "dawid-skene" alone learns from it about annotators.

    Attributes
    ----------
    confusion_matrices_ (R, K, K) : axes (annotator, true, said): P(said | true), counted with the aggregate for the
        truth. `fused_labels` is the posterior of the class by these, the network has no part in it

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> truth = (X[:, 0] > 0).astype(int)
    >>> Y = np.stack([truth, truth, 1 - truth], axis=1)      # the third annotator is always wrong
    >>> clf = TwoStageClassifier(epochs=20).fit(X, Y)
    >>> clf.score(X, truth) > 0.9
    True
    >>> clf.confusion_matrices_[2].argmax(1)                 # what it says of each class
    array([1, 0])
    """

    method_name: ClassVar[str] = "two-stage"

    aggregator: str = "dawid-skene"
    target: Literal["soft", "hard"] = "soft"

    def _build(self, problem: Problem) -> Method:
        one_of("aggregator", self.aggregator, tuple(METHODS))
        one_of("target", self.target, ("soft", "hard"))
        return TwoStage(problem, aggregator=self.aggregator, target=self.target)


@dataclass(kw_only=True, eq=False, repr=False)
class TrueLabelClassifier(CrowdClassifier):
    """Trained on gold: the upper bound. `fit(X, gold)`, or `fit(X, annotations, gold=gold)`.

    Parameters are those of every classifier here: see `CrowdClassifier`.
    """

    method_name: ClassVar[str] = "true-label"
    trains_on_labels: ClassVar[bool] = False

    def _build(self, problem: Problem) -> Method:
        return TrueLabel(problem)

    def _gold(self, y: Any, gold: ArrayLike | None, ann: Annotations, n_rows: int) -> NDArray[np.int64]:
        if gold is not None:
            return super()._gold(y, gold, ann, n_rows)
        if y.ndim != 1:
            raise ValueError(
                "true-label trains on gold: fit(X, gold) with a 1-D array, or fit(X, annotations, gold=...) "
                "(--gold on the command line)"
            )
        codes = np.full(n_rows, -1, np.int64)
        codes[ann.item] = ann.label
        return codes
