"""The zero-shot head beside loops written from the paper's pseudo-code."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from mldecoder.errors import ConfigError, InputError
from mldecoder.heads import ZeroShotMLDecoder
from mldecoder.heads.zero_shot_labels import neighbour_thresholds, vector_from_pictures
from tests.heads.naive import decode_one

ROWS = [("text", "learnable"), ("text", "shared"), ("learnable", "text"), ("text", "text")]
"""The paper's ablation of group decoding: query type and head type."""


def build(**options: object) -> ZeroShotMLDecoder:
    arguments = {"in_features": 5, "text_width": 7, "width": 16, "ff_width": 12, "heads": 2} | options
    head = ZeroShotMLDecoder(**arguments)  # type: ignore[arg-type]
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=0.5)  # no bias stays zero
    return head.eval().double()


def loop(head: ZeroShotMLDecoder, tokens: Tensor, words: Tensor) -> Tensor:
    """Appendices *ZSL Group Decoder* and *Group Fully-connected ZSL Pseudo-Code*, label by label."""
    g, width = head.group_size, head.decoder.embed.out_features
    groups = (len(words) + g - 1) // g
    logits = torch.zeros(len(tokens), len(words), dtype=tokens.dtype)
    for k in range(groups):
        members = range(k * g, min((k + 1) * g, len(words)))
        if head.query == "text":
            query = torch.zeros(width, dtype=tokens.dtype)
            for place, i in enumerate(members):
                part = head.query_projection.weight @ words[i]
                if head.query_projection.bias is not None:
                    part = part + head.query_projection.bias
                if head.query_relu:
                    part = part.clamp(min=0)
                query[place * (width // g) : (place + 1) * (width // g)] = part
        else:
            query = head.queries[k]
        for b, picture in enumerate(tokens):
            answer = decode_one(head, picture, query)
            for place, i in enumerate(members):
                weight, bias = head.classify.weight, head.classify.bias
                if head.readout == "text":
                    logits[b, i] = (weight @ words[i]) @ answer + bias  # type: ignore[operator]
                elif head.readout == "shared":
                    logits[b, i] = weight[place] @ answer + bias[place]  # type: ignore[index]
                else:
                    logits[b, i] = weight[k, :, place] @ answer + bias[k, place]  # type: ignore[index]
    return logits


@given(
    row=st.sampled_from(ROWS),
    group_size=st.integers(1, 5),
    labels=st.integers(1, 11),
    relu=st.sampled_from([None, True, False]),
)
def test_every_row_of_the_ablation_equals_the_loop(
    row: tuple[str, str], group_size: int, labels: int, relu: bool | None
) -> None:
    query, readout = row
    head = build(group_size=group_size, query=query, readout=readout, num_groups=11, query_relu=relu)
    tokens, words = torch.randn(2, 3, 5).double(), torch.randn(labels, 7).double()
    torch.testing.assert_close(head(tokens, words), loop(head, tokens, words), rtol=0, atol=1e-9)


@given(data=st.data(), labels=st.integers(2, 9))
def test_full_decoding_scores_a_label_the_same_in_any_order_and_company(data: st.DataObject, labels: int) -> None:
    readout = data.draw(st.sampled_from(["shared", "text"]))
    head = build(readout=readout)
    x, words = torch.randn(2, 5, 2, 3).double(), torch.randn(labels, 7).double()
    alone = torch.cat([head(x, word.unsqueeze(0)) for word in words], dim=1)
    order = data.draw(st.permutations(range(labels)))
    some = order[: data.draw(st.integers(1, labels))]
    torch.testing.assert_close(head(x, words[some]), alone[:, some], rtol=0, atol=1e-12)


@given(queries=st.integers(1, 4), labels=st.integers(1, 9), chunk=st.integers(1, 10))
@torch.no_grad()
def test_common_queries_are_read_by_every_label_alone(queries: int, labels: int, chunk: int) -> None:
    torch.manual_seed(labels)
    head = build(query="common", readout="text", num_groups=queries)
    x, words = torch.randn(2, 6, 5).double(), torch.randn(labels, 7).double()
    slow = torch.zeros(2, labels, dtype=torch.float64)
    for b in range(2):
        answers = [decode_one(head, x[b], query) for query in head.queries]
        for i in range(labels):
            products = [float((head.classify.weight @ words[i]) @ answer) for answer in answers]  # type: ignore[operator]
            slow[b, i] = math.log(sum(map(math.exp, products)) / queries) + float(head.classify.bias)  # type: ignore[arg-type]
    torch.testing.assert_close(head(x, words), slow)
    order = torch.randperm(labels)
    torch.testing.assert_close(head(x, words[order], chunk=chunk), head(x, words)[:, order])
    _, maps = head(x, words, return_attention=True)
    torch.testing.assert_close(maps.sum(-1), torch.ones(2, 2, labels).double())  # (b, h, n, t)


def test_common_queries_have_no_groups_and_read_by_words() -> None:
    for options in ({"readout": "shared"}, {"readout": "text", "group_size": 2}):
        with pytest.raises(ConfigError, match="query=common needs readout=text and group_size=1"):
            build(query="common", num_groups=3, **options)


def test_in_groups_a_label_depends_on_its_company() -> None:
    head = build(group_size=4, readout="text")
    x, words = torch.randn(2, 5, 2, 3).double(), torch.randn(8, 7).double()
    assert not torch.allclose(head(x, words)[:, :1], head(x, words[[0, 5, 6, 7]])[:, :1])
    torch.testing.assert_close(head(x, words)[:, :4], head(x, words[:4]))  # groups do not see each other


@pytest.mark.parametrize(("query", "readout"), ROWS)
@given(group_size=st.integers(1, 4), labels=st.integers(1, 20), chunk=st.integers(1, 25))
def test_chunks_change_nothing(query: str, readout: str, group_size: int, labels: int, chunk: int) -> None:
    head = build(group_size=group_size, query=query, readout=readout, num_groups=20)
    x, words = torch.randn(2, 5, 2, 3).double(), torch.randn(labels, 7).double()
    whole, weights = head(x, words, return_attention="mean")
    part, part_weights = head(x, words, return_attention="mean", chunk=chunk)
    torch.testing.assert_close(part, whole, rtol=0, atol=1e-12)
    torch.testing.assert_close(part_weights, weights, rtol=0, atol=1e-12)


class Largest(TorchDispatchMode):
    """Remembers the largest tensor that any operation makes."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN204
        out = func(*args, **(kwargs or {}))
        for one in out if isinstance(out, tuple) else (out,):
            if isinstance(one, Tensor) and not one._is_view():
                self.numbers = max(self.numbers, one.numel())
        return out


def test_a_hundred_thousand_labels_are_scored_within_a_fixed_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mldecoder.heads.zero_shot.ENTRIES", 100_000)
    head = build(ff_width=32).float()
    x, words = torch.randn(2, 5, 2, 2), torch.randn(100_000, 7)
    with torch.no_grad(), Largest() as largest:
        logits = head(x, words)
    assert logits.shape == (2, 100_000)
    assert largest.numbers == logits.numel()  # nothing else is as large
    with torch.no_grad():
        torch.testing.assert_close(logits[:, 70_000:70_010], head(x, words[70_000:70_010]))


def test_training_is_never_cut_into_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mldecoder.heads.zero_shot.ENTRIES", 1)
    head = build()
    calls: list[int] = []
    head.decoder.register_forward_hook(lambda *_: calls.append(1))
    head(torch.randn(2, 3, 5).double(), torch.randn(6, 7).double())
    assert len(calls) == 1
    with torch.no_grad():
        head(torch.randn(2, 3, 5).double(), torch.randn(6, 7).double())
    assert len(calls) == 1 + 6


def test_empty_places_and_numbers_left_over_are_zero() -> None:
    head = build(group_size=3, readout="text")  # 16 // 3 = 5 numbers a label, one left over
    queries = head._queries(torch.randn(4, 7).double(), 0)
    assert queries.shape == (2, 16)
    assert (queries[:, 15:] == 0).all()
    assert (queries[1, 5:] == 0).all()
    assert (queries[1, :5] != 0).all()


def test_the_answer_is_remembered_only_while_words_and_weights_stay_the_same() -> None:
    head = build()
    x, words = torch.randn(2, 3, 5).double(), torch.randn(4, 7).double()
    with torch.no_grad():
        first = head(x, words)
        torch.testing.assert_close(head(x, words), first)
        words += 1
        assert not torch.allclose(head(x, words), first)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"group_size": 0}, "group_size must be between 1 and width=16, got 0"),
        ({"group_size": 17}, "got 17"),
        ({"query": "learnable"}, "num_groups must be at least 1"),
        ({"readout": "learnable"}, "num_groups must be at least 1"),
        ({"query": "words"}, "query must be text, learnable or common, got 'words'"),
        ({"readout": "words"}, "readout must be shared, text or learnable, got 'words'"),
        ({"text_width": 0}, "text_width must be at least 1, got 0"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build(**options)


def test_vectors_that_do_not_fit_are_refused() -> None:
    head = build(query="learnable", readout="text", group_size=2, num_groups=2)
    x = torch.randn(1, 3, 5).double()
    with pytest.raises(InputError, match=r"text_vectors must be \(labels, 7\).*got \(3, 8\)"):
        head(x, torch.randn(3, 8).double())
    with pytest.raises(InputError, match="at least one label"):
        head(x, torch.randn(0, 7).double())
    with pytest.raises(InputError, match=r"5 labels fill 3 groups, but .* num_groups=2"):
        head(x, torch.randn(5, 7).double())
    with pytest.raises(ConfigError, match="chunk must be at least 1 label, got 0"):
        head(x, torch.randn(3, 7).double(), chunk=0)


@given(new=st.integers(1, 4), known=st.integers(1, 9), neighbours=st.integers(1, 6))
def test_a_threshold_comes_from_the_nearest_words(new: int, known: int, neighbours: int) -> None:
    vectors, others = torch.randn(new, 6), torch.randn(known, 6)
    thresholds = torch.rand(known)
    found = neighbour_thresholds(vectors, others, thresholds, neighbours=neighbours)
    for vector, threshold in zip(vectors, found, strict=True):
        cosines = [float(torch.cosine_similarity(vector, other, dim=0)) for other in others]
        nearest = sorted(range(known), key=lambda i: -cosines[i])[:neighbours]
        weights = [max(0.0, cosines[i]) for i in nearest]
        weights = weights if sum(weights) else [1.0] * len(nearest)
        slow = sum(w * float(thresholds[i]) for w, i in zip(weights, nearest, strict=True)) / sum(weights)
        assert float(threshold) == pytest.approx(slow, abs=1e-5)
    assert float(found.min()) >= float(thresholds.min()) - 1e-6


def test_a_known_word_keeps_nearly_its_own_threshold() -> None:
    known, thresholds = torch.eye(4), torch.tensor([0.1, 0.3, 0.5, 0.7])
    torch.testing.assert_close(neighbour_thresholds(known, known, thresholds), thresholds)


@pytest.mark.parametrize("steps", [0, 5])
def test_a_vector_from_pictures_is_a_mean_of_known_words(steps: int) -> None:
    head = build()
    features, known = torch.randn(5, 5, 2, 3).double(), torch.eye(7).double()
    vector = vector_from_pictures(head, features, known, steps=steps)
    assert vector.shape == (7,)
    assert float(vector.sum()) == pytest.approx(1.0)
    assert (vector > 0).all()
    assert all(parameter.grad is None for parameter in head.parameters())
    with pytest.raises(InputError, match="at least one picture"):
        vector_from_pictures(head, features[:0], known)


def test_gradient_steps_raise_the_score_of_a_vector_on_its_pictures() -> None:
    head = build()
    features, known = torch.randn(5, 5, 2, 3).double(), torch.randn(6, 7).double()
    vectors = [vector_from_pictures(head, features, known, steps=steps) for steps in (0, 5, 40)]
    scores = [float(torch.nn.functional.logsigmoid(head(features, v.unsqueeze(0)).detach()).mean()) for v in vectors]
    assert all(later > earlier for earlier, later in pairwise(scores))
