import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from mldecoder.calibration.thresholds import Wish, fit_thresholds, global_threshold
from mldecoder.errors import ConfigError, InputError

WISHES = [Wish(), Wish("precision", 0.75), Wish("recall", 0.6)]
SCORES = st.sampled_from([0.0, 0.1, 0.1, 0.25, 0.3, 0.5, 0.7, 0.9, 1.0])  # many are equal


def rates(scores: list[float], truths: list[int], threshold: float) -> tuple[float, float]:
    """Precision and recall of a threshold, counted one by one; unknown entries take no part."""
    said = [truth for score, truth in zip(scores, truths, strict=True) if score >= threshold and truth >= 0]
    hits, positives = said.count(1), truths.count(1)
    return (hits / len(said) if said else 0.0), (hits / positives if positives else 0.0)


def brute(scores: list[float], truths: list[int], wish: Wish) -> float:
    """The worth of the best of all thresholds."""
    found = [rates(scores, truths, at) for at, truth in zip(scores, truths, strict=True) if truth >= 0]
    return max(worth(precision, recall, wish) for precision, recall in found)


def worth(precision: float, recall: float, wish: Wish) -> float:
    if wish.kind == "f1":
        return 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    wished, other = (precision, recall) if wish.kind == "precision" else (recall, precision)
    return 1 + other if wished >= wish.value - 1e-12 else wished - 1


@pytest.mark.parametrize("wish", WISHES, ids=str)
@given(data=st.data())
def test_thresholds_are_as_good_as_the_best_of_all(wish: Wish, data: st.DataObject) -> None:
    n, k = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 4))
    scores = [[data.draw(SCORES) for _ in range(n)] for _ in range(k)]
    truths = [[data.draw(st.sampled_from([1, 0, -1])) for _ in range(n)] for _ in range(k)]
    fit = fit_thresholds(torch.tensor(scores, dtype=torch.float64).T, torch.tensor(truths).T, wish)
    for label in range(k):
        if 1 not in truths[label]:
            assert fit.precision[label].isnan()
            assert not fit.reached[label]
            assert fit.thresholds[label].isnan() == (set(truths[label]) == {-1})
            continue
        made = rates(scores[label], truths[label], float(fit.thresholds[label]))
        assert worth(*made, wish) == pytest.approx(brute(scores[label], truths[label], wish))
        assert made == pytest.approx((float(fit.precision[label]), float(fit.recall[label])))
        assert bool(fit.reached[label]) == (worth(*made, wish) >= 0)
        assert int(fit.positives[label]) == truths[label].count(1)


@given(data=st.data())
def test_one_threshold_for_all_is_the_best_over_all_known_entries(data: st.DataObject) -> None:
    n, k = data.draw(st.integers(1, 8)), data.draw(st.integers(1, 4))
    scores = [data.draw(SCORES) for _ in range(n * k)]
    truths = [1, *(data.draw(st.sampled_from([1, 0, -1])) for _ in range(n * k - 1))]
    fit = global_threshold(torch.tensor(scores).double().view(n, k), torch.tensor(truths).view(n, k))
    made = rates(scores, truths, float(fit.thresholds))
    assert worth(*made, Wish()) == pytest.approx(brute(scores, truths, Wish()))


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64).unsqueeze(1)


def test_a_threshold_lies_half_way_to_the_next_lower_score() -> None:
    fit = fit_thresholds(column(0.9, 0.7, 0.3, 0.1), torch.tensor([[1], [1], [0], [0]]))
    assert float(fit.thresholds) == pytest.approx(0.5)
    assert float(fit_thresholds(column(0.9, 0.8), torch.tensor([[1], [1]])).thresholds) == pytest.approx(0.4)


def test_a_precision_out_of_reach_gives_the_highest_there_is() -> None:
    fit = fit_thresholds(column(0.9, 0.8, 0.7), torch.tensor([[0], [1], [1]]), Wish("precision", 0.95))
    assert not fit.reached
    assert float(fit.precision) == pytest.approx(2 / 3)


def test_labels_in_pieces_give_the_same_as_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, targets = torch.rand(50, 13).double(), torch.randint(-1, 2, (50, 13))
    whole = fit_thresholds(scores, targets)
    monkeypatch.setattr("mldecoder.calibration.thresholds._CHUNK", 150)
    pieces = fit_thresholds(scores, targets)
    assert torch.equal(whole.thresholds, pieces.thresholds)


@pytest.mark.parametrize(
    "text", ["f2", "precision", "precision=", "precision=0", "recall=1.5", "recall=high", "f1=0.5"]
)
def test_a_wish_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--wish must be f1, precision=0.9 or recall=0.8"):
        Wish.read(text)


def test_wishes_are_read() -> None:
    assert [Wish.read(text) for text in ("f1", "precision=0.9", "recall=1")] == [
        Wish(),
        Wish("precision", 0.9),
        Wish("recall", 1.0),
    ]


def test_no_pictures_are_refused() -> None:
    with pytest.raises(InputError, match="at least one picture"):
        fit_thresholds(torch.empty(0, 3), torch.empty(0, 3))
