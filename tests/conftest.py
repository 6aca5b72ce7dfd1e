"""One thread a process: what the project's speed and its bit-for-bit promises are stated for."""

import torch

torch.set_num_threads(1)
