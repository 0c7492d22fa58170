"""The fast path against obvious torch in float64. Without a GPU the kernels run in Triton's interpreter."""

import copy
import subprocess
import sys

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from mldecoder import MLDecoder
from mldecoder.heads import GroupLinear, fast
from mldecoder.heads.kernels.hidden import drop_
from mldecoder.heads.kernels.launch import Drop
from mldecoder.heads.layers import DecoderLayer

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SMALL = st.integers(1, 5)
DROPOUT = st.sampled_from([0.0, 0.3])


def kept(seed: Tensor, shape: tuple[int, ...], dropout: float) -> Tensor:
    """The mask of the kernels, drawn once more with Python's whole numbers; scaled, in float64."""
    low, high = int(seed) & 0xFFFFFFFF, int(seed) >> 32

    def stays(place: int) -> bool:
        x = (place + low) & 0xFFFFFFFF
        x ^= x >> 16
        x = (x * 0x7FEB352D) & 0xFFFFFFFF
        x ^= x >> 15
        x ^= high
        x = (x * 0x846CA68B) & 0xFFFFFFFF
        x ^= x >> 16
        return x >= int(dropout * 2**32)

    count = int(torch.tensor(shape).prod())
    mask = torch.tensor([stays(i) for i in range(count)], dtype=torch.float64).view(shape)
    return mask / (1 - dropout) if dropout else torch.ones(shape, dtype=torch.float64)


def check(ours: list[Tensor | None], twins: list[Tensor | None]) -> None:
    for mine, twin in zip(ours, twins, strict=True):
        assert mine is not None
        assert twin is not None
        torch.testing.assert_close(mine.cpu().double(), twin, rtol=1e-4, atol=1e-5)


def draw(*shape: int) -> Tensor:
    return torch.randn(shape, device=DEVICE, requires_grad=True)


def twin_of(x: Tensor) -> Tensor:
    return x.detach().cpu().double().requires_grad_()


def in_double(module: nn.Module) -> nn.Module:
    return copy.deepcopy(module).cpu().double()


def parts_of(layer: DecoderLayer) -> list[nn.LayerNorm | nn.Linear]:
    attention = layer.attention
    return [
        layer.norm1,
        attention.query,
        attention.key_value,
        attention.out,
        layer.norm2,
        layer.linear1,
        layer.linear2,
        layer.norm3,
    ]


def gradients(out: Tensor, upstream: Tensor, inputs: list[Tensor]) -> list[Tensor | None]:
    return [out, *torch.autograd.grad((out * upstream.to(out)).sum(), inputs)]


