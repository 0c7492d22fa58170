"""The options of ml-decoder+ against a loop, and what every head of this package must be able to do."""

import copy
import dataclasses
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import mldecoder as mld
from mldecoder.config import MLDecoderPlusConfig, describe_head
from mldecoder.errors import ConfigError, InputError
from mldecoder.export import export_model
from mldecoder.export.onnx import runner
from mldecoder.heads import MLDecoder, MLDecoderPlus, fast, with_classes
from mldecoder.heads.plus_layers import PlusLayer
from mldecoder.heads.plus_options import PlusOptions
from mldecoder.heads.plus_tokens import Positions, drop_tokens
from mldecoder.recipes import load_recipe
from mldecoder.reproduce.plan import Wish, plan
from mldecoder.reproduce.registry import find_table
from mldecoder.training.grouped import grouped_training
from tests.heads.naive_plus import naive_plus

SETTINGS = [
    (job.row, list(job.overrides))
    for job in plan(find_table("head-options"), Wish("coco", "small", Path(), seeds=1), 80)
    if "head.kind=ml-decoder+" in job.overrides
]

CASES: dict[str, dict[str, Any]] = {
    "pre-norm": {"branch": "none", "norm": "pre"},
    "qk-norm": {"branch": "none", "qk_norm": True},
    "no projections": {"branch": "none", "projections": False, "queries": "learnable"},
    "no feed-forward": {"branch": "none", "ff_width": 0},
    "layer scale": {"branch": "none", "layer_scale": 0.1},
    "learnt positions": {"branch": "none", "positions": "learnt"},
    "sine positions": {"branch": "none", "positions": "sine"},
    "token norm": {"branch": "none", "token_norm": True},
    "token dropout": {"branch": "none", "token_dropout": 0.4},
    "query drop": {"branch": "none", "query_drop": 0.3},
    "branch": {"branch": "mean", "branch_drop": 0.2},
    "max branch": {"branch": "mean+max"},
    "cosine": {"branch": "none", "cosine": True},
    "prior": {"branch": "none", "prior": 0.04},
    "all": {
        "norm": "pre",
        "qk_norm": True,
        "projections": False,
        "queries": "learnable",
        "depth": 2,
        "layer_scale": 0.1,
        "positions": "learnt",
        "token_norm": True,
        "token_dropout": 0.4,
        "query_drop": 0.3,
        "branch": "mean+max",
        "branch_drop": 0.2,
        "cosine": True,
    },
}
every_case = pytest.mark.parametrize("case", list(CASES))
OWN = {field.name for field in dataclasses.fields(PlusOptions)}


def small(num_classes: int = 11, num_queries: int = 4, **wishes: Any) -> MLDecoderPlus:  # noqa: ANN401
    """A head whose zeros are filled, so that every part has a say."""
    options = PlusOptions(**{key: value for key, value in wishes.items() if key in OWN})
    sizes = {"width": 16, "ff_width": 24, "heads": 4} | {k: v for k, v in wishes.items() if k not in OWN}
    head = MLDecoderPlus(num_classes, 6, num_queries=num_queries, options=options, **sizes)
    for parameter in head.parameters():
        if not parameter.any():
            nn.init.normal_(parameter, std=0.3)
    return head


def test_without_options_it_is_the_papers_head_number_for_number() -> None:
    torch.manual_seed(3)
    plain = MLDecoder(11, 6, num_queries=4, width=16, ff_width=24, heads=4)
    torch.manual_seed(3)
    none = PlusOptions(branch="none")
    plus = MLDecoderPlus(11, 6, options=none, num_queries=4, width=16, ff_width=24, heads=4)
    assert plain.state_dict().keys() == plus.state_dict().keys()
    x = torch.randn(2, 6, 3, 3)
    for training in (True, False):
        torch.manual_seed(5)
        expected = plain.train(training)(x)
        torch.manual_seed(5)
        assert torch.equal(plus.train(training)(x), expected)


@given(data=st.data())
def test_logits_equal_a_loop_with_any_options(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 9))
    wishes = {
        "norm": data.draw(st.sampled_from(["post", "pre"])),
        "qk_norm": data.draw(st.booleans()),
        "projections": data.draw(st.booleans()),
        "layer_scale": data.draw(st.sampled_from([None, 0.3])),
        "token_norm": data.draw(st.booleans()),
        "branch": data.draw(st.sampled_from(["none", "mean", "max", "mean+max"])),
        "cosine": data.draw(st.booleans()),
        "ff_width": data.draw(st.sampled_from([0, 5])),
        "depth": data.draw(st.integers(1, 2)),
        "queries": data.draw(st.sampled_from(["fixed", "learnable"])),
    }
    torch.manual_seed(data.draw(st.integers(0, 99)))
    head = small(n, data.draw(st.integers(1, n)), **wishes).double().eval()
    tokens = torch.randn(2, data.draw(st.integers(1, 5)), 6, dtype=torch.float64)
    torch.testing.assert_close(head(tokens), naive_plus(head, tokens), rtol=1e-9, atol=1e-9)


