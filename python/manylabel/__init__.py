"""Multi-label and extreme multi-label classification with scikit-learn's API and a Rust core."""