@settings(max_examples=12)  # the interpreter is slow
@given(
    b=SMALL,
    k=st.integers(1, 40),
    t=st.integers(1, 20),
    e=st.sampled_from([4, 12]),
    f=st.sampled_from([5, 130]),
    dropout=DROPOUT,
    given_side=st.booleans(),
    shared=st.booleans(),
    masked=st.booleans(),
)
def test_a_layer_and_its_gradients_are_those_of_the_formula(
    b: int, k: int, t: int, e: int, f: int, dropout: float, given_side: bool, shared: bool, masked: bool
) -> None:
    torch.manual_seed(b + k + t)
    heads, d = 2, 2 * e
    layer = DecoderLayer(d, f, heads, dropout).to(DEVICE)
    for norm in (layer.norm1, layer.norm2, layer.norm3):
        nn.init.uniform_(norm.weight, 0.5, 1.5)
    for parameter in layer.parameters():
        if parameter.ndim == 1:
            nn.init.uniform_(parameter, -0.5, 1.0)
    tokens, queries = draw(b, t, d), draw(1 if shared else b, k, d)
    side = (draw(1 if shared else b, k, d), draw(1 if shared else b, k, d)) if given_side else None
    mask = None
    if masked:
        mask = torch.rand(b, 1, 1, t, device=DEVICE) > 0.4
        mask[..., 0] = True
    torch.manual_seed(7)
    drawn = [torch.randint(2**62, (5,), device=DEVICE) for _ in range(2 if given_side else 3)]
    first_seeds, middle_seeds, last_seeds = [drawn[0], *drawn] if given_side else drawn
    seeds = torch.stack([first_seeds[0], middle_seeds[1], *last_seeds[2:]])
    torch.manual_seed(7 if dropout else 8)
    made = fast.query_side(layer.norm1, layer.attention.query, queries, b, dropout) if side is None else (*side, None)
    normed, projected, source = made
    seen = fast.attend(projected, tokens, layer.attention.key_value, heads=heads, mask=mask, dropout=dropout)
    ends = (layer.attention.out, layer.norm2, layer.linear1, layer.linear2, layer.norm3)
    y = fast.finish(normed, seen, *ends, dropout, source)
    twin = in_double(layer)
    assert isinstance(twin, DecoderLayer)
    drops = [
        kept(seed, shape, dropout)
        for seed, shape in zip(seeds, [(b, k, d), (b, heads, k, t), (b, k, d), (b, k, f), (b, k, d)], strict=True)
    ]
    x, q = twin_of(tokens), twin_of(queries)
    pair = None if side is None else (twin_of(side[0]), twin_of(side[1]))
    first = twin.norm1(q + q * drops[0]) if pair is None else pair[0]
    asking = twin.attention.query(first) if pair is None else pair[1]
    key, value = (part.unflatten(-1, (heads, e)).transpose(1, 2) for part in twin.attention.key_value(x).chunk(2, -1))
    scores = asking.expand(b, -1, -1).unflatten(-1, (heads, e)).transpose(1, 2) @ key.transpose(-2, -1) / e**0.5
    if mask is not None:
        scores = scores.masked_fill(~mask.cpu(), -torch.inf)
    found = twin.attention.out(((scores.softmax(-1) * drops[1]) @ value).transpose(1, 2).flatten(2))
    middle = twin.norm2(first + found * drops[2])
    slow = twin.norm3(middle + twin.linear2(F.relu(twin.linear1(middle)) * drops[3]) * drops[4])
    up = torch.randn(b, k, d, dtype=torch.float64)
    unused = 4 if given_side else 0  # norm and projection of queries that are not looked at
    ours, theirs = ([w for part in parts_of(one) for w in (part.weight, part.bias)][unused:] for one in (layer, twin))
    check(
        gradients(y, up, [tokens, *(side or [queries]), *ours]),
        gradients(slow, up, [x, *(pair or [q]), *theirs]),
    )


def one_layer(dropout: float) -> tuple[Tensor, list[Tensor]]:
    """The result of a layer with 8 images, 5 queries, width 8 and 16 hidden, and what it was made of."""
    torch.manual_seed(0)
    layer, tokens, queries = DecoderLayer(8, 16, 2, dropout).to(DEVICE), draw(8, 3, 8), draw(1, 5, 8)
    torch.manual_seed(1)
    normed, projected, source = fast.query_side(layer.norm1, layer.attention.query, queries, 8, dropout)
    seen = fast.attend(projected, tokens, layer.attention.key_value, heads=2, mask=None, dropout=dropout)
    ends = (layer.attention.out, layer.norm2, layer.linear1, layer.linear2, layer.norm3)
    return fast.finish(normed, seen, *ends, dropout, source), [tokens, queries, *layer.parameters()]


