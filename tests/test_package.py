import os
import subprocess
import sys
import tomllib
import venv
from importlib import import_module
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml

import mldecoder

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)], folder)
    (file,) = folder.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def empty_environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that holds the wheel and nothing else, not even its dependencies."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]
    run([*pip, "install", "--quiet", "--no-index", "--no-deps", str(wheel)], folder)
    return folder


def run(command: list[str], folder: Path, **environment: str) -> str:
    """Run a command in a folder outside the source tree, and give what it printed."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    result = subprocess.run(
        command, cwd=folder, env=clean | environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result.stdout.strip()


@pytest.mark.parametrize("name", mldecoder.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(mldecoder, name) is not None
    assert name in dir(mldecoder)


def test_the_public_names_are_sorted_and_unique() -> None:
    assert mldecoder.__all__ == sorted(set(mldecoder.__all__))


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'mldecoder' has no attribute 'MLEncoder'"):
        _ = mldecoder.MLEncoder  # type: ignore[attr-defined]


@pytest.mark.parametrize("module", ["mldecoder", "mldecoder.cli"])
def test_importing_the_package_or_its_command_line_does_not_import_torch(module: str, tmp_path: Path) -> None:
    code = f"import sys, {module}; print('torch' in sys.modules)"
    assert run([sys.executable, "-c", code], tmp_path, PYTHONPATH=str(ROOT / "src")) == "False"


def test_the_wheel_has_the_version_the_command_and_the_types(wheel: Path) -> None:
    assert wheel.name == f"mldecoder-{mldecoder.__version__}-py3-none-any.whl"
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
        info = f"mldecoder-{mldecoder.__version__}.dist-info"
        metadata = archive.read(f"{info}/METADATA").decode()
        assert "mldecoder = mldecoder.cli:main" in archive.read(f"{info}/entry_points.txt").decode()
    assert f"Version: {mldecoder.__version__}\n" in metadata
    assert "License-Expression: Apache-2.0\n" in metadata
    assert {"mldecoder/py.typed", f"{info}/licenses/LICENSE"} <= names
    assert {name.split("/")[0] for name in names} == {"mldecoder", info}  # no tests, no docs


def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    package = ROOT / "src" / "mldecoder"
    files = (path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    with ZipFile(wheel) as archive:
        assert {f"mldecoder/{path.relative_to(package).as_posix()}" for path in files} <= set(archive.namelist())


def test_the_installed_wheel_is_imported_in_an_empty_environment(empty_environment: Path) -> None:
    code = "import mldecoder; print(mldecoder.__version__, mldecoder.__file__)"
    printed = run([str(empty_environment / "bin" / "python"), "-c", code], empty_environment)
    version, file = printed.split(maxsplit=1)
    assert version == mldecoder.__version__
    assert Path(file).is_relative_to(empty_environment)
    assert (empty_environment / "bin" / "mldecoder").is_file()


def test_the_installed_wheel_works_with_its_dependencies(empty_environment: Path) -> None:
    (installed,) = empty_environment.glob("lib/python*/site-packages")
    code = (
        "import torch, mldecoder as mld; from pathlib import Path; "
        "[getattr(mld, name) for name in mld.__all__]; "
        "head = mld.MLDecoder(num_classes=7, in_features=16, width=32); "
        "print(tuple(head(torch.zeros(2, 16, 3, 3)).shape), Path(mld.__file__).parent.parent)"
    )
    printed = run([sys.executable, "-c", code], empty_environment, PYTHONPATH=str(installed), HF_HUB_OFFLINE="1")
    assert printed == f"(2, 7) {installed}"


def test_the_citation_names_this_version_and_the_paper() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == mldecoder.__version__
    assert (
        citation["license"]
        == tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["license"]
    )
    assert citation["preferred-citation"]["identifiers"][0]["value"] == "arXiv:2111.12933"


def test_the_console_script_names_a_function() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module, _, function = project["scripts"]["mldecoder"].partition(":")
    assert callable(getattr(import_module(module), function))
