"""Names of energy models' kinds and of their objectives: what flags and tables say without a network at hand."""

LINEAR, BILSTM, UNIT, BIT = KINDS = ("linear", "bilstm", "unit", "bit")  # training/energy/model.py
BALANCED, NCE, RANKING = OBJECTIVES = ("balanced", "nce", "ranking")  # training/energy/objectives.py
