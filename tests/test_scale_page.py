"""The page "Past one machine": its commands, the files it shows, and the figures of its cost model."""

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from tools import scale_cost
from tools.scale_cost import FEW, MANY, Figures, kept, layer_gib, measured_gib, read_figures, rows, training_seconds
from tools.scale_index import index_bytes, order_bytes
from tools.scale_page import PAGE, fill, page_tables
from torch.distributed.run import get_args_parser

from mldecoder.cli import app
from mldecoder.recipes import load_recipe
from tests.scale_schema import problems

ROOT = Path(__file__).parents[1]
HOME = ROOT / "examples" / "scale"
TEXT = PAGE.read_text(encoding="utf-8")
FILES = sorted(HOME.glob("*.yaml"))
SCRIPTS = sorted(HOME.glob("*.slurm"))
SBATCH = {"job-name", "nodes", "ntasks-per-node", "gpus-per-node", "cpus-per-task", "time", "requeue", "open-mode"}
"""Options of sbatch that the scripts may use, from https://slurm.schedmd.com/sbatch.html."""


def documents(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def inside(value: Any, name: str) -> Iterator[Any]:  # noqa: ANN401 - what YAML gives
    """Everything that stands under a name, however deep."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == name:
                yield inner
            yield from inside(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from inside(inner, name)


def lines_of_shell(text: str) -> Iterator[list[str]]:
    """The words of each command of a script, lines that go on joined."""
    for line in text.replace("\\\n", " ").splitlines():
        if "mldecoder" in line and not line.lstrip().startswith(("#", "export", "kubectl", "pip")):
            yield shlex.split(line, comments=True)


def commands() -> Iterator[tuple[str, list[str]]]:
    """Every command that names mldecoder, with where it stands."""
    for path in FILES:
        for document in documents(path):
            for line in inside(document, "entrypoint"):
                yield path.name, shlex.split(line)
            for container in (one for group in inside(document, "containers") for one in group):
                if "command" in container:
                    yield path.name, [*container["command"], *container.get("args", [])]
    for path in SCRIPTS:
        for words in lines_of_shell(path.read_text(encoding="utf-8")):
            yield path.name, words
    for block in re.findall(r"^```bash\n(.*?)^```", TEXT, flags=re.DOTALL | re.MULTILINE):
        for words in lines_of_shell(block):
            yield PAGE.name, words


COMMANDS = [(where, words) for where, words in commands() if "mldecoder" in words]


def own_words(words: list[str]) -> list[str]:
    """What mldecoder itself is told."""
    return words[len(words) - words[::-1].index("mldecoder") :]


def named(value: object) -> str:
    return " ".join(value)[-60:] if isinstance(value, list) else str(value)


def parsed(words: list[str]) -> dict[str, Any]:
    """Parse as the command line does, and run nothing."""
    group = typer.main.get_group(app)
    verb, *arguments = words
    with group.make_context("mldecoder", [verb]) as context:
        found = group.get_command(context, verb)
        assert found is not None, f"mldecoder has no verb {verb!r}"
        return dict(found.make_context(verb, arguments, parent=context).params)


def test_every_verb_of_the_page_is_shown_somewhere() -> None:
    assert {own_words(words)[0] for _, words in COMMANDS} == {"shard", "train", "predict", "serve"}
    assert {where for where, _ in COMMANDS} == {
        "scale.md",
        "tag-rayjob.yaml",
        "tag.slurm",
        "train-job.yaml",
        "train.slurm",
    }


@pytest.mark.parametrize(("where", "words"), COMMANDS, ids=named)
def test_commands_have_verbs_options_and_settings_that_there_are(where: str, words: list[str]) -> None:
    values = parsed(own_words(words))
    load_recipe(values.get("recipe") or "quick", values.get("set_") or [])
    assert where


def test_options_in_sentences_are_those_of_the_command_line_or_of_a_launcher() -> None:
    group = typer.main.get_group(app)
    verbs = {}
    with group.make_context("mldecoder", ["train"]) as context:
        for verb in group.list_commands(context):
            found = group.get_command(context, verb)
            assert found is not None
            verbs[verb] = {name for option in found.params for name in option.opts}
    launchers = {name for option in get_args_parser()._actions for name in option.option_strings}
    launchers |= {"--requeue", "--head", "--address", "--generate"}  # of sbatch and ray
    for shown in re.findall(r"`([^`\n]*)`", re.sub(r"^```.*?^```", "", TEXT, flags=re.DOTALL | re.MULTILINE)):
        start, *words = shown.split() or [""]
        verb = words[0] if start == "mldecoder" and words else start
        options = {word for word in shown.split() if word.startswith("--")}
        assert options <= (verbs[verb] if verb in verbs else set().union(*verbs.values(), launchers)), shown


@pytest.mark.parametrize("words", [words for _, words in COMMANDS if "torchrun" in words], ids=named)
def test_torchrun_understands_its_options(words: list[str]) -> None:
    given_ = get_args_parser().parse_args(words[words.index("torchrun") + 1 :])
    assert (given_.module, given_.training_script) == (True, "mldecoder")
    assert given_.training_script_args == own_words(words)
    assert int(given_.max_restarts) > 0
    assert "--output" in " ".join(given_.training_script_args), "a run that is started anew must find itself"


@pytest.mark.parametrize("words", [words for _, words in COMMANDS if "symmetric-run" in words], ids=named)
def test_ray_understands_its_options(words: list[str]) -> None:
    run = pytest.importorskip("ray.scripts.symmetric_run").symmetric_run
    known = {name for option in run.params for name in option.opts}
    mine = words[words.index("symmetric-run") + 1 : words.index("--")]
    assert {word for word in mine if word.startswith("--")} <= known


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_whole_for_the_shell_and_for_slurm(path: Path) -> None:
    done = subprocess.run(["bash", "-n", str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    options = re.findall(r"^#SBATCH --([\w-]+)", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert options
    assert set(options) <= SBATCH


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_yaml_has_the_fields_that_kuberay_and_kubernetes_know(path: Path) -> None:
    for document in documents(path):
        assert problems(document) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "RayJobs"}, "ray.io/v1 RayJobs is not known here"),
        ({"metadata": {}}, "metadata.name is missing"),
        ({"spec": {"entryPoint": "x"}}, "spec.entryPoint is not a field"),
        ({"spec": {"backoffLimit": "3"}}, "spec.backoffLimit has the wrong type, got '3'"),
        ({"spec": {"suspend": 1}}, "spec.suspend has the wrong type, got 1"),
        ({"spec": {"rayClusterSpec": {"workerGroupSpecs": {}}}}, "spec.rayClusterSpec.workerGroupSpecs must be a list"),
        (
            {"spec": {"rayClusterSpec": {"workerGroupSpecs": [{"replica": 1}]}}},
            "spec.rayClusterSpec.workerGroupSpecs[0].replica is not a field",
        ),
    ],
)
def test_a_wrong_field_is_seen(change: dict[str, Any], said: str) -> None:
    right = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "a"}, "spec": {"entrypoint": "x"}}
    assert problems(right) == []
    assert any(line.startswith(said) for line in problems(right | change))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_what_is_mounted_is_a_volume_and_what_is_named_is_there(path: Path) -> None:
    found = documents(path)
    for pod in (spec for document in found for spec in inside(document, "spec") if "containers" in spec):
        volumes = {volume["name"] for volume in pod.get("volumes", [])}
        mounts = {mount["name"] for one in pod["containers"] for mount in one.get("volumeMounts", [])}
        assert mounts == volumes
    for name in (volume["name"] for document in found for volume in inside(document, "configMap")):
        assert name in {document["metadata"]["name"] for document in found if document["kind"] == "ConfigMap"}


def test_the_pods_of_the_job_meet_under_the_name_of_the_first() -> None:
    service, job = documents(HOME / "train-job.yaml")
    [container] = job["spec"]["template"]["spec"]["containers"]
    name, subdomain = job["metadata"]["name"], job["spec"]["template"]["spec"]["subdomain"]
    assert subdomain == service["metadata"]["name"]
    assert service["spec"]["selector"] == {"job-name": name}
    assert f"--rdzv-endpoint={name}-0.{subdomain}:29400" in container["args"]
    assert f"--nnodes={job['spec']['completions']}" in container["args"]
    gpus = container["resources"]["limits"]["nvidia.com/gpu"]
    assert f"--nproc-per-node={gpus}" in container["args"]
    batch = parsed(own_words(container["args"]))["set_"][0]
    assert int(batch.partition("=")[2]) % (gpus * job["spec"]["completions"]) == 0


def test_the_ray_version_is_one_that_was_tried() -> None:
    pytest.importorskip("ray")
    import ray

    versions = {version for path in FILES for document in documents(path) for version in inside(document, "rayVersion")}
    assert {tuple(version.split(".")[:2]) for version in versions} == {tuple(ray.__version__.split(".")[:2])}


def test_the_serve_config_builds_what_the_command_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's own schema reads it; the builder in the config map makes the application that the front looks for."""
    schema = pytest.importorskip("ray.serve.schema")
    from ray.serve import Application

    from mldecoder.serve.ask import NAME

    monkeypatch.delenv("MLDECODER_TOKEN", raising=False)
    code, service = documents(HOME / "serve-rayservice.yaml")
    config = schema.ServeDeploySchema.model_validate(yaml.safe_load(service["spec"]["serveConfigV2"]))
    [one] = config.applications
    module, _, function = one.import_path.partition(":")
    names: dict[str, Any] = {}
    exec(code["data"][f"{module}.py"], names)
    assert isinstance(names[function](one.args), Application)
    assert one.name == NAME
    cluster = service["spec"]["rayClusterConfig"]
    [workers] = cluster["workerGroupSpecs"]
    [limits] = [container["resources"]["limits"] for container in workers["template"]["spec"]["containers"]]
    assert one.args["replicas"] * one.args["gpus"] <= workers["replicas"] * limits["nvidia.com/gpu"]
    assert one.args["cpus"] <= limits["cpu"]


@pytest.mark.slow
def test_the_serve_config_answers_as_predict_does(tmp_path: Path) -> None:
    """Sent to a local Ray as the operator would send it."""
    pytest.importorskip("ray.serve")
    import mldecoder as mld
    from mldecoder.data import scenes
    from mldecoder.predict import Predictor

    code, service = documents(HOME / "serve-rayservice.yaml")
    (tmp_path / "serving.py").write_text(code["data"]["serving.py"], encoding="utf-8")
    (tmp_path / "serve.yaml").write_text(service["spec"]["serveConfigV2"], encoding="utf-8")
    model = mld.create_model("test_resnet", labels=scenes.LABELS, img_size=64).eval()
    model.save_pretrained(tmp_path / "model")
    Image.fromarray(scenes.draw(1, "val")[0]).save(tmp_path / "one.png")
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        ports = [str(listener.getsockname()[1]) for listener in (one, other)]
    own = {"PYTHONPATH": str(tmp_path), "MLDECODER_TOKEN": "word", "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run(
        [
            sys.executable,
            str(ROOT / "tests" / "scale_serve.py"),
            *(str(tmp_path / name) for name in ("serve.yaml", "model", "one.png")),
            *ports,
        ],
        env=os.environ | own | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    [said] = Predictor(model)(tmp_path / "one.png")
    expected = [tag.label for tag in said.tags]
    assert json.loads(done.stdout) == {"status": "RUNNING", "without": 401, "with": 200, "tags": expected}


# the cost model


@pytest.fixture(scope="module")
def figures() -> Figures:
    return read_figures(kept()[0])


def test_the_table_and_the_page_are_what_the_model_computes(figures: Figures) -> None:
    made = rows(figures, kept()[1])
    written = json.loads((ROOT / "benchmarks" / "scale-cost.json").read_text(encoding="utf-8"))["rows"]
    assert made == written, "run python -m tools.scale_cost --write"
    assert fill(TEXT, page_tables(made)) == TEXT
    assert fill(TEXT, dict.fromkeys(page_tables(made), "nothing")) != TEXT


def test_every_figure_says_how_it_came_about_and_from_what(figures: Figures) -> None:
    for row in rows(figures, kept()[1]):
        assert row["standing"] in {"measured", "counted", "extrapolated"}
        assert row["from"]
        for name in re.findall(r"\b(coco-pipeline|head-speed|extreme-classes|split-head)\b", str(row["from"])):
            assert (ROOT / "benchmarks" / f"{name}.json").is_file()


def test_all_sizes_that_were_asked_for_are_there(figures: Figures) -> None:
    wanted = {(p, c, d) for p in (10**6, 10**8, 10**10) for c in (10**4, 10**6) for d in (1, 8, 64)}
    made = rows(figures, kept()[1])
    for what in ("training, an epoch", "tagging, as decoding", "tagging, as training"):
        assert {(r["pictures"], r["classes"], r["devices"]) for r in made if r["what"] == what} == wanted


def test_what_is_measured_keeps_near_the_formula(figures: Figures) -> None:
    assert layer_gib(MANY, 1, split=False) == pytest.approx(measured_gib(figures), rel=0.03)
    assert figures.formula < 0.03


def test_a_million_classes_by_hand(figures: Figures) -> None:
    """The same sum, written out."""
    f = figures
    slow = 1 / f.train + 9 * f.head / 1e6 + f.loss / 1e3 / 256 + f.adamw / 1e3 / 256
    assert training_seconds(f, MANY) == pytest.approx(slow)
    assert 1 / f.train < training_seconds(f, FEW) < training_seconds(f, MANY)


@settings(max_examples=20)
@given(devices=st.integers(1, 64), many=st.booleans())
def test_a_split_layer_takes_no_more_than_the_whole_one(devices: int, many: bool) -> None:
    size = MANY if many else FEW
    split, whole = layer_gib(size, devices, split=True), layer_gib(size, devices, split=False)
    assert split <= whole
    assert scale_cost.moved_mib(size, devices, split=True) >= 0


def test_the_page_tells_the_figures_of_the_split_head() -> None:
    table = json.loads((ROOT / "benchmarks" / "split-head.json").read_text(encoding="utf-8"))["rows"]
    of = {(row["processes"], row["classes"]): row for row in table}
    assert f"holds {of[2, 200_000]['of one process']} and of four {of[4, 200_000]['of one process']}" in TEXT
    assert f"{of[1, 10_000_000]['weights'] / 1024:.0f} GiB of weights" in TEXT
    assert f"{of[8, 10_000_000]['by the formula'] / 1024:.1f} GiB each" in TEXT


def test_the_page_tells_what_an_index_takes(figures: Figures) -> None:
    assert f"about {figures.index:.0f} bytes in the index and {figures.memory:.0f} in memory" in TEXT


def test_an_index_takes_in_memory_what_its_columns_add_up_to() -> None:
    file, memory = index_bytes(20_000)
    # shard, offset, size, crc; end and text of the name; end of the labels; three labels of five bytes
    assert memory == pytest.approx(4 + 8 + 8 + 4 + 8 + 13 + 8 + 3 * 5, abs=0.5)
    assert 10 < file < memory


def test_an_order_takes_several_numbers_a_picture() -> None:
    assert 8 < order_bytes(20_000) < 100