def test_a_graph_that_is_kept_gives_the_same_gradients_again() -> None:
    y, inputs = one_layer(0.3)
    first = torch.autograd.grad(y.sum(), inputs, retain_graph=True)
    for kept in (True, False):  # the last time the hidden layer may be overwritten
        again = torch.autograd.grad(y.sum(), inputs, retain_graph=kept)
        for one, other in zip(first, again, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_normed_queries_are_not_kept() -> None:
    kept: dict[int, int] = {}

    def keep(x: Tensor) -> Tensor:
        kept[x.untyped_storage().data_ptr()] = x.numel()
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        y, _ = one_layer(0.3)
    rows = 8 * 5
    of_rows = [count for count in kept.values() if count % rows == 0 and count > rows]
    assert y.shape == (8, 5, 8)
    assert sorted(of_rows) == [8 * rows] * 5 + [16 * rows]  # projected, seen, x, y, z and the hidden layer


@given(b=SMALL, t=st.integers(1, 20), c=st.sampled_from([3, 16]), d=st.sampled_from([4, 130]))
def test_embedding_is_a_linear_layer_and_relu(b: int, t: int, c: int, d: int) -> None:
    torch.manual_seed(b + t)
    x, layer = draw(b, t, c), nn.Linear(c, d, device=DEVICE)
    up = torch.randn(b, t, d, dtype=torch.float64)
    z, twin = twin_of(x), in_double(layer)
    check(
        gradients(fast.embed(layer, x), up, [x, *layer.parameters()]),
        gradients(F.relu(twin(z)), up, [z, *twin.parameters()]),
    )


@given(b=SMALL, k=SMALL, extra=st.sampled_from([0, 3, 20, 200]), groups=st.sampled_from(["random", "ordered"]))
def test_the_group_layer_reads_each_class_from_its_slot(b: int, k: int, extra: int, groups: str) -> None:
    torch.manual_seed(b + k)
    layer = GroupLinear(k + extra, k, 6, groups=groups).to(DEVICE)  # type: ignore[arg-type]
    nn.init.normal_(layer.bias)
    x, up = draw(b, k, 6), torch.randn(b, k + extra, dtype=torch.float64)
    z, twin = twin_of(x), in_double(layer)
    ours = fast.group_linear(x, layer.weight, layer.bias, layer.slots, layer.class_of_slot)
    check(gradients(ours, up, [x, *layer.parameters()]), gradients(twin(z), up, [z, *twin.parameters()]))


def test_dropout_drops_its_share_and_keeps_the_mean() -> None:
    x = torch.ones(200_000, device=DEVICE)
    masks = []
    for number in range(4):
        torch.manual_seed(number)
        seed = torch.randint(2**62, (1,), device=DEVICE)
        masks.append(drop_(x.clone(), Drop(seed, 0.1), which=0) > 0)
    share = torch.stack(masks).double().mean(1)
    torch.testing.assert_close(share, torch.full_like(share, 0.9), atol=0.004, rtol=0)
    centred = torch.stack(masks).double().cpu() - 0.9
    between = (centred @ centred.t()) / centred.shape[1] / 0.09  # correlation of the masks of different seeds
    assert float((between - torch.diag(between.diag())).abs().max()) < 0.01
    for shift in (1, 2, 96, 768):
        neighbours = (centred[:, shift:] * centred[:, :-shift]).mean() / 0.09
        assert abs(float(neighbours)) < 0.01


def test_the_cpu_takes_the_plain_way() -> None:
    assert not fast.usable(torch.zeros(1, 4, 8, dtype=torch.bfloat16), 8)


def test_layers_that_somebody_changed_are_left_to_torch() -> None:
    layer = nn.Linear(2, 2)
    assert fast.untouched(layer, nn.LayerNorm(2))
    assert not fast.untouched(nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)))
    assert not fast.untouched(nn.Sequential(layer))
    layer.register_forward_hook(lambda *_: None)
    assert not fast.untouched(layer)


def test_importing_a_head_does_not_import_the_kernels() -> None:
    code = "import sys; import mldecoder.heads.fast; sys.exit('mldecoder.heads.fast_steps' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_head_that_was_resized_or_loaded_knows_the_class_of_each_slot() -> None:
    head = MLDecoder(10, 8, num_queries=3, width=16, ff_width=16, heads=2, seed=1)
    other = MLDecoder(10, 8, num_queries=3, width=16, ff_width=16, heads=2, seed=2)
    other.load_state_dict(head.state_dict())
    for layer in (head.classify, other.classify):
        assert layer.class_of_slot[layer.slots].tolist() == list(range(10))
