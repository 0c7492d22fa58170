"""A model of ours inside Lightning.

pip install lightning
python examples/lightning_module.py
"""

import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

import mldecoder as mld
from mldecoder.data import scenes
from mldecoder.losses import asymmetric_loss

try:
    import lightning
except ImportError:
    print("This example needs Lightning: pip install lightning")
    sys.exit(0)


class Tagger(lightning.LightningModule):
    """The whole of it: what a step is, what is measured, and what trains."""

    def __init__(self, model: mld.Classifier, lr: float = 2e-3) -> None:
        super().__init__()
        self.model, self.lr = model, lr
        self.metrics = mld.metrics.MultiLabelMetrics(model.labels)

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        """The loss of one batch."""
        images, targets = batch
        loss = asymmetric_loss(self.model(images), targets, reduction="image_mean")
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch: list[torch.Tensor], _: int) -> None:
        """Collect what mAP needs."""
        images, targets = batch
        self.metrics.update(self.model(images), targets)

    def on_validation_epoch_end(self) -> None:
        """mAP of all batches."""
        self.log("mAP", self.metrics.compute()["mAP"])
        self.metrics.reset()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """One optimiser for backbone and head."""
        return torch.optim.AdamW(self.model.parameters(), lr=self.lr)


def loader(split: str, count: int) -> DataLoader:
    """Drawn pictures, in place of your own."""
    drawn = [scenes.draw(i, "train" if split == "train" else "val") for i in range(count)]
    images = torch.stack([torch.from_numpy(picture) for picture, _ in drawn]).permute(0, 3, 1, 2) / 255
    targets = torch.tensor([[float(label in tags) for label in scenes.LABELS] for _, tags in drawn])
    return DataLoader(TensorDataset(images, targets), batch_size=16, shuffle=split == "train")


def main() -> None:
    lightning.seed_everything(0)
    head = {"kind": "ml-decoder", "width": 64, "ff_width": 128}
    model = mld.create_model("test_resnet", labels=scenes.LABELS, head=head, img_size=64)
    trainer = lightning.Trainer(max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False)
    trainer.fit(Tagger(model), loader("train", 160), loader("val", 64))
    print(f"mAP {float(trainer.callback_metrics['mAP']):.1f}; labels: {len(model.labels)}")


if __name__ == "__main__":
    main()
