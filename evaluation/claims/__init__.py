"""The paper's qualitative findings: each a claim, and the measurements of a study that decide it."""
