"""Detection: real text or generated, with accuracies, grids and baselines."""