@every_case
def test_every_parameter_gets_a_gradient(case: str) -> None:
    head = small(**CASES[case])
    head(torch.randn(6, 6, 3, 3)).square().sum().backward()
    for name, parameter in head.named_parameters():
        assert parameter.grad is not None, name
        if not name.endswith("key_value.bias"):  # a shift of all keys alike cancels in the softmax
            assert parameter.grad.abs().max() > 0, name


@every_case
def test_it_compiles_without_graph_breaks(case: str) -> None:
    check_compiles(case, "eager")


@pytest.mark.slow
@every_case
def test_its_compiled_kernels_give_the_same(case: str) -> None:
    check_compiles(case, "inductor")


def check_compiles(case: str, backend: str) -> None:
    torch._dynamo.reset()  # each case is another graph of the same function
    head, x = small(**CASES[case]), torch.randn(2, 6, 3, 3)
    compiled = torch.compile(head.eval(), fullgraph=True, backend=backend)
    torch.testing.assert_close(compiled(x), head(x))
    torch.compile(head.train(), fullgraph=True, backend=backend)(x).sum().backward()


@every_case
def test_it_exports_with_dynamic_batch_and_resolution(case: str) -> None:
    head, dim = small(**CASES[case]).eval(), torch.export.Dim
    shapes = {"x": {0: dim("batch"), 2: dim("height"), 3: dim("width")}}
    program = torch.export.export(head, (torch.randn(2, 6, 3, 4),), dynamic_shapes=shapes)
    for shape in ((1, 6, 5, 2), (7, 6, 3, 8)):
        x = torch.randn(shape)
        torch.testing.assert_close(program.module()(x), head(x))


@every_case
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_close_to_single(case: str, dtype: torch.dtype) -> None:
    head, x = small(**CASES[case]).eval(), torch.randn(2, 6, 3, 3)
    exact = head(x).detach()
    scale = float(exact.abs().max())
    half = copy.deepcopy(head).to(dtype)(x.to(dtype))
    assert half.dtype == dtype
    assert (half.float() - exact).abs().max() < 0.05 * scale
    with torch.autocast("cpu", dtype):
        assert (head(x).float() - exact).abs().max() < 0.05 * scale
        head.train()(x).float().square().sum().backward()


@every_case
def test_a_model_comes_back_from_its_folder(case: str, tmp_path: Path) -> None:
    wish = {"kind": "ml-decoder+", "width": 16, "ff_width": 24, "heads": 4, "num_queries": 4} | CASES[case]
    model = mld.create_model("test_resnet", num_classes=11, head=wish).eval()
    for parameter in model.head.parameters():
        nn.init.normal_(parameter)
    model.save_pretrained(tmp_path)
    again, x = mld.load(tmp_path), torch.randn(2, 3, 64, 64)
    assert again.config == model.config
    assert torch.equal(again(x), model(x))


@every_case
def test_a_described_head_is_built_alike(case: str) -> None:
    head = small(**CASES[case]).eval()
    section = describe_head(head)
    assert isinstance(section, MLDecoderPlusConfig)
    twin = section.build(11, 6)
    twin.load_state_dict(head.state_dict())
    x = torch.randn(2, 6, 3, 3)
    assert torch.equal(twin.eval()(x), head(x))


def test_the_config_knows_every_option_with_its_default() -> None:
    defaults = {name: MLDecoderPlusConfig.model_fields[name].default for name in OWN}
    assert defaults == dataclasses.asdict(PlusOptions())


@pytest.mark.parametrize("case", ["branch", "cosine", "all"])
def test_other_classes_keep_what_was_learnt(case: str) -> None:
    head, x = small(**CASES[case]).eval(), torch.randn(2, 6, 3, 3)
    fewer = with_classes(head, [3, None, 0]).eval()
    torch.testing.assert_close(fewer(x)[:, [0, 2]], head(x)[:, [3, 0]])


