"""Results: figures, the paper's own numbers, and what a killed job keeps."""
