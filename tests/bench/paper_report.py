"""Tables and plots of what `paper.py` measured: ``python tests/bench/paper_report.py RESULTS.jsonl... FOLDER``.

Writes ``paper_time.svg`` and ``paper_throughput.svg`` to FOLDER, and Markdown to standard output.
"""

import json
import sys
from pathlib import Path

import matplotlib
from matplotlib import pyplot as plt

matplotlib.use("svg")
# "(near) real-time": the sensor's own pace, which the paper derives for its two scenes.
REAL_TIME = {"salinas": 1.767, "ksc": 3.929}
TITLES = {"salinas": "Salinas, 111 104 pixels", "ksc": "KSC (synthesised), 314 368 pixels"}
COLUMNS = (
    ("scipy", "one core", 1),
    ("quadprog", "one core", 1),
    ("inverse", "cpu", 4),
    ("delete-only", "cpu", 4),
    ("active-set", "cpu", 4),
    ("inverse", "cuda:0", 1),
    ("inverse", "cuda:0", 4),
    ("delete-only", "cuda:0", 1),
    ("delete-only", "cuda:0", 4),
    ("active-set", "cuda:0", 1),
    ("active-set", "cuda:0", 4),
)


def heading(column) -> str:
    """Of a column."""
    solver, device, streams = column
    where = {"one core": "one core", "cpu": "CPU"}.get(device, f"GPU, {streams} stream{'s' if streams > 1 else ''}")
    return f"{solver}, {where}"


def table(rows, scene: str, method: str) -> None:
    """Seconds, and the ratio of the first column to the last; then up to which p each column keeps real time."""
    found = {
        (row["p"], row["solver"], row["device"], row["streams"]): row["seconds"]
        for row in rows
        if row.get("scene") == scene and row["method"] == method
    }
    if not found:
        return
    columns = [column for column in COLUMNS if any(key[1:] == column for key in found)]
    counts = sorted({key[0] for key in found})
    print(f"\n{TITLES[scene]}, {method}; seconds:\n")
    print("| p | " + " | ".join(heading(column) for column in columns) + " | ratio |")
    print("| --- " * (len(columns) + 2) + "|")
    kept = dict.fromkeys(columns, "none")
    broken = set()
    for p in counts:
        values = [found.get((p, *column)) for column in columns]
        for column, value in zip(columns, values):
            if value is None or value > REAL_TIME[scene]:
                broken.add(column)
            elif column not in broken:
                kept[column] = str(p)
        words = ["–" if value is None else f"{value:.3g}" for value in values]
        print(f"| {p} | " + " | ".join(words) + f" | {values[0] / values[-1]:.0f} |")
    print(f"| real time ({REAL_TIME[scene]} s) up to p | " + " | ".join(kept[column] for column in columns) + " | |")


def plot_time(rows, folder: Path) -> None:
    """Time over p, fcls, both scenes."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
    for axis, scene in zip(axes, REAL_TIME):
        for column in COLUMNS:
            points = sorted(
                (row["p"], row["seconds"])
                for row in rows
                if row.get("scene") == scene
                and row["method"] == "fcls"
                and (row["solver"], row["device"], row["streams"]) == column
            )
            if points:
                axis.plot(*zip(*points), marker=".", label=heading(column))
        axis.axhline(REAL_TIME[scene], color="grey", linestyle=":")
        axis.set(title=f"{TITLES[scene]}, fcls", xlabel="endmembers", yscale="log")
    axes[0].set_ylabel("seconds, whole run")
    axes[1].legend(fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))
    figure.savefig(folder / "paper_time.svg", bbox_inches="tight", metadata={"Date": None})


def plot_throughput(rows, folder: Path) -> None:
    """Throughput over the number of pixels, and the copies that bound it."""
    figure, axis = plt.subplots(figsize=(6, 4))
    for device in ("cpu", "cuda:0"):
        some = sorted(
            (row for row in rows if row.get("scene") == "sizes" and row["device"] == device),
            key=lambda row: row["pixels"],
        )
        for what, style in (("seconds", "-"), ("copy", ":")):
            if some:
                name = {"cpu": "CPU", "cuda:0": "GPU"}[device]
                rates = [row["pixels"] / row[what] / 1e6 for row in some]
                label = f"{name}, run" if what == "seconds" else f"{name}, the copy that bounds it"
                axis.plot([row["pixels"] for row in some], rates, style, marker=".", label=label)
    axis.set(xlabel="pixels", ylabel="Mpixel/s", xscale="log", yscale="log", title="Salinas-A pixels, fcls, p = 9")
    axis.legend()
    figure.savefig(folder / "paper_throughput.svg", bbox_inches="tight", metadata={"Date": None})


def main() -> None:
    rows = [json.loads(line) for path in sys.argv[1:-1] for line in Path(path).read_text().splitlines()]
    folder = Path(sys.argv[-1])
    for scene in REAL_TIME:
        for method in ("nnls", "fcls"):
            table(rows, scene, method)
    matplotlib.rcParams["svg.hashsalt"] = "unmix"
    plot_time(rows, folder)
    plot_throughput(rows, folder)


if __name__ == "__main__":
    main()
