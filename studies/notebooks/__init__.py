"""Pages of cells, to be opened in an editor or pasted into a notebook."""
