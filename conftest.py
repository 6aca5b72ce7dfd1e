"""One thread per process, in tests and in the examples of docstrings: results are then reproducible bit for bit."""

import torch

torch.set_num_threads(1)
