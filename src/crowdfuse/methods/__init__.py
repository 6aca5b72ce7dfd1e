"""One file a method: an `nn.Module` with `loss(batch)` and `logits(x)`, built on `crowdfuse.methods.base`."""
