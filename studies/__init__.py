"""Studies: files that name stores, models and measurements, and what runs them from text to report."""
