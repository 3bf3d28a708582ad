"""Data: rows of stores in training order, as batches of tensors."""
