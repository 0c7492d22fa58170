"""The table of ``make demo``, from the two runs that it left.

make demo && python -m tools.demo_table --hardware "two CPU cores" --commit HASH
"""

import argparse
import json
from pathlib import Path

from tools.tables import Table


def main() -> None:
    """Read both runs and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs/demo"))
    parser.add_argument("--hardware", required=True)
    parser.add_argument("--commit", required=True)
    arguments = parser.parse_args()
    rows = []
    for name, folder in (("GAP", "gap"), ("ML-Decoder", "ml-decoder")):
        metrics = json.loads((arguments.runs / folder / "metrics.json").read_text())
        rows.append(
            {
                "head": name,
                "mAP": f"{metrics['mAP']:.2f}",
                "OF1": f"{metrics['OF1']:.2f}",
                "epochs": metrics["epochs"],
                "training seconds": round(metrics["seconds"]),
            }
        )
    Table(
        "scenes-demo",
        "The demo: drawn scenes, average pooling beside ML-Decoder",
        "make demo",
        arguments.commit,
        arguments.hardware,
        rows,
        "The same recipe (`scenes`) and epochs for both; mAP and OF1 in percent on 2,000 held-out pictures, of the "
        "best epoch's weights.",
    ).write()


if __name__ == "__main__":
    main()
