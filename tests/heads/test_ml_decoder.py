import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tools.live_bytes import LiveBytes
from torch import Tensor, nn

from mldecoder.errors import ConfigError, InputError
from mldecoder.heads import GlobalAveragePool, MLDecoder, TransformerDecoder
from tests.heads.naive import naive_ml_decoder


def small(num_classes: int = 11, num_queries: int = 4, **options: object) -> MLDecoder:
    sizes = {"width": 16, "ff_width": 24, "heads": 4} | options
    return MLDecoder(num_classes, 6, num_queries=num_queries, **sizes)  # type: ignore[arg-type]


@given(data=st.data(), depth=st.integers(1, 2))
def test_logits_equal_a_loop_written_from_the_paper(data: st.DataObject, depth: int) -> None:
    n = data.draw(st.integers(1, 30))
    k = data.draw(st.integers(1, n))
    heads = data.draw(st.sampled_from([1, 2, 4]))
    width = heads * data.draw(st.integers(1, 5))
    options: Any = {
        "groups": data.draw(st.sampled_from(["random", "ordered"])),
        "group_layout": data.draw(st.sampled_from(["balanced", "ceil"])),
    }
    head = MLDecoder(n, 5, num_queries=k, width=width, ff_width=7, heads=heads, depth=depth, **options)
    head = head.eval().double()
    for parameter in head.parameters():
        nn.init.normal_(parameter, std=0.7)
    tokens = torch.randn(2, data.draw(st.integers(1, 9)), 5, dtype=torch.double)
    torch.testing.assert_close(head(tokens), naive_ml_decoder(head, tokens), rtol=1e-9, atol=1e-9)


def test_every_query_owns_a_class() -> None:
    head = MLDecoder(101, 4, num_queries=100, width=8, heads=1)
    assert len(head.classify.query_of_class.unique()) == 100
    official = MLDecoder(101, 4, num_queries=100, width=8, heads=1, groups="ordered", group_layout="ceil")
    assert len(official.classify.query_of_class.unique()) == 51


def test_five_thousand_queries_for_one_class_more() -> None:
    head = MLDecoder(5001, 4, num_queries=5000, width=8, heads=1).eval()
    assert head(torch.randn(1, 4, 2, 2)).shape == (1, 5001)
    assert torch.bincount(head.classify.query_of_class).tolist().count(2) == 1


@pytest.mark.parametrize("n", [1, 7, 100, 250])
def test_the_number_of_queries_is_a_hundred_at_most(n: int) -> None:
    assert MLDecoder(n, 4, width=8).num_queries == min(100, n)


def test_layouts_of_features_agree() -> None:
    head = small().eval()
    tokens = torch.randn(2, 12, 6)
    expected = head(tokens)
    images = tokens.transpose(1, 2).reshape(2, 6, 3, 4)
    for same in (
        images,
        images.to(memory_format=torch.channels_last),
        images.permute(0, 2, 3, 1).contiguous(),
        tokens.transpose(1, 2).reshape(2, 6, 2, 2, 3),
        tokens.reshape(2, 2, 2, 3, 6),
    ):
        torch.testing.assert_close(head(same), expected)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2, 6), "already pooled"),
        ((2, 6, 9), "Transpose"),
        ((2, 5, 4, 4), "in_features"),
        ((6,), "in_features"),
        ((2, 0, 6), "at least one token"),
    ],
)
def test_other_shapes_are_refused_with_the_way_out(shape: tuple[int, ...], message: str) -> None:
    for head in (small(), GlobalAveragePool(3, 6), TransformerDecoder(3, 6, width=8, ff_width=8)):
        with pytest.raises(InputError, match=message):
            head(torch.randn(shape))


@pytest.mark.parametrize("make", [small, lambda: GlobalAveragePool(3, 6), lambda: TransformerDecoder(3, 6, width=8)])
def test_padding_does_not_count(make: Callable[[], nn.Module]) -> None:
    head = make().eval()
    tokens = torch.randn(3, 5, 6)
    padded = torch.cat([tokens, 100 * torch.randn(3, 4, 6)], dim=1)
    mask = torch.arange(9).expand(3, -1) >= 5
    torch.testing.assert_close(head(padded, key_padding_mask=mask), head(tokens))
    with pytest.raises(InputError, match="one entry per token"):
        head(padded, key_padding_mask=mask[:, :3])
    with pytest.raises(InputError, match="boolean"):
        head(padded, key_padding_mask=mask.float())


def test_attention_is_returned_and_changes_nothing() -> None:
    head = small().eval()
    x = torch.randn(2, 6, 3, 3)
    logits, maps = head(x, return_attention=True)
    assert maps.shape == (2, 4, 4, 9)  # images, heads, queries, tokens
    torch.testing.assert_close(maps.sum(-1), torch.ones(2, 4, 4))
    torch.testing.assert_close(logits, head(x))
    torch.testing.assert_close(head(x, return_attention="mean")[1], maps.mean(1))
    with pytest.raises(ConfigError, match="return_attention"):
        head(x, return_attention="all")


