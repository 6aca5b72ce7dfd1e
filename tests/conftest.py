"""One thread per process, for which results are reproducible bit for bit; one browser per test module."""

import torch

from tests.browser import browser as browser

torch.set_num_threads(1)
