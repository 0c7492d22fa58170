"""The tool that measures very many classes, at small sizes on the CPU."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tools.extreme_memory import Setting, measure, sliced, table
from tools.live_bytes import LiveBytes

from mldecoder.heads import GroupLinear

SMALL = Setting(classes=3000, queries=30, batch=4, width=16, device="cpu", chunk=300, repeats=1, count=5)


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_the_tool_measures_every_part(dtype: str, tmp_path: Path) -> None:
    setting = Setting(**{**vars(SMALL), "dtype": dtype})
    rows = {str(row["part"]): row for row in measure(setting)}
    weights = rows["weights and bias"]["held, MiB"]
    assert weights == pytest.approx(4 * 3000 * (16 + 1) / 2**20, abs=1e-3)
    loss = rows["group FC + asymmetric loss, forwards and backwards"]
    a_few_values_a_class, block = 8 * 8 * 3000, 4 * 31 * 4 * 300
    assert 0 < float(loss["beyond, MiB"]) < (a_few_values_a_class + block) / 2**20
    assert rows["state and step of SGD"]["held, MiB"] == 0
    assert rows["state and step of AdamW"]["held, MiB"] == pytest.approx(2 * float(weights), abs=3e-3)
    assert float(rows["state and step of Adafactor"]["held, MiB"]) < 0.2 * float(weights)
    table(list(rows.values()), setting, "abc", "a desk").write(tmp_path)
    assert "3,000 classes" in (tmp_path / "extreme-classes.md").read_text()


def test_slices_take_the_same_step_and_less_memory() -> None:
    def build(parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=1e-2, foreach=False)

    layer, twin = GroupLinear(400, 20, 16), GroupLinear(400, 20, 16)
    twin.load_state_dict(layer.state_dict())
    layer.weight.grad = torch.randn_like(layer.weight)
    twin.weight.grad = layer.weight.grad.clone()
    whole, parts = build([twin.weight]), sliced(build, layer.weight[:5].numel() * 4)(layer)
    peaks = []
    for optimiser in (whole, parts):
        optimiser.step()
        with LiveBytes() as count:
            optimiser.step()
        peaks.append(count.peak)
    assert torch.equal(layer.weight, twin.weight)
    assert peaks[1] < 0.4 * peaks[0]  # a quarter, and one more buffer that lives a little longer


def test_torch_is_all_it_needs() -> None:
    program = """
import sys
for name in ("timm", "scipy", "torchvision", "numpy", "pydantic", "accelerate", "transformers"):
    if name not in sys.modules:
        sys.modules[name] = None
import tools.extreme_memory as tool
tool.measure(tool.Setting(classes=60, queries=3, batch=2, width=4, device="cpu", repeats=1, count=5))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
