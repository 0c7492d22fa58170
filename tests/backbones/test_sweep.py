from pathlib import Path

import pytest
import timm

from .sweep import CHOICES, page, sweep_module

DOCS = Path(__file__).parents[2] / "docs"


def test_every_timm_module_has_a_model_to_sweep() -> None:
    for module, model in CHOICES.items():
        if module in timm.list_modules():  # another version of timm may have others
            assert model in timm.list_models(module=module)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")  # timm's inception_next
def test_at_least_95_percent_of_timm_modules_give_features_and_gradients() -> None:
    rows = [sweep_module(module) for module in sorted(timm.list_modules())]
    DOCS.mkdir(exist_ok=True)
    (DOCS / "backbones.md").write_text(page(rows), encoding="utf-8")
    failed = [f"{row.module}: {row.error}" for row in rows if row.error]
    assert len(failed) <= 0.05 * len(rows), failed
