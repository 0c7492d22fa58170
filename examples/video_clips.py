"""Tags for video clips: the head looks at the places of all frames at once.

python examples/video_clips.py
"""

import torch
from torch import nn

import mldecoder as mld
from mldecoder.backbones import create_backbone
from mldecoder.losses import asymmetric_loss

LABELS = ["moves left", "moves right", "moves up", "moves down"]
FRAMES, SIDE = 6, 32


class ClipTagger(nn.Module):
    """A picture network on every frame, a little mixing over time, and an ML-Decoder head."""

    def __init__(self) -> None:
        super().__init__()
        self.frames = create_backbone("test_resnet", img_size=(SIDE, SIDE), options={"output_stride": 16})
        width = self.frames.num_features
        self.time = nn.Conv3d(width, 64, kernel_size=(3, 1, 1), padding=(1, 0, 0))
        self.places = nn.Parameter(torch.randn(1, 64, FRAMES, 2, 2) * 0.5)  # where and when: attention has no order
        self.head = mld.MLDecoder(len(LABELS), in_features=64, width=64, ff_width=128, heads=4)

    def forward(self, clips: torch.Tensor) -> torch.Tensor:
        """Clips (b, f, 3, h, w) to one logit a label."""
        b = len(clips)
        maps = self.frames(clips.flatten(0, 1)).unflatten(0, (b, FRAMES)).transpose(1, 2)  # (b, c, f, h, w)
        return self.head(torch.relu(self.time(maps)) + self.places)  # the head takes clips as they are


def clips(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """White squares that move over noise, and the ways they go; a clip has one or two of them."""
    frames, targets = torch.rand(count, FRAMES, 3, SIDE, SIDE) * 0.3, torch.zeros(count, len(LABELS))
    ways = torch.tensor([[0, -1], [0, 1], [-1, 0], [1, 0]])
    for i in range(count):
        for way in torch.randperm(4)[: int(torch.randint(1, 3, ()))].tolist():
            targets[i, way] = 1
            start = torch.randint(10, SIDE - 14, (2,)) - 8 * ways[way]
            for f in range(FRAMES):
                y, x = (start + ways[way] * 16 * f // FRAMES).clamp(0, SIDE - 5).tolist()
                frames[i, f, :, y : y + 5, x : x + 5] = 1
    return frames, targets


def main() -> None:
    torch.manual_seed(0)
    model = ClipTagger()
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(40):
        pictures, targets = clips(16)
        loss = asymmetric_loss(model(pictures), targets, reduction="image_mean")
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % 10 == 0:
            print(f"step {step}: loss {loss.item():.2f}")
    model.eval()
    pictures, targets = clips(64)
    with torch.no_grad():
        logits, seen = model(pictures), model.frames(pictures[0]).shape
    print(f"each frame is a map of {tuple(seen[1:])}; logits {tuple(logits.shape)}")
    print(f"mAP on new clips: {100 * mld.metrics.average_precision(logits, targets).mean():.1f}")


if __name__ == "__main__":
    main()
