"""One thread a process: what the project's speed and its bit-for-bit promises are stated for. One browser a module."""

import torch

from tests.browser import browser as browser

torch.set_num_threads(1)
