"""The convex problem: constraints, cone programs, proofs, ties, discrete rates."""
