"""Negatives as pairs of texts: into other libraries' data sets, and out of them."""
