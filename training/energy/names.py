"""Names of energy models' kinds and of their objectives: what flags and tables say without a network at hand."""

# Explained in training/energy/model.py.
LINEAR, BILSTM, UNIT, BIT, CLASSIFIER = KINDS = ("linear", "bilstm", "unit", "bit", "classifier")
BALANCED, NCE, RANKING = OBJECTIVES = ("balanced", "nce", "ranking")  # training/energy/objectives.py
