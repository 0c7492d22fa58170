"""Records of runs that were never made."""

from mldecoder.reproduce.plan import Job
from mldecoder.reproduce.results import Record

__all__ = ["made_up_record"]


def made_up_record(job: Job, *, device: str = "a device", **metrics: float) -> Record:
    """The record of a job with figures that are nobody's."""
    facts = (job.table, job.row, job.seed, job.budget, job.data_name, job.recipe, job.overrides, None)
    return Record(job.key, *facts, metrics, 60.0, "0", device)
