"""The report: one page from all results, a section a module."""
