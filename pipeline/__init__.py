"""Text to windows to negatives: corpora, tokenising, stores, generators, mining."""
