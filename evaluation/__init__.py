"""Scoring, bounds, grids, sampling from the joint model, analyses and the report."""

from typing import TYPE_CHECKING

from pipeline.runtime.exports import exports

if TYPE_CHECKING:
    from evaluation.detection.detector import Detector
    from evaluation.joint.bounds import log_partition_bounds
    from evaluation.joint.model import JointModel
    from evaluation.steps.joint import bounds_of, energies_of

__all__ = ["Detector", "JointModel", "bounds_of", "energies_of", "log_partition_bounds"]
__getattr__ = exports(
    __name__,
    {
        "Detector": "evaluation.detection.detector",
        "JointModel": "evaluation.joint.model",
        "bounds_of": "evaluation.steps.joint",
        "energies_of": "evaluation.steps.joint",
        "log_partition_bounds": "evaluation.joint.bounds",
    },
)
