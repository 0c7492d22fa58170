import json
import signal
import subprocess
import time
from pathlib import Path

from tests.cli import command, environment, run

TINY = ("bench", "heads", "--device", "cpu", "--features", "16", "--tokens", "2x2", "--width", "32", "--ff-width", "48")


def test_the_heads_are_measured_with_a_peer_from_the_folder_one_works_in(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n"
        "class Head(nn.Sequential):\n"
        "    def __init__(self, num_classes, in_features):\n"
        "        super().__init__(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(in_features, num_classes))\n",
        encoding="utf-8",
    )
    words = command(*TINY, "--classes", "6", "--batch", "2", "--repeats", "2", "--peer", "mine:Head", "--out", "bench")
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=120, env=environment(), cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Training: speed" in done.stdout
    assert "Written to bench: heads.json, heads.md, heads.png." in done.stdout
    assert "8/8 mine:Head, 6 classes, infer: ok" in done.stderr
    found = json.loads((tmp_path / "bench" / "heads.json").read_text(encoding="utf-8"))
    assert [row["head"] for row in found["rows"][:4]] == ["gap", "transformer-decoder", "ml-decoder", "mine:Head"]
    assert found["command"].startswith("mldecoder bench heads --device cpu")


def test_a_wrong_name_is_one_line_that_names_the_nearest() -> None:
    done = run(*TINY, "--heads", "gap,ml-decodr")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "mldecoder: Unknown head 'ml-decodr'. Did you mean 'ml-decoder'?\n"


def test_stopping_leaves_what_was_measured(tmp_path: Path) -> None:
    words = command(
        *TINY, "--classes", "6,40,400,4000,40000", "--batch", "2", "--repeats", "100000", "--budget", "1.0",
        "--heads", "gap,ml-decoder", "--out", str(tmp_path),
    )  # fmt: skip
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
    path = tmp_path / "heads.json"
    end = time.monotonic() + 60
    while not path.exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Training: speed" in out
    assert "Stopped before the end." in out
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found["finished"] is False
    assert found["rows"][0]["head"] == "gap"
    assert (tmp_path / "heads.md").is_file()
