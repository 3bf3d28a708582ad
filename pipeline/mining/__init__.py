"""Mining: windows to rows of negatives, as a Beam graph; and rows from texts that exist already."""
