"""What a group layer takes on each of the processes that share it, in bytes: a formula, term by term.

Shapes: N classes, K queries, R processes, B images of all processes, D width; on the process with the largest share
Q = ceil(K / R) queries, M classes, and groups of G = ceil(N / K) columns.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from mldecoder.errors import ConfigError
from mldecoder.heads.groups import check_queries
from mldecoder.losses.grouped import PLAIN_COPIES, WORK_BYTES

__all__ = ["Optimiser", "SplitBytes", "bytes_moved", "split_bytes"]

Optimiser = Literal["sgd", "momentum", "adamw", "adafactor"]


@dataclass(frozen=True)
class SplitBytes:
    """Bytes on the process with the largest share."""

    weights: int
    """4 (Q D G + M): weights and bias, float32."""
    numbering: int
    """8 (2 M + Q G): which class stands where."""
    gradients: int
    """As many as the weights."""
    state: int
    """AdamW twice the weights, momentum once, Adafactor 4 (Q D + Q G + M), plain SGD nothing."""
    own: int
    """p (B / R) K D: all queries of this process's images, as the decoder gives them; p bytes a number."""
    received: int
    """p B Q D: this process's queries of all images; about as many as ``own``."""
    block: int
    """The loss's block of logits with all that autograd holds for it: at most ``WORK_BYTES``."""
    vectors: int
    """Bias and its gradient by slots, and the lists of targets."""

    @property
    def held(self) -> int:
        """What stays between steps."""
        return self.weights + self.numbering + self.state

    @property
    def peak(self) -> int:
        """The most at a time in a step whose optimiser needs nothing beside its state (``fused=True``).

        On the way forwards the received queries and their gradient stand beside a block; on the way back that
        gradient stands beside what is sent back, which is then put in order.
        """
        forwards = (2 * self.received or self.own) + self.block  # alone, there is only the gradient of its own
        backwards = self.received + 2 * self.own
        return self.held + self.gradients + self.own + self.vectors + max(forwards, backwards)


def split_bytes(
    classes: int,
    queries: int,
    width: int,
    ranks: int,
    optimiser: Optimiser,
    batch: int,
    *,
    precision: int = 4,
    fused: bool = False,
    listed: int = 40,
) -> SplitBytes:
    """Count what the largest share takes.

    Args:
        classes: How many classes, N.
        queries: How many queries, K; the groups are balanced.
        width: Length of a query vector, D.
        ranks: How many processes, R.
        optimiser: Of the group layer.
        batch: Images of all processes together, B.
        precision: Bytes a number of x and of the products: 4, or 2 under autocast.
        fused: Whether the loss compiles a block into one pass, as on a GPU with Triton.
        listed: Labels an image that the targets list.

    Example:
        >>> split_bytes(10_000_000, 1000, 768, 8, "adamw", 1024).weights
        3845000000
    """
    check_queries(queries, classes)
    if ranks < 1 or batch < 0:
        raise ConfigError(f"ranks must be at least 1 and batch at least 0, got {ranks} and {batch}.")
    q, g = -(-queries // ranks), -(-classes // queries)
    m = q * (classes // queries) + min(q, classes % queries)
    weights = 4 * (q * width * g + m)
    states = {"sgd": 0, "momentum": weights, "adamw": 2 * weights, "adafactor": 4 * (q * width + q * g + m)}
    if optimiser not in states:
        raise ConfigError(f"optimiser must be one of {get_args(Optimiser)}, got {optimiser!r}.")
    each = batch * (2 * precision + 1 if fused else 4 * PLAIN_COPIES)
    return SplitBytes(
        weights=weights,
        numbering=8 * (2 * m + q * g),
        gradients=weights,
        state=states[optimiser],
        own=precision * -(-batch // ranks) * queries * width,
        received=precision * batch * q * width if ranks > 1 else 0,
        block=min(WORK_BYTES, q * g * each),
        vectors=2 * 4 * q * g + 2 * 25 * batch * listed,
    )


def bytes_moved(queries: int, width: int, ranks: int, batch: int, tokens: int, *, precision: int = 4) -> dict[str, int]:
    """What a process receives in a step, forwards and backwards, in the two ways to split a head.

    ``queries`` is the way taken: decoded queries go to the process of their group. In the other, ``tokens``, embedded
    tokens of all images go to all processes, and each decodes its own queries.
    """
    own = -(-batch // ranks)
    return {
        "queries": 2 * precision * own * queries * width * (ranks - 1) // ranks,
        "tokens": 2 * precision * own * (ranks - 1) * tokens * width,
    }
