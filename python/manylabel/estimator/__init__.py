"""Code that all estimators share: base classes, validation, scaling, progress bars and the registry."""
