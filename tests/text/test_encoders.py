from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from mldecoder.errors import ConfigError, InputError
from mldecoder.text import ENCODERS, TextEncoder, encode_labels, encoder, explain_labels

from .files import write_text


def lengths(texts: Sequence[str]) -> Tensor:
    return torch.tensor([[float(len(text)), 1.0] for text in texts])


class Own:
    name = "own"
    width = 2

    def encode(self, texts: Sequence[str]) -> Tensor:
        return lengths(texts)


def test_names_rebuild_their_encoder(tmp_path: Path) -> None:
    path = write_text(tmp_path / "a+b c.txt", {"dog": [3.0, 4.0], "cat": [1.0, 0.0]})  # a plus in a path is no join
    for name in ("glove-50", f"words:{path}", f"glove-50+words:{path}", f"words:{path}+words:{path}"):
        found = encoder(name)
        assert found.name == name
        again = encoder(found.name)
        assert again.width == found.width
        assert torch.equal(again.encode(["dog"]), found.encode(["dog"]))


def test_joined_vectors_are_each_scaled_to_length_one(tmp_path: Path) -> None:
    path = write_text(tmp_path / "v.txt", {"dog": [3.0, 4.0], "cat": [1.0, 0.0]})
    joined = encoder(f"words:{path}+glove-50")
    assert joined.width == 52
    expected = torch.cat([torch.tensor([[0.6, 0.8]]), normalize(encoder("glove-50").encode(["dog"]), dim=1)], dim=1)
    torch.testing.assert_close(joined.encode(["dog"]), expected)
    [(_, told)] = explain_labels(["dogg"], joined)
    assert told == f"words:{path}: dog (nearest spelling of 'dogg'); glove-50: dogg"


def test_an_encoder_is_taken_as_it_is_and_a_function_is_wrapped() -> None:
    own = Own()
    assert encoder(own) is own
    found = encoder(lengths)
    assert isinstance(found, TextEncoder)
    assert (found.name, found.width) == ("function:tests.text.test_encoders.lengths", 2)
    assert torch.equal(found.encode(["dog", "horse"]), lengths(["dog", "horse"]))
    assert torch.equal(encode_labels(["dog"], lengths, normalise=False), lengths(["dog"]))
    assert explain_labels(["dog"], lengths) == [("dog", "the text 'dog'")]


def test_a_function_is_asked_again_when_its_name_is_all_that_is_left() -> None:
    with pytest.raises(ConfigError, match=r"function:a.b.*not saved with it. Pass the function itself"):
        encoder("function:a.b")


def test_a_function_must_return_one_row_a_text() -> None:
    with pytest.raises(InputError, match=r"must return a tensor \(2, width\) for so many texts, got \(1, 2\)"):
        encoder(lambda _: torch.zeros(1, 2)).encode(["a", "b"])
    with pytest.raises(InputError, match="got list"):
        encoder(lambda _: [1.0]).encode(["a"])  # type: ignore[arg-type, return-value]


def test_an_own_encoder_joins_the_dict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENCODERS, "own", lambda _: Own())
    assert encoder("own").width == 2
    assert encoder("own+glove-50").width == 52


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("glove50", r"one of glove-50, minilm, words:\.\.\., .*got 'glove50'. Did you mean 'glove-50'\?"),
        ("words:", "got 'words:'"),
        ("", "got ''"),
        ("glove-50+nothing", "got 'glove-50\\+nothing'"),
    ],
)
def test_an_unknown_name_shows_the_names(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        encoder(name)
    with pytest.raises(ConfigError, match="must be a name, an encoder or a function, got int"):
        encoder(3)  # type: ignore[arg-type]
