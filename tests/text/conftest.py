from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def cache_of_this_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test reads or writes the user's cache folder."""
    monkeypatch.setenv("MLDECODER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
