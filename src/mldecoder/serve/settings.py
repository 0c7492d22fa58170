"""What a server is told when it starts."""

from dataclasses import dataclass

from mldecoder.errors import ConfigError

__all__ = ["Settings"]


@dataclass(frozen=True)
class Settings:
    """How a model is served.

    Args:
        run: Run folder, model folder or hub id; every machine that holds a copy must see it.
        labels: Which labels to score; ``None`` takes the model's own.
        top_k: At most this many tags a picture.
        threshold: Score from which a tag is given; ``None``: as calibrated.
        replicas: Copies of the model; ``None`` takes as many as there is room for.
        batch_size: Most pictures that are scored together.
        batch_wait: Seconds that the first picture of a batch waits for others.
        queue: Pictures that may wait beside those in work; ``None`` takes two batches a copy. More are answered 503.
        max_bytes: Largest body.
        max_pixels: Largest picture, by its header.
        timeout: Seconds for a request to come in, and again for its answer.
        token: Who asks must send it as ``Authorization: Bearer TOKEN``; ``None`` lets everybody in.
    """

    run: str
    labels: tuple[str, ...] | None = None
    top_k: int | None = None
    threshold: float | None = None
    replicas: int | None = None
    batch_size: int = 32
    batch_wait: float = 0.005
    queue: int | None = None
    max_bytes: int = 20 * 2**20
    max_pixels: int = 100_000_000
    timeout: float = 30.0
    token: str | None = None

    def __post_init__(self) -> None:
        least = {"replicas": self.replicas, "batch_size": self.batch_size, "queue": self.queue}
        for name, value in least.items():
            if value is not None and value < 1:
                raise ConfigError(f"{name} must be at least 1, got {value}.")
        if not self.timeout > 0:
            raise ConfigError(f"timeout must be more than 0 seconds, got {self.timeout}.")
        if self.batch_wait < 0:
            raise ConfigError(f"batch_wait must not be negative, got {self.batch_wait}.")
        if self.token is not None and (not self.token.isascii() or len(self.token.split()) != 1):
            raise ConfigError("The token must be one word of ASCII letters, digits and signs.")
