"""The classifiers that consensus training cross-fits, and the choice among them by the likelihood of the labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crowdfuse.aggregation.posterior import (
    MAX_CONFUSION_BYTES,
    MAX_SHARPNESS,
    MIN_CLASSIFIER_GAIN,
    PosteriorFit,
    fit_posterior,
    gates_of_labels,
    log_with_uniform,
)
from crowdfuse.aggregation.votes import Votes, normalize_log_joint
from crowdfuse.estimators.annot_mix import AnnotMixClassifier
from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.estimators.cross_fitting import OutOfFold
from crowdfuse.estimators.gated import GatedClassifier
from crowdfuse.estimators.majority_vote import MajorityVoteClassifier
from crowdfuse.estimators.max_mig import MaxMIGClassifier
from crowdfuse.methods.data import TrainingData


class Candidate(NamedTuple):
    """A classifier that consensus training cross-fits.

    Attributes
    ----------
    name : str
        Name of its trainings and of the files of its folds.
    classifier : CrowdClassifier
        The classifier, not fitted.
    cost : float
        Expected time of a training, relative to gated.
    """

    name: str
    classifier: CrowdClassifier
    cost: float


def candidate_classifiers(
    settings: Mapping[str, Any], heads: Mapping[str, Any], n_annotators: int, n_classes: int, *, fast_backbone: bool
) -> list[Candidate]:
    """Return the classifiers to cross-fit.

    The first is gated with dropout: its gates are used with the predictions of every candidate. Annot-mix and Max-MIG
    have one matrix per annotator, and annot-mix evaluates the backbone once per label. So they are left out if these
    matrices would be large, or the backbone is slow. Then gated without dropout is left out, too.

    Parameters
    ----------
    settings : mapping
        Settings of the candidates, as for `MajorityVoteClassifier`.
    heads : mapping
        Further settings of gated: `annotator_heads` and `embedding`.
    n_annotators : int
        Number of annotators.
    n_classes : int
        Number of classes.
    fast_backbone : bool
        Whether a training takes seconds, as for an MLP.

    Returns
    -------
    candidates : list of Candidate
    """
    without_dropout = {**settings, "dropout": 0.0}
    gated = Candidate("gated", GatedClassifier(**settings, **heads), 1.0)
    vote = Candidate("majority-vote", MajorityVoteClassifier(**settings), 0.4 if fast_backbone else 0.2)
    n_cells = max(n_annotators, settings["batch_size"]) * n_classes**2
    if not fast_backbone or n_cells * 8 > MAX_CONFUSION_BYTES:
        return [gated, vote]
    candidates = [gated]
    if settings["dropout"]:
        candidates.append(Candidate("gated-without-dropout", GatedClassifier(**without_dropout, **heads), 1.0))
    candidates += [vote, Candidate("annot-mix", AnnotMixClassifier(**without_dropout), 0.6)]
    if n_annotators > 1 and settings["batch_size"] > 1:
        candidates.append(Candidate("max-mig", MaxMIGClassifier(**without_dropout), 0.4))
    return candidates


class CombinedPredictions(NamedTuple):
    """The predictions that the consensus uses, and the consensus.

    Attributes
    ----------
    predictions : OutOfFold
        The mean of the predictions of some candidates, with the gates.
    chosen : tuple of int
        Which candidates, in the order in which they were added.
    fit : PosteriorFit
        The posterior of the labels given these predictions.
    """

    predictions: OutOfFold
    chosen: tuple[int, ...]
    fit: PosteriorFit


def combine_candidates(found: Sequence[OutOfFold], data: TrainingData) -> CombinedPredictions:
    """Return the mean of predictions under which the labels are most likely.

    Starts with the candidate under whose predictions the labels are most likely. Then adds to the geometric mean the
    candidate that raises the log-likelihood of the labels most, as long as one raises it by at least 3. All fits use
    the gates of the first candidate.

    Parameters
    ----------
    found : sequence of OutOfFold
        Out-of-fold predictions of each candidate.
    data : TrainingData
        The labels and gold.

    Returns
    -------
    combined : CombinedPredictions
    """
    votes, right = Votes(data.annotations), found[0].right_probability
    certain = data.gold[votes.labelled]
    gate = None if right is None else gates_of_labels(right, data.annotations)
    log_p = [log_with_uniform(predictions.class_probabilities) for predictions in found]

    def mean_of(chosen: tuple[int, ...]) -> NDArray[np.float64]:
        if len(chosen) == 1:
            return found[chosen[0]].class_probabilities
        return normalize_log_joint(np.mean([log_p[number] for number in chosen], axis=0))[0]

    def most_likely(combinations: Iterable[tuple[int, ...]]) -> tuple[float, tuple[int, ...]]:
        best: tuple[float, tuple[int, ...]] = (-np.inf, (0,))
        for chosen in combinations:
            labelled = log_with_uniform(mean_of(chosen)[votes.labelled])
            likelihood = PosteriorFit(votes, labelled, certain, MAX_SHARPNESS, gate).log_likelihood
            best = max(best, (likelihood, chosen), key=lambda one: one[0])
        return best

    informative = [number for number, values in enumerate(log_p) if np.ptp(values, axis=1).max(initial=0) > 1e-9]
    likelihood, chosen = most_likely((number,) for number in informative)
    while len(chosen) < len(informative):
        more = most_likely((*chosen, number) for number in informative if number not in chosen)
        if more[0] < likelihood + MIN_CLASSIFIER_GAIN:
            break
        likelihood, chosen = more
    probabilities = mean_of(chosen)
    used = sorted({0, *chosen})  # the gates are those of the first candidate
    sentences = tuple(dict.fromkeys(text for number in used for text in found[number].limitations))
    fit = fit_posterior(votes, log_with_uniform(probabilities[votes.labelled]), certain, MAX_SHARPNESS, gate)
    return CombinedPredictions(OutOfFold(probabilities, right, found[0].n_folds, sentences), chosen, fit)
