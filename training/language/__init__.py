"""Language models to train: presets and the objective."""
