"""A model with a split group layer on disk: the folder of an ordinary model, at any number of processes."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.distributed import ProcessGroup

import mldecoder as mld
from mldecoder.config import MLDecoderConfig
from mldecoder.errors import CheckpointError, ConfigError
from mldecoder.heads.ranks import Ranks
from mldecoder.heads.split import split_head
from mldecoder.model import split_folder
from mldecoder.model.folder import read_config
from mldecoder.model.split_folder import build_split, build_split_head, load_split, save_split
from tests.ranks import run

HEAD = {"kind": "ml-decoder", "num_queries": 7, "width": 16, "ff_width": 32, "heads": 2}


def model(seed: int = 0, **head: object) -> mld.Classifier:
    torch.manual_seed(seed)
    return mld.create_model("test_resnet", num_classes=45, head={**HEAD, **head}, pretrained=False).eval()


def group_layer(classifier: mld.Classifier) -> nn.Module:
    layer = classifier.head.classify
    assert isinstance(layer, nn.Module)
    return layer


def picture(rank: int) -> Tensor:
    return torch.full((1, 3, 64, 64), rank + 1.0)


def save_again(rank: int, group: ProcessGroup, source: Path, target: Path) -> tuple[int, Tensor]:
    """Load a part, save all, and say how much the part holds and what it scores."""
    split_folder.PIECE_BYTES = 2 * 16 * 7 * 4  # two queries at a time
    loaded = load_split(source, Ranks(group))
    save_split(loaded, target)
    with torch.no_grad():
        logits = loaded(picture(rank).to(next(loaded.parameters())))
    return sum(p.numel() for p in group_layer(loaded).parameters()), logits


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("half", [False, True])
def test_a_folder_comes_back_byte_for_byte(world: int, half: bool, tmp_path: Path) -> None:
    whole = model(queries="learnable")
    whole = whole.to(torch.bfloat16) if half else whole
    whole.save_pretrained(tmp_path / "whole")
    answers = run(world, save_again, tmp_path / "whole", tmp_path / "again")
    for file in ("model.safetensors", "config.json", "README.md"):
        assert (tmp_path / "again" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
    assert sum(count for count, _ in answers) == sum(p.numel() for p in group_layer(whole).parameters())
    if not half:
        for rank, (_, logits) in enumerate(answers):
            with torch.no_grad():
                torch.testing.assert_close(logits, whole(picture(rank)))
    mld.load(tmp_path / "again")


def build_and_save(_rank: int, group: ProcessGroup, source: Path, target: Path) -> None:
    torch.manual_seed(0)
    built = build_split(read_config(source / "config.json"), Ranks(group))
    save_split(built, target)


def test_an_untrained_model_is_the_same_at_any_number_of_processes(tmp_path: Path) -> None:
    model().save_pretrained(tmp_path / "whole")
    for world in (1, 2, 4):
        run(world, build_and_save, tmp_path / "whole", tmp_path / str(world))
    first = load_file(tmp_path / "1" / "model.safetensors")
    ordinary = load_file(tmp_path / "whole" / "model.safetensors")
    assert {name: t.shape for name, t in first.items()} == {name: t.shape for name, t in ordinary.items()}
    assert torch.equal(first["head.classify.slots"], ordinary["head.classify.slots"])
    for world in (2, 4):
        other = load_file(tmp_path / str(world) / "model.safetensors")
        assert all(torch.equal(first[name], other[name]) for name in first)
    assert len(mld.load(tmp_path / "4").labels) == 45
    section = read_config(tmp_path / "4/config.json").head
    assert isinstance(section, MLDecoderConfig)
    torch.manual_seed(0)
    head = build_split_head(section, 45, 8)
    assert head.num_classes == 45
    assert head(torch.zeros(1, 8, 2, 2)).shape == (1, 45)


def test_groups_of_ones_own_are_kept(tmp_path: Path) -> None:
    whole = model()
    whole.remove_labels(["class 3", "class 11"])  # then the config says that groups come with the weights
    whole.save_pretrained(tmp_path / "whole")
    run(2, save_again, tmp_path / "whole", tmp_path / "again")
    assert (tmp_path / "again/model.safetensors").read_bytes() == (tmp_path / "whole/model.safetensors").read_bytes()
    with pytest.raises(ConfigError, match="Use load_split"):
        build_split(whole.config)


def test_what_cannot_be_split_is_refused(tmp_path: Path) -> None:
    whole = model()
    with pytest.raises(ConfigError, match=r"not split\. Save it with save_pretrained"):
        save_split(whole, tmp_path / "x")
    split_head(whole.head)  # type: ignore[arg-type]
    with pytest.raises(CheckpointError, match=r"only a part of the group layer\. Save with"):
        whole.save_pretrained(tmp_path / "x")
    save_split(whole, tmp_path / "x")
    cut = tmp_path / "x/model.safetensors"
    cut.write_bytes(cut.read_bytes()[:-5])
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_split(tmp_path / "x")
    gap = mld.create_model("test_resnet", num_classes=5, head="gap", pretrained=False)
    with pytest.raises(ConfigError, match="Only an ML-Decoder head can be split over processes, got gap"):
        build_split(gap.config)
