"""Stages by hand, for notebooks: objects come in, and what a stage makes comes out opened."""
