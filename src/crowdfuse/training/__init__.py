"""The only training loop: batches, recipes, optimizers, checkpoints, several processes, prediction, progress."""
