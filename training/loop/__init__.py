"""The loop that every training runs: recipe, ranks, steps, checkpoints, log."""
