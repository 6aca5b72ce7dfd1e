"""A page on which people settle what annotators dispute: decisions on disk, gold out of them, the model fitted anew."""
