"""A study's file: its design, sources, votes, and what they say."""
