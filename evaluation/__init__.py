"""Scoring, bounds, grids, sampling from the joint model, analyses and the report."""
