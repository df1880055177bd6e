//! Synthetic data for the benches.