def test_attention_ignores_padding() -> None:
    mask = torch.tensor([[False, False, True]])
    _, maps = small().eval()(torch.randn(1, 3, 6), key_padding_mask=mask, return_attention=True)
    assert (maps[..., 2] == 0).all()


def test_given_queries_are_kept_and_projected_when_their_width_differs() -> None:
    vectors = torch.randn(4, 10)
    head = small(queries=vectors)
    assert torch.equal(head.queries, vectors)
    assert head.query_projection is not None
    assert head(torch.randn(2, 5, 6)).shape == (2, 11)
    assert small(queries=torch.randn(4, 16)).query_projection is None
    with pytest.raises(ConfigError, match="one row per query"):
        small(queries=torch.randn(5, 10))
    with pytest.raises(ConfigError, match="learnable"):
        small(queries="lernable")


def test_learnable_queries_train_and_fixed_ones_do_not() -> None:
    assert "queries" in dict(small(queries="learnable").named_parameters())
    assert "queries" not in dict(small().named_parameters())
    assert "queries" in small().state_dict()


@pytest.mark.parametrize("queries", ["fixed", "learnable", torch.randn(4, 10)])
def test_every_parameter_gets_a_gradient(queries: str | Tensor) -> None:
    head = small(queries=queries)
    head(torch.randn(2, 6, 3, 3)).square().sum().backward()
    for name, parameter in head.named_parameters():
        assert parameter.grad is not None, name
        if not name.endswith("key_value.bias"):  # a shift of all keys alike cancels in the softmax
            assert parameter.grad.abs().max() > 0, name


def test_the_seed_decides_queries_and_groups() -> None:
    one, same, other = small(seed=1), small(seed=1), small(seed=2)
    assert torch.equal(one.queries, same.queries)
    assert torch.equal(one.classify.slots, same.classify.slots)
    assert not torch.equal(one.queries, other.queries)
    assert not torch.equal(one.classify.slots, other.classify.slots)


def test_wrong_sizes_say_what_is_right() -> None:
    with pytest.raises(ConfigError, match="between 1 and num_classes=3, got 4"):
        MLDecoder(3, 6, num_queries=4)
    with pytest.raises(ConfigError, match="num_classes must be at least 1"):
        MLDecoder(0, 6)
    with pytest.raises(ConfigError, match="multiple of heads"):
        small(heads=3)
    with pytest.raises(ConfigError, match="dropout"):
        small(dropout=1.0)
    with pytest.raises(ConfigError, match="depth"):
        small(depth=0)