def test_a_branch_starts_with_nothing_to_say() -> None:
    torch.manual_seed(0)
    plain = MLDecoder(11, 6, width=16, ff_width=24, heads=4).eval()
    torch.manual_seed(0)
    sizes = {"width": 16, "ff_width": 24, "heads": 4}
    plus = MLDecoderPlus(11, 6, options=PlusOptions(branch="mean+max", positions="learnt"), **sizes).eval()  # type: ignore[arg-type]
    x = torch.randn(2, 6, 3, 3)
    torch.testing.assert_close(plus(x), plain(x))


@pytest.mark.parametrize("branch", ["mean", "max", "mean+max"])
def test_padding_is_ignored_by_branch_and_queries(branch: str) -> None:
    head = small(branch=branch, norm="pre").eval()
    tokens = torch.randn(2, 5, 6)
    mask = torch.tensor([[False, False, False, True, True]] * 2)
    torch.testing.assert_close(head(tokens, key_padding_mask=mask), head(tokens[:, :3]))
    with pytest.raises(InputError, match="key_padding_mask"):
        head(tokens, key_padding_mask=mask[:, :3])


@given(t=st.integers(1, 12), share=st.floats(0, 0.9), padded=st.integers(0, 11))
def test_dropped_tokens_leave_some_of_the_others_padding_first(t: int, share: float, padded: int) -> None:
    padded = min(padded, t - 1)
    tokens = torch.arange(t).float().view(1, t, 1).expand(3, t, 2)
    padding = (torch.arange(t) >= t - padded).expand(3, t)
    kept, rest = drop_tokens(tokens, padding, share)
    assert rest is not None
    count = max(1, round(t * (1 - share)))
    assert kept.shape == (3, count, 2)
    for picture, flags in zip(kept[..., 0], rest, strict=True):
        assert len(set(picture.tolist())) == count
        assert int((~flags).sum()) == min(count, t - padded)
        assert flags.tolist() == [value >= t - padded for value in picture.tolist()]


def test_what_is_dropped_in_training_is_there_in_evaluation() -> None:
    dropping = small(token_dropout=0.5, query_drop=0.5, branch="mean", branch_drop=0.5, dropout=0.0)
    whole = small(branch="mean", dropout=0.0)
    whole.load_state_dict(dropping.state_dict())
    x = torch.randn(2, 6, 3, 3)
    torch.testing.assert_close(dropping.eval()(x), whole.eval()(x))
    assert not torch.allclose(dropping.train()(x), whole.train()(x))


def test_a_silent_query_leaves_its_classes_to_bias_and_branch() -> None:
    head = small(query_drop=0.999999, branch="mean", dropout=0.0)
    x = torch.randn(2, 6, 3, 3)
    assert head.branch is not None
    expected = head.branch(x.flatten(2).transpose(1, 2)) + head.classify.bias
    torch.testing.assert_close(head(x), expected)


@pytest.mark.parametrize("kind", ["learnt", "sine"])
def test_positions_tell_places_apart_and_hold_for_any_size(kind: Any) -> None:  # noqa: ANN401
    places = Positions(kind, 40)
    if kind == "learnt":
        assert not places(2, 2).any()
        nn.init.normal_(places.mixing)
    vectors = places(4, 6).view(4, 6, 40)
    assert torch.pdist(vectors.flatten(0, 1)).min() > 1e-3
    three_times = places(12, 18).view(12, 18, 40)  # every third place of it lies where one of the small map does
    torch.testing.assert_close(three_times[1::3, 1::3], vectors, rtol=1e-4, atol=1e-4)


def test_positions_need_a_map() -> None:
    head = small(positions="sine")
    assert torch.equal(head.eval()(x := torch.randn(2, 6, 3, 4)), head(x.permute(0, 2, 3, 1)))
    with pytest.raises(InputError, match="positions are for maps"):
        head(torch.randn(2, 12, 6))


def test_attention_is_returned_and_changes_nothing() -> None:
    for case in ("pre-norm", "qk-norm", "no projections", "all"):
        head, x = small(**CASES[case]).eval(), torch.randn(2, 6, 3, 3)
        logits, maps = head(x, return_attention=True)
        torch.testing.assert_close(maps.sum(-1), torch.ones(2, 4, 4))
        torch.testing.assert_close(logits, head(x))


