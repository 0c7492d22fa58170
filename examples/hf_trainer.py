"""A model of ours inside the Trainer of Hugging Face transformers.

pip install transformers
python examples/hf_trainer.py
"""

from tempfile import TemporaryDirectory

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import EvalPrediction, Trainer, TrainingArguments

import mldecoder as mld
from mldecoder.data import scenes
from mldecoder.losses import asymmetric_loss


class ForTrainer(nn.Module):
    """What Trainer wants of a model: keyword arguments in, a dict with loss and logits out."""

    def __init__(self, model: mld.Classifier) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Trainer finds its inputs by these names."""
        logits = self.model(pixel_values)
        return {"loss": asymmetric_loss(logits, labels, reduction="image_mean"), "logits": logits}


class Scenes(Dataset):
    """Drawn pictures, in place of your own."""

    def __init__(self, split: str, count: int) -> None:
        self.split, self.count = split, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        picture, tags = scenes.draw(i, "train" if self.split == "train" else "val")
        image = torch.from_numpy(picture).permute(2, 0, 1) / 255
        return {"pixel_values": image, "labels": torch.tensor([float(label in tags) for label in scenes.LABELS])}


def measure(found: EvalPrediction) -> dict[str, float]:
    logits, targets = torch.from_numpy(found.predictions), torch.from_numpy(found.label_ids)
    return {"mAP": 100 * float(mld.metrics.average_precision(logits, targets).nanmean())}


def main() -> None:
    torch.manual_seed(0)
    head = {"kind": "ml-decoder", "width": 64, "ff_width": 128}
    model = mld.create_model("test_resnet", labels=scenes.LABELS, head=head, img_size=64)
    with TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=10,
            per_device_train_batch_size=16,
            learning_rate=2e-3,
            logging_steps=5,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            dataloader_pin_memory=False,
        )
        parts = {"train_dataset": Scenes("train", 160), "eval_dataset": Scenes("val", 64)}
        trainer = Trainer(model=ForTrainer(model), args=arguments, compute_metrics=measure, **parts)
        trainer.train()
        print(f"mAP {trainer.evaluate()['eval_mAP']:.1f} after ten steps")
        model.save_pretrained(f"{folder}/model")  # a model folder, as `mldecoder train` leaves one
        print("labels of the saved model:", len(mld.load(f"{folder}/model").labels))


if __name__ == "__main__":
    main()
