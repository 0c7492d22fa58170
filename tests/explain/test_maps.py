import pytest
import torch
from torch import nn

import mldecoder as mld
from mldecoder.errors import ConfigError
from mldecoder.explain.maps import look
from mldecoder.heads import GlobalAveragePool, MLDecoder
from tests.predict.pictures import SMALL, tiny, zero_shot


@pytest.mark.parametrize("name", ["test_resnet", "test_vit", "test_convnext"])
@pytest.mark.parametrize("keep_prefix_tokens", [False, True])
def test_a_map_lies_on_the_grid_of_its_backbone(name: str, keep_prefix_tokens: bool) -> None:
    model = mld.create_model(
        name, 6, head={**SMALL, "num_queries": 3}, img_size=64, keep_prefix_tokens=keep_prefix_tokens
    ).eval()
    maps = look(model, torch.randn(2, 3, 64, 64))
    grid = model.backbone.token_grid(64, 64)
    assert grid is not None
    assert maps.maps.shape == (2, 3, 2, *grid)
    total = maps.maps.sum(dim=(-2, -1))
    if keep_prefix_tokens and model.backbone.num_prefix_tokens:
        assert bool((total < 1).all())  # the class token takes its share
    else:
        torch.testing.assert_close(total, torch.ones_like(total))


def test_logits_with_maps_are_those_of_the_model() -> None:
    model, images = tiny(), torch.randn(2, 3, 64, 64)
    torch.testing.assert_close(look(model, images).logits, model(images))


class Colours(nn.Module):
    """A backbone whose features are the mean colours of the cells, so that attention can be foretold."""

    name = "colours"

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return nn.functional.avg_pool2d(images, 16)

    def token_grid(self, height: int, width: int) -> tuple[int, int]:
        return height // 16, width // 16


def test_the_map_shows_the_place_that_the_query_attends_to() -> None:
    """A head whose keys are the colours attends to the one red cell, wherever it is."""
    model = tiny(labels=("red", "other"), head={**SMALL, "heads": 1})
    head = MLDecoder(2, in_features=3, width=16, ff_width=16, heads=1).eval()
    with torch.no_grad():
        head.decoder.embed.weight.zero_()
        head.decoder.embed.bias.zero_()
        head.decoder.embed.weight[0, 0] = 1  # red
        attention = head.decoder.first_layer.attention
        attention.query.weight.zero_()
        attention.query.bias.zero_()
        attention.query.bias[0] = 100  # looks for the first number
        attention.key_value.weight[:16] = torch.eye(16)
        attention.key_value.bias.zero_()
    model.head = head
    model.backbone = Colours()  # type: ignore[assignment]
    for row in range(4):
        for column in range(6):
            images = torch.zeros(1, 3, 64, 96)
            images[0, 0, 16 * row : 16 * row + 16, 16 * column : 16 * column + 16] = 1
            found = look(model, images).of(0, 0)[0]
            assert found.shape == (4, 6)
            assert int(found.argmax()) == 6 * row + column


def test_labels_of_a_group_share_one_map() -> None:
    model = tiny(labels=tuple("abcdefg"), head={**SMALL, "num_queries": 3})
    maps = look(model, torch.randn(1, 3, 64, 64))
    query = model.head.classify.query_of_class  # type: ignore[union-attr]
    for label in range(7):
        expected = [other for other in range(7) if query[other] == query[label]]  # type: ignore[index]
        assert maps.shared_by(label) == expected
        assert all(torch.equal(maps.of(0, label), maps.of(0, other)) for other in expected)


def test_contributions_of_average_pooling_add_up_to_the_logit() -> None:
    model = tiny(head="gap")
    maps = look(model, torch.randn(2, 3, 64, 64))
    assert isinstance(model.head, GlobalAveragePool)
    assert maps.kind == "contribution"
    assert maps.shared_by(4) == [4]
    made = torch.stack([maps.of(i, label).sum() for i in range(2) for label in range(36)]).view(2, 36)
    torch.testing.assert_close(made + model.head.classify.bias, maps.logits)


@pytest.mark.parametrize("head", ["transformer-decoder", "ml-decoder"])
def test_a_query_a_label_gives_a_map_a_label(head: str) -> None:
    model = tiny(head={**SMALL, "kind": head})
    maps = look(model, torch.randn(1, 3, 64, 64))
    assert maps.kind == "attention"
    assert all(maps.shared_by(label) == [label] for label in range(36))


def test_words_for_a_zero_shot_model_have_their_own_maps() -> None:
    model = zero_shot()
    images = torch.randn(1, 3, 64, 64)
    words = ["orange ring", "blue star"]
    maps = look(model, images, model.text_vectors_for(words))
    assert maps.logits.shape == (1, 2)
    torch.testing.assert_close(maps.of(0, 1), look(model, images).of(0, model.labels.index("blue star")))


def test_tokens_on_no_grid_and_foreign_heads_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny()
    monkeypatch.setattr(type(model.backbone), "token_grid", lambda *_: None)
    with pytest.raises(ConfigError, match="lie on no single grid"):
        look(model, torch.zeros(1, 3, 64, 64))
    monkeypatch.undo()
    model.head = nn.Flatten()
    with pytest.raises(ConfigError, match="heads of this package, got Flatten"):
        look(model, torch.zeros(1, 3, 64, 64))
