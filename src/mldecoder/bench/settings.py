"""What to measure. Nothing here needs torch, so that a wrong option is told at once."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from mldecoder.bench.sizes import known
from mldecoder.errors import ConfigError

__all__ = ["HEADS", "MODES", "BenchSettings", "Compile", "Device", "Mode", "Precision"]

Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["auto", "bf16", "fp32", "fp16"]
Compile = Literal["both", "yes", "no"]
Mode = Literal["train", "infer"]

HEADS = ("gap", "transformer-decoder", "ml-decoder")
MODES: tuple[Mode, ...] = get_args(Mode)


@dataclass(frozen=True)
class BenchSettings:
    """A table of heads x classes x modes.

    Attributes:
        device: Where to measure; ``auto`` is the GPU where there is one.
        classes: Numbers of classes N, one after the other.
        queries: Numbers of queries K for ML-Decoder and peers; more than N becomes N.
        heads: Which of ``HEADS``.
        peers: Further heads as ``module:Class``, built with ``(num_classes, in_features)``, and with
            ``num_queries``, ``width`` and ``ff_width`` where their signature has them.
        modes: ``train`` (forward and backward) and ``infer``.
        tokens: Rows and columns of the feature map, for heads alone.
        features: Channels of the feature map, for heads alone.
        width: The decoders' width D.
        ff_width: The decoders' feed-forward width.
        batch: Images a step; None is 80% of the largest training batch, as in the paper (GPU only).
        precision: Of weights and input; ``auto`` is bf16 on a GPU and fp32 on a CPU.
        autocast: Keep weights in float32 and let autocast choose ``precision`` operation by operation.
        channels_last: Memory layout of the feature map; what a fast backbone yields.
        memory_cap: Bytes that a head may use, as if the device had no more; also asks for the largest batch.
        backbone: Measure whole networks with this backbone in place of heads alone.
        size: Height and width of the pictures for the backbone.
        compile: Measure with ``torch.compile``, without, or both.
        graph: Replay each step as a CUDA graph: the time of the device, without the host that starts the kernels.
        repeats: Timings a cell; their median and quartiles are reported.
        repeat_seconds: How long a repeat lasts at least; short steps are done several times.
        budget: Seconds after which a cell takes no further repeats.
        out: Folder for ``heads.json``, ``heads.md`` and ``heads.png``; None writes nothing.
    """

    device: Device = "auto"
    classes: tuple[int, ...] = (100, 1000, 5000, 10_000, 100_000)
    queries: tuple[int, ...] = (100,)
    heads: tuple[str, ...] = HEADS
    peers: tuple[str, ...] = ()
    modes: tuple[Mode, ...] = MODES
    tokens: tuple[int, int] = (7, 7)
    features: int = 2048
    width: int = 768
    ff_width: int = 2048
    batch: int | None = 256
    precision: Precision = "auto"
    autocast: bool = False
    channels_last: bool = True
    memory_cap: int | None = None
    backbone: str | None = None
    size: int = 224
    compile: Compile = "no"
    graph: bool = False
    repeats: int = 10
    repeat_seconds: float = 0.1
    budget: float = 60.0
    out: Path | None = None

    def __post_init__(self) -> None:
        for name in self.heads:
            known(name, HEADS, "head")
        for mode in self.modes:
            known(mode, MODES, "mode")
        known(self.device, get_args(Device), "device")
        known(self.precision, get_args(Precision), "precision")
        known(self.compile, get_args(Compile), "choice of compile")
        for peer in self.peers:
            module, colon, attribute = peer.partition(":")
            if not (module and colon and attribute):
                raise ConfigError(f"A peer is named module:Class, such as package.heads:Head, got {peer!r}.")
        if not (self.heads or self.peers) or not self.modes:
            raise ConfigError("There is nothing to measure: name at least one head and one mode.")
        self._check_numbers()

    def _check_numbers(self) -> None:
        numbers = {
            "classes": self.classes,
            "queries": self.queries,
            "tokens": self.tokens,
            "features": (self.features,),
            "width": (self.width,),
            "ff_width": (self.ff_width,),
            "batch": (1 if self.batch is None else self.batch,),
            "memory_cap": (1 if self.memory_cap is None else self.memory_cap,),
            "size": (self.size,),
            "repeats": (self.repeats,),
        }
        for name, values in numbers.items():
            if not values or min(values) < 1:
                shown = min(values) if values else "nothing"
                raise ConfigError(f"{name} must be at least 1, got {shown}.")
        for name, seconds in {"budget": self.budget, "repeat_seconds": self.repeat_seconds}.items():
            if seconds <= 0:
                raise ConfigError(f"{name} must be above 0 seconds, got {seconds}.")

    @property
    def wants_largest_batch(self) -> bool:
        """Whether the largest batch is searched for."""
        return self.batch is None or self.memory_cap is not None

    @property
    def compile_choices(self) -> tuple[bool, ...]:
        """Whether to compile, each way that was asked for."""
        return {"both": (False, True), "yes": (True,), "no": (False,)}[self.compile]