def test_checkpointing_gives_the_same_gradients() -> None:
    plain, saving = small(depth=2, dropout=0.2), small(depth=2, dropout=0.2, checkpoint_layers=True)
    saving.load_state_dict(plain.state_dict())
    x = torch.randn(2, 6, 3, 3)
    for head in (plain, saving):
        torch.manual_seed(5)
        head(x).square().sum().backward()
    for one, other in zip(plain.parameters(), saving.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_checkpointing_in_slices_gives_the_same_gradients_with_less_memory() -> None:
    plain, saving = small(dropout=0.0), small(dropout=0.0, checkpoint_layers=True)
    saving.load_state_dict(plain.state_dict())
    x, mask = torch.randn(70, 6, 3, 3), torch.rand(70, 9) > 0.8
    mask[:, 0] = False
    peaks, attentions = [], []
    for head in (plain, saving):
        with LiveBytes() as live:
            logits, attention = head(x, key_padding_mask=mask, return_attention=True)
            logits.square().sum().backward()
        peaks.append(live.peak)
        attentions.append(attention)
    torch.testing.assert_close(*attentions)
    for one, other in zip(plain.parameters(), saving.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
    assert peaks[1] < 0.7 * peaks[0]


def test_training_is_deterministic_given_a_seed() -> None:
    head = small()
    x = torch.randn(2, 6, 3, 3)
    torch.manual_seed(3)
    first = head(x)
    torch.manual_seed(3)
    assert torch.equal(first, head(x))
    assert not torch.equal(first, head(x))  # dropout


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_close_to_single(dtype: torch.dtype) -> None:
    head = small().eval()
    x = torch.randn(2, 6, 3, 3)
    exact = head(x).detach()
    scale = float(exact.abs().max())
    half = copy.deepcopy(head).to(dtype)(x.to(dtype))
    assert half.dtype == dtype
    assert (half.float() - exact).abs().max() < 0.05 * scale
    with torch.autocast("cpu", dtype):
        assert (head(x).float() - exact).abs().max() < 0.05 * scale


class TestQuerySideIsNeverStale:
    """In evaluation the query side is kept; whatever changes the weights must be seen."""

    def check(self, head: MLDecoder, x: Tensor) -> None:
        with torch.no_grad():
            kept = head(x)
        fresh = head(x).detach()  # with gradients nothing is kept
        torch.testing.assert_close(kept, fresh, rtol=0, atol=1e-6)

    @pytest.fixture(params=["fixed", "learnable", "projected"])
    def warm(self, request: pytest.FixtureRequest) -> MLDecoder:
        kind = request.param
        head = small(queries=torch.randn(4, 10) if kind == "projected" else kind).eval()
        with torch.no_grad():
            head(torch.randn(1, 6, 2, 2))
        return head

    @pytest.fixture
    def x(self) -> Tensor:
        return torch.randn(2, 6, 3, 3)

    def test_it_is_computed_once(self, warm: MLDecoder, x: Tensor) -> None:
        calls = 0
        layer = warm.decoder.first_layer
        original = layer.query_side

        def counted(queries: Tensor) -> object:
            nonlocal calls
            calls += 1
            return original(queries)

        layer.query_side = counted  # type: ignore[method-assign,assignment]
        with torch.no_grad():
            for _ in range(5):
                warm(x)
        assert calls == 0
        warm(x)
        assert calls == 1

    def test_after_load_state_dict(self, warm: MLDecoder, x: Tensor) -> None:
        other = copy.deepcopy(warm)
        for parameter in other.parameters():
            nn.init.normal_(parameter)
        warm.load_state_dict(other.state_dict())
        self.check(warm, x)

    def test_after_load_state_dict_by_assignment(self, warm: MLDecoder, x: Tensor) -> None:
        state = {key: value + (value.is_floating_point()) for key, value in warm.state_dict().items()}
        warm.load_state_dict(state, assign=True)
        self.check(warm, x)

    @pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
    def test_after_an_optimiser_step(self, warm: MLDecoder, x: Tensor, kind: type[torch.optim.Optimizer]) -> None:
        optimiser = kind(warm.parameters(), lr=0.5)  # type: ignore[call-arg]
        warm(x).sum().backward()
        optimiser.step()
        self.check(warm, x)

    def test_after_ema_updates_of_any_style(self, warm: MLDecoder, x: Tensor) -> None:
        with torch.no_grad():
            for parameter in warm.parameters():
                parameter.lerp_(torch.randn_like(parameter), 0.5)
        self.check(warm, x)
        for value in warm.state_dict().values():
            if value.is_floating_point():
                value.copy_(value * 0.5 + torch.randn_like(value))
        self.check(warm, x)
        for parameter in warm.parameters():  # moves no version counter
            parameter.data.mul_(0.5).add_(torch.randn_like(parameter))
        self.check(warm, x)
        for parameter in warm.parameters():
            parameter.data = torch.randn_like(parameter)
        self.check(warm, x)

    def test_after_conversion(self, warm: MLDecoder, x: Tensor) -> None:
        self.check(warm.double(), x.double())
        with torch.no_grad():
            assert warm.to(torch.bfloat16)(x.bfloat16()).dtype == torch.bfloat16
        self.check(warm.float(), x)

    def test_after_deepcopy_and_pickling(self, warm: MLDecoder, x: Tensor) -> None:
        twin = copy.deepcopy(warm)
        with torch.no_grad():
            for parameter in twin.parameters():
                parameter.add_(1)
        self.check(twin, x)
        self.check(warm, x)
        file = io.BytesIO()
        torch.save(warm, file)
        file.seek(0)
        self.check(torch.load(file, weights_only=False), x)

    def test_under_autocast_and_inference_mode(self, warm: MLDecoder, x: Tensor) -> None:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            warm(x)
        self.check(warm, x)
        with torch.inference_mode():
            warm(x)
        self.check(warm, x)
        warm(x).sum().backward()


def test_it_compiles_without_graph_breaks() -> None:
    x = torch.randn(2, 6, 3, 3)
    for head in (small(), small(queries="learnable", depth=2), small(queries=torch.randn(4, 10))):
        compiled = torch.compile(head.eval(), fullgraph=True)
        torch.testing.assert_close(compiled(x), head(x))
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), head(x))
    training = torch.compile(small().train(), fullgraph=True)
    training(x).sum().backward()


@pytest.mark.parametrize("gradients", [True, False])
def test_it_exports_with_dynamic_batch_and_resolution(gradients: bool) -> None:
    head = small().eval()
    dim = torch.export.Dim
    shapes = {"x": {0: dim("batch"), 2: dim("height"), 3: dim("width")}}
    with torch.set_grad_enabled(gradients):
        program = torch.export.export(head, (torch.randn(2, 6, 3, 4),), dynamic_shapes=shapes)
    for shape in ((1, 6, 5, 2), (7, 6, 3, 8)):
        x = torch.randn(shape)
        torch.testing.assert_close(program.module()(x), head(x))
