"""Text: documents of input files, built-in corpora, the survey of what is in them, tokenizers, blocks."""
