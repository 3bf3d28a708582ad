"""Measurements by hand, for notebooks: stores and models come in, tables that show themselves come out."""
