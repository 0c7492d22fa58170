"""Average precision on a device: sort the scores of many classes at once, look the positives up among them.

Shapes: n images, k classes, c classes of one chunk, p positives of the fullest class in the chunk.

The host asks the device twice in all, for the numbers of positives before the first chunk and for NaN after the last
one, so that the device never waits for it between chunks.
"""

import torch
from torch import Tensor

from mldecoder.errors import InputError

__all__ = ["sort_columns"]

# Entries sorted at once when no chunk is given. A sort with its indices and workspace takes about 40 bytes an entry.
ENTRIES = 2**24


def sort_columns(scores: Tensor, targets: Tensor, chunk: int | None) -> Tensor:
    """Average precision of each column: ``(n, k), (n, k) -> (k,)``, a chunk of columns at a time."""
    n, k = scores.shape
    chunk = chunk or max(1, ENTRIES // max(n, 1))
    parts = [slice(start, min(start + chunk, k)) for start in range(0, k, chunk)]
    if not parts or not n:
        return torch.full((k,), torch.nan, dtype=torch.float64, device=scores.device)
    counts = torch.cat([(targets[:, part] > 0).sum(dim=0) for part in parts])  # (k,)
    on_host = counts.cpu()
    result = torch.empty(k, dtype=torch.float64, device=scores.device)
    is_bad = torch.empty(k, dtype=torch.bool, device=scores.device)
    for part in parts:
        rows, here = _sortable(scores[:, part]), on_host[part]
        is_bad[part] = rows.isnan().any(dim=1)
        sizes = int(here.sum()), int(here.max())
        result[part] = _of_rows(rows, targets[:, part].T, counts[part].unsqueeze(1), *sizes)
    if bad := is_bad.nonzero().flatten().tolist():
        raise InputError(f"scores must be numbers, got NaN in class {bad[0]}. Did training diverge?")
    return result


def _sortable(columns: Tensor) -> Tensor:
    """Turn (n, c) scores into contiguous (c, n) rows of float32 where that is exact, else of float64."""
    exact = columns.dtype.is_floating_point and columns.element_size() <= 4
    return columns.T.to(torch.float32 if exact else torch.float64).contiguous()


def _of_rows(rows: Tensor, targets: Tensor, count: Tensor, total: int, most: int) -> Tensor:
    """Average precision of each row: ``(c, n), (c, n), (c, 1) -> (c,)``.

    ``count`` holds the positives of each row, ``total`` all of them, ``most`` those of the fullest row: given on the
    host, they spare the device the stop that finding them out would cost.
    """
    row, column = torch.nonzero_static(targets > 0, size=total).unbind(dim=1)
    unknown = targets < 0
    annotated = rows.shape[1] - unknown.sum(dim=1, keepdim=True)  # (c, 1)

    # The positives of each row, side by side from the left, +inf behind them.
    place = torch.arange(total, device=row.device) - (count.cumsum(0) - count).flatten()[row]
    found = rows.new_full((len(rows), most), torch.inf)  # (c, p)
    found[row, place] = rows[row, column]
    found = found.sort(dim=1).values

    # Unknown entries go to +inf too: they are never below a score, and only what is below is counted.
    ordered = rows.masked_fill(unknown, torch.inf).sort(dim=1).values
    hits = count - torch.searchsorted(found, found)  # (c, p) positives scored as high or higher
    seen = annotated - torch.searchsorted(ordered, found)  # (c, p) images scored as high or higher
    behind = torch.arange(most, device=found.device) >= count  # (c, p) the fill
    precision = (hits.double() / seen).masked_fill(behind, 0.0)
    return precision.sum(dim=1) / count.flatten()  # 0 / 0 is the NaN of a class without positives
