"""What a study costs before it is started: GPU time, tokens, and bytes of every store."""
