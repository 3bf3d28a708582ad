"""The paper's analyses, one job each: a table, a figure and a sentence on what they show."""
