"""What :class:`mldecoder.heads.plus.MLDecoderPlus` may do otherwise than the paper's head."""

from dataclasses import dataclass
from typing import Literal, get_args

from mldecoder.errors import ConfigError

__all__ = ["Branch", "Norm", "PlusOptions", "Positions"]

Norm = Literal["post", "pre"]
Positions = Literal["none", "learnt", "sine"]
Branch = Literal["none", "mean", "max", "mean+max"]


@dataclass(frozen=True)
class PlusOptions:
    """Each option but the branch is off by default, and independent of the others.

    Args:
        norm: ``"pre"`` norms what goes into attention and feed-forward, and the sum at the end; ``"post"`` norms
            every sum, as the paper does.
        qk_norm: Scale queries and keys to length one, with a learnt temperature a head: attention by angle.
        projections: ``False`` leaves out the projections of queries and keys, as efficient probing does: an embedded
            token is its own key. Wants learnable queries.
        layer_scale: Multiply what attention and feed-forward add by a learnt factor a channel, which starts here.
        positions: Add to every feature where it stands: ``"learnt"``, or fixed ``"sine"`` waves with a learnt strength.
            For maps only.
        token_norm: Norm the features of every token before they are embedded.
        token_dropout: Share of a picture's tokens that are left out in training.
        query_drop: Probability in training that a query stays silent; its classes then have their bias and the branch.
        branch: Add the logits of a linear layer on the tokens, which starts at zero: of their ``"mean"`` (global
            average pooling), their ``"max"`` (the token where a class scores most), or both.
        branch_drop: Probability in training that a picture goes without the branch.
        cosine: Classes are read off by the angle between answer and class weight, times a learnt scale.
        prior: The probability that every class has before training, by its bias; 0.5 where nothing is said.
    """

    norm: Norm = "post"
    qk_norm: bool = False
    projections: bool = True
    layer_scale: float | None = None
    positions: Positions = "none"
    token_norm: bool = False
    token_dropout: float = 0.0
    query_drop: float = 0.0
    branch: Branch = "mean+max"
    branch_drop: float = 0.0
    cosine: bool = False
    prior: float | None = None

    def __post_init__(self) -> None:
        for name, allowed in (("norm", Norm), ("positions", Positions), ("branch", Branch)):
            value = getattr(self, name)
            if value not in get_args(allowed):
                raise ConfigError(f"{name} must be one of {', '.join(get_args(allowed))}, got {value!r}.")
        for name in ("token_dropout", "query_drop", "branch_drop"):
            value = getattr(self, name)
            if not 0 <= value < 1:
                raise ConfigError(f"{name} must be at least 0 and below 1, got {value}.")
        if self.prior is not None and not 0 < self.prior < 1:
            raise ConfigError(f"prior must be above 0 and below 1, got {self.prior}.")
        if self.branch_drop and self.branch == "none":
            raise ConfigError(f"branch_drop={self.branch_drop} needs a branch to drop. Set branch=mean with it.")

    @property
    def paper_layer(self) -> bool:
        """Whether the decoder's layers are the paper's own."""
        return self.norm == "post" and self.projections and not self.qk_norm and self.layer_scale is None
