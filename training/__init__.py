"""Language models and energy models, and the one trainer that both use."""
