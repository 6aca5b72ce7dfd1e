"""How many labels a guesser must give to be found: power of the test `uninformative_annotator`.

    python benchmarks/guessers.py

Crowds of 5 or 10 annotators and 1,000 items, as in `benchmarks/diagnostics.py`, with a simulated classifier. The first
annotator draws all labels without looking, and gave 30 to 500 of them; the others labelled half of the items.
"""

from __future__ import annotations

import argparse

import numpy as np

from diagnostics import draw_crowd, find

N_ITEMS = 1_000


def is_found(seed: int, n_labels: int, K: int, R: int) -> bool:
    """Return whether the guesser of a crowd is found."""
    generator = np.random.default_rng([seed, n_labels, K, R])
    crowd = draw_crowd(generator, N_ITEMS, K, R)
    crowd.labels[generator.random(crowd.labels.shape) > 0.5] = -1
    crowd.labels[:, 0] = -1
    crowd.labels[generator.permutation(N_ITEMS)[:n_labels], 0] = generator.integers(0, K, n_labels)
    found = find(crowd, K, "75 % accurate")
    return any(x.kind == "uninformative_annotator" and x.message.startswith("Annotator 0 ") for x in found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--crowds", type=int, default=50, help="crowds per cell of the table")
    given = parser.parse_args()
    counts = (60, 125, 250, 500)
    print(f"| classes | annotators | {' | '.join(f'{count} labels' for count in counts)} |")
    print("|---|---|" + "---|" * len(counts))
    for K in (2, 3, 10):
        for R in (5, 10):
            power = [np.mean([is_found(seed, count, K, R) for seed in range(given.crowds)]) for count in counts]
            print(f"| {K} | {R} | {' | '.join(f'{100 * share:.0f} %' for share in power)} |", flush=True)


if __name__ == "__main__":
    main()
