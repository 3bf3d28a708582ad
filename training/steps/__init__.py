"""Trainings by hand, for notebooks: stores come in, and the trained model's folder comes out."""
