"""The joint model P(x) ~ P_phi(x) exp(-E(x)): scorers, bounds on its partition function, samples."""
