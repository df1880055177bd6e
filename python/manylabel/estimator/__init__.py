"""What every estimator is: base classes, validation, scaling, progress and the registry."""
