"""Shared parts of the estimators: base classes, validation, scaling, progress and the registry."""
