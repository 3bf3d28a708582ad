"""The joint model as a model of lm-evaluation-harness: likelihoods between bounds, answers by Algorithm 1."""
