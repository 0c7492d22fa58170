"""Put an ML-Decoder head on a timm model, and train both for a few steps.

python examples/timm_model.py
"""

import timm
import torch

import mldecoder as mld
from mldecoder.data import scenes
from mldecoder.losses import asymmetric_loss

STEPS = 5


def batch(first: int, count: int = 16) -> tuple[torch.Tensor, torch.Tensor]:
    """Drawn pictures and their tags, in place of your own."""
    drawn = [scenes.draw(i, "train") for i in range(first, first + count)]
    images = torch.stack([torch.from_numpy(picture) for picture, _ in drawn]).permute(0, 3, 1, 2) / 255
    targets = torch.tensor([[float(label in tags) for label in scenes.LABELS] for _, tags in drawn])
    return images, targets


def main() -> None:
    torch.manual_seed(0)
    # Any timm model; pass pretrained=True for a real one, such as "resnet50".
    backbone = timm.create_model("test_resnet", pretrained=False)
    head = {"kind": "ml-decoder", "width": 64, "ff_width": 128, "num_queries": 12}
    model = mld.replace_head(backbone, labels=scenes.LABELS, head=head)

    # The head also stands alone, on features of any network of yours:
    alone = mld.MLDecoder(num_classes=36, in_features=model.backbone.num_features)
    print("logits of the head alone:", tuple(alone(torch.randn(2, model.backbone.num_features, 4, 4)).shape))

    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        images, targets = batch(first=16 * step)
        loss = asymmetric_loss(model(images), targets, reduction="image_mean")
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        print(f"step {step + 1}: loss {loss.item():.2f}")

    model.eval()
    with torch.no_grad():
        scores = model(batch(first=500, count=1)[0]).sigmoid()[0]
    best = scores.topk(3)
    print("best labels:", ", ".join(f"{model.labels[i]} {s:.2f}" for s, i in zip(*best, strict=True)))


if __name__ == "__main__":
    main()
