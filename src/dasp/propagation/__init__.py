"""Random coalitions, propagated through a model's graph as Gaussians.

Six words belong to one idea, the noise that units share. A Gaussian's **factors** are **columns** of it; their number
is the **rank** ("full": one for each player). With fewer columns than players a **sketch** adds players into columns
with random **signs**, so that every covariance is right on average. **Packing** is something else with the same
arithmetic: it puts players that never meet in a unit into one column, so that the squares of groups need fewer of them.
"""

from dasp.propagation.gaussian import Gaussian
from dasp.propagation.network import ProbabilisticNetwork, propagate, propagate_coalitions
from dasp.propagation.rules import rule

__all__ = ["Gaussian", "ProbabilisticNetwork", "propagate", "propagate_coalitions", "rule"]
