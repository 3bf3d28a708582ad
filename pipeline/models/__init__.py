"""Language models: their folders, and the two architectures that are not in transformers."""
