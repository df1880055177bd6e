"""Measures of rankings and of probabilities, for dense and sparse predictions."""

from manylabel.metrics.calibration import (
    brier_at_k,
    calibration_error,
    log_loss_at_k,
    plot_reliability,
    reliability_curve,
)
from manylabel.metrics.ranking import (
    ndcg_at_k,
    precision_at_k,
    propensities,
    psndcg_at_k,
    psp_at_k,
    recall_at_k,
)

__all__ = [
    "brier_at_k",
    "calibration_error",
    "log_loss_at_k",
    "ndcg_at_k",
    "plot_reliability",
    "precision_at_k",
    "propensities",
    "psndcg_at_k",
    "psp_at_k",
    "recall_at_k",
    "reliability_curve",
]
