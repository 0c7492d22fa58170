"""ML-Decoder with queries and groups made of the labels' words: built by a recipe, saved and loaded."""

from pathlib import Path

import pytest
import torch

import mldecoder as mld
from mldecoder.config import MLDecoderConfig
from mldecoder.errors import ConfigError
from mldecoder.heads import MLDecoder
from mldecoder.heads.groups import assign
from mldecoder.heads.semantic_groups import closeness
from mldecoder.label_words import LabelWords
from mldecoder.model.label_queries import text_queries

LABELS = ["cat", "dog", "horse", "car", "bus", "train", "apple", "banana"]


def built(**head: object) -> mld.Classifier:
    return mld.create_model("test_resnet", labels=LABELS, head={"kind": "ml-decoder", "width": 32, **head})


def test_with_a_query_a_label_each_query_is_the_vector_of_the_label_it_answers_for() -> None:
    head = built(queries="text").head
    assert isinstance(head, MLDecoder)
    vectors = LabelWords.encoded(LABELS, None).vectors
    torch.testing.assert_close(head.queries[head.classify.query_of_class], vectors)
    assert not head.queries.requires_grad
    assert head.query_projection is not None
    assert head.query_projection.in_features == vectors.shape[1]


def test_a_group_asks_with_the_mean_of_its_labels() -> None:
    vectors, groups = torch.randn(8, 3), assign(8, 3, "random")
    slow = torch.stack([vectors[groups == j].mean(dim=0) for j in range(3)])
    torch.testing.assert_close(text_queries(vectors, groups, 3), slow)


def test_semantic_groups_hold_labels_of_similar_meaning() -> None:
    head = built(groups="semantic", num_queries=4).head
    assert isinstance(head, MLDecoder)
    vectors = LabelWords.encoded(LABELS, None).vectors
    groups = head.classify.query_of_class
    assert torch.bincount(groups).tolist() == [2, 2, 2, 2]
    assert closeness(vectors, groups) > closeness(vectors, assign(8, 4, "random"))


@pytest.mark.parametrize("options", [{"queries": "text"}, {"groups": "semantic", "num_queries": 3}])
def test_such_a_model_comes_back_from_its_folder(tmp_path: Path, options: dict[str, object]) -> None:
    model = built(**options).eval()
    model.save_pretrained(tmp_path)
    again = mld.load(tmp_path)
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(again(x), model(x))
    assert isinstance(again.config.head, MLDecoderConfig)
    assert not again.config.head.asks_by_words


def test_only_what_is_asked_for_changes() -> None:
    torch.manual_seed(0)
    plain = built(num_queries=4).head
    torch.manual_seed(0)
    semantic = built(num_queries=4, groups="semantic").head
    same = {name for name, value in plain.state_dict().items() if torch.equal(value, semantic.state_dict()[name])}
    assert set(plain.state_dict()) - same == {"classify.slots"}


def test_without_labels_there_are_no_words() -> None:
    with pytest.raises(ConfigError, match="queries=text and groups=semantic need labels"):
        MLDecoderConfig(queries="text").build(3, 8)
    with pytest.raises(ConfigError, match="queries=text needs groups=random, ordered or semantic"):
        built(queries="text", groups="given")
