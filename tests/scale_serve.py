"""Deploys the Serve config of ``examples/scale`` on a Ray of its own and asks it about one picture; run as a program.

    python scale_serve.py CONFIG MODEL PICTURE HTTP_PORT DASHBOARD_PORT

It prints the status of an answer without a token, of one with it, and the labels of that one, as JSON.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

import httpx
import ray
import yaml
from ray import serve

__all__: list[str] = []


def deployed(config: Path, dashboard: str) -> str:
    """Send the config as an operator does, and wait until it runs or fails."""
    program = str(Path(sys.executable).with_name("serve"))
    subprocess.run([program, "deploy", "-a", f"http://{dashboard}", str(config)], check=True, capture_output=True)
    while True:
        found = serve.status().applications.get("mldecoder")
        if found is not None and found.status in {"RUNNING", "DEPLOY_FAILED"}:
            return f"{found.status.value} {found.message}".strip()
        time.sleep(0.5)


def main(config: Path, model: str, picture: Path, port: int, dashboard_port: int) -> None:
    """Deploy, ask, and end."""
    content = yaml.safe_load(config.read_text(encoding="utf-8"))
    content["http_options"] |= {"host": "127.0.0.1", "port": port}
    content["applications"][0]["args"] = {"run": model, "replicas": 1, "cpus": 1, "gpus": 0}
    config.write_text(yaml.safe_dump(content), encoding="utf-8")
    ray.init(
        include_dashboard=True,
        dashboard_port=dashboard_port,
        num_cpus=2,
        object_store_memory=100 * 2**20,
        log_to_driver=False,
        _node_ip_address="127.0.0.1",
    )
    try:
        said = {"status": deployed(config, f"127.0.0.1:{dashboard_port}")}
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            without = client.post("/predict", content=picture.read_bytes())
            token = {"Authorization": "Bearer word"}
            answer = client.post("/predict", content=picture.read_bytes(), headers=token)
        tags = [tag["label"] for tag in answer.json()["tags"]]
        sys.stdout.write(json.dumps(said | {"without": without.status_code, "with": answer.status_code, "tags": tags}))
        serve.shutdown()  # type: ignore[no-untyped-call]
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
