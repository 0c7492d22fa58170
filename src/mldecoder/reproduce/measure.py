"""What is measured of a trained model besides its figures: multiply-adds, speed, other ways to score."""

import json
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING

from mldecoder.reproduce.plan import Job

if TYPE_CHECKING:
    from mldecoder.model import Classifier

__all__ = ["measure"]


def measure(job: Job, run: Path) -> dict[str, float]:
    """Multiply-adds and what the job asks for, of the weights that the figures are of: averaged ones if there are."""
    from mldecoder.model import load

    model = load(next((run / name for name in ("ema", "last") if (run / name).is_dir()), run))
    found = {"GMAC": _giga_multiply_adds(model)}
    if "infer img/s" in job.measures:
        found["infer img/s"] = _inference_speed(model)
    if "protocols" in job.measures:
        found |= _protocols(model, run)
    return found


def _giga_multiply_adds(model: "Classifier") -> float:
    import torch

    from mldecoder.bench.count import multiply_adds

    size = model.config.preprocessing.size
    return multiply_adds(model.eval(), torch.zeros(1, 3, *size))[0] / 1e9


def _inference_speed(model: "Classifier", repeats: int = 5) -> float:
    """Pictures a second of a forward pass, the median of a few batches; a GPU takes larger ones, in bfloat16."""
    import torch

    cuda = torch.cuda.is_available()
    device = torch.device("cuda" if cuda else "cpu")
    batch, dtype = (256, torch.bfloat16) if cuda else (4, torch.float32)
    ready = model.eval().to(device, dtype).to(memory_format=torch.channels_last)
    pictures = torch.zeros(batch, 3, *model.config.preprocessing.size, device=device, dtype=dtype)
    pictures = pictures.to(memory_format=torch.channels_last)
    times = []
    with torch.inference_mode():
        for _ in range(repeats + 2):  # the first two warm up
            begun = time.perf_counter()
            ready(pictures)
            if cuda:
                torch.cuda.synchronize()
            times.append(time.perf_counter() - begun)
    return batch / statistics.median(times[2:])


def _protocols(model: "Classifier", run: Path) -> dict[str, float]:
    """The figures of every plausible protocol, in ``protocols.json`` of the run and as metrics."""
    from mldecoder.reproduce.open_images import protocols
    from mldecoder.reproduce.scores import validation_scores

    logits, targets, verified = validation_scores(model, run)
    found = protocols(logits, targets, verified=verified)
    lines = [vars(one) for one in found]
    (run / "protocols.json").write_text(json.dumps(lines, indent=1) + "\n", encoding="utf-8")
    return {f"mAP ({one.name})": one.value for one in found if one.classes}