def test_checkpointing_gives_the_same_gradients() -> None:
    wishes = {**CASES["all"], "dropout": 0.2}
    plain, saving = small(**wishes), small(**wishes, checkpoint_layers=True)
    saving.load_state_dict(plain.state_dict())
    x = torch.randn(2, 6, 3, 3)
    for head in (plain, saving):
        torch.manual_seed(5)
        head(x).square().sum().backward()
    for one, other in zip(plain.parameters(), saving.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


@pytest.mark.parametrize("shared", [True, False])
def test_a_pre_norm_layer_attends_the_fast_way_with_the_same_result(
    shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = PlusLayer(16, 24, 4, 0.0, options=PlusOptions(norm="pre"), last=True)
    queries, tokens = torch.randn(1 if shared else 3, 5, 16), torch.randn(3, 7, 16)
    plain, _ = layer(queries, tokens)
    slow = torch.autograd.grad(plain.square().sum(), list(layer.parameters()))
    monkeypatch.setattr(fast, "usable", lambda *_: True)  # the kernels run in Triton's interpreter
    quick, _ = layer(queries, tokens)
    torch.testing.assert_close(quick, plain, rtol=1e-4, atol=1e-5)
    for one, other in zip(torch.autograd.grad(quick.square().sum(), list(layer.parameters())), slow, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_it_survives_pickling() -> None:
    head, file, x = small(**CASES["all"]).eval(), io.BytesIO(), torch.randn(1, 6, 2, 2)
    torch.save(head, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=False)(x), head(x))


def test_the_grouped_loss_is_for_the_papers_head() -> None:
    recipe = load_recipe("quick", ["head.kind=ml-decoder+", "training.grouped_loss=true"])
    model = mld.create_model("test_resnet", num_classes=5, head=recipe.head)
    with pytest.raises(ConfigError, match=r"needs head.kind=ml-decoder"):
        grouped_training(model, recipe)


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({"norm": "per"}, "norm must be one of post, pre, got 'per'"),
        ({"token_dropout": 1.0}, "token_dropout must be at least 0 and below 1"),
        ({"branch": "none", "branch_drop": 0.5}, "needs a branch"),
        ({"prior": 1.0}, "prior must be above 0 and below 1"),
        ({"ff_width": -1}, "ff_width must be at least 0"),
    ],
)
def test_wrong_options_say_what_is_right(wish: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        small(**wish)


@pytest.mark.parametrize(("name", "overrides"), SETTINGS)
def test_every_setting_to_be_tried_is_a_recipe(name: str, overrides: list[str]) -> None:
    recipe = load_recipe("quick", overrides)
    head = recipe.head.build(80, 64)
    assert head(torch.randn(1, 64, 2, 2)).shape == (1, 80)
    said = [text for text in find_table("head-options").row(name).overrides if text.startswith("head.dropout=")]
    dropout = getattr(recipe.head, "dropout", None)  # another kind forgets the recipe's own value
    assert f"head.dropout={dropout}" == (said or ["head.dropout=0.2"])[-1]
    assert torch.isfinite(recipe.loss_of("multi-label")(torch.randn(2, 80), torch.randint(0, 2, (2, 80))))


def trained(overrides: list[str], folder: Path) -> mld.Classifier:
    own = ["backbone.name=test_resnet", "backbone.pretrained=false", "image.size=64", "training.epochs=1"]
    own += ["training.batch_size=32", "data.options.count=32", "data.workers=0", "training.precision=fp32"]
    mld.train("scenes", recipe="quick", output=folder, overrides=[*overrides, *own], quiet=True)
    return mld.load(folder / "best")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "overrides"), SETTINGS)
def test_every_setting_trains_compiles_and_exports(name: str, overrides: list[str], tmp_path: Path) -> None:
    torch._dynamo.reset()
    model = trained(overrides, tmp_path / "run")
    check_onnx(model, tmp_path / "model.onnx")
    x = torch.randn(2, 3, 64, 64)
    torch.testing.assert_close(torch.compile(model, fullgraph=True, backend="aot_eager")(x), model(x))
    half = model.half()(x.half()).float()
    assert torch.isfinite(half).all()


def test_a_model_with_every_option_runs_in_onnxruntime_with_any_batch(tmp_path: Path) -> None:
    wish = {"kind": "ml-decoder+", "width": 16, "ff_width": 24, "heads": 4, "num_queries": 4} | CASES["all"]
    model = mld.create_model("test_resnet", num_classes=11, head=wish, img_size=64).eval()
    check_onnx(model, tmp_path / "model.onnx")


def check_onnx(model: mld.Classifier, path: Path) -> None:
    run = runner(export_model(model, path).path)
    for batch in (1, 5):
        x: Tensor = torch.randn(batch, 3, 64, 64)
        with torch.no_grad():
            expected = model(x)
        np.testing.assert_allclose(run([x.numpy()]), expected.numpy(), rtol=0, atol=1e-4)
