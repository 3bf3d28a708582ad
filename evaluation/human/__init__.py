"""The human A/B study: pairs of completions, a site on which raters choose, and what their votes say."""
