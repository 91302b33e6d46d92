"""`dasp explain`: models and data from files are explained in chunks that survive being killed, here or on Ray.

`dasp.jobs.run` is the command in Python, and `dasp.jobs.JobMetrics` what it returns.
"""

from dasp.jobs.job import JobMetrics, run

__all__ = ["JobMetrics", "run"]
