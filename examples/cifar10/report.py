"""What a person sees of a run: the progress bar, the closing table, the plot, the JSON report.
Main entry: Progress, print_table(), save_plot(), write_report()."""

import json
import os
import shutil
import sys
import tempfile
import time


class Progress:
    """A bar on a terminal (nothing elsewhere), redrawn at most ten times a second."""

    def __init__(self, title, total, enabled=True, stream=sys.stderr):
        self.title, self.total, self.stream = title, max(total, 1), stream
        self.enabled = enabled and stream.isatty()
        self.drawn = 0.0

    def update(self, done, text):
        now = time.monotonic()
        if not self.enabled or (now - self.drawn < 0.1 and done < self.total):
            return
        self.drawn = now
        columns = shutil.get_terminal_size().columns
        left, right = f"{self.title} ", f" {done}/{self.total}  {text}"
        room = max(columns - len(left) - len(right) - 3, 5)
        filled = room * done // self.total
        self.stream.write(f"\r{left}[{'=' * filled}{' ' * (room - filled)}]{right}"[:columns])
        self.stream.flush()

    def close(self):
        if self.enabled:
            self.stream.write("\r" + " " * (shutil.get_terminal_size().columns - 1) + "\r")
            self.stream.flush()


def duration(seconds):
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{seconds:.1f} s"


def print_table(rows):
    """Two columns, in a frame."""
    width = max(len(key) for key, _ in rows)
    content = max(len(str(value)) for _, value in rows)
    rule = "+" + "-" * (width + 2) + "+" + "-" * (content + 2) + "+"
    print(rule)
    for key, value in rows:
        print(f"| {key:<{width}} | {value!s:<{content}} |")
    print(rule, flush=True)


def save_plot(path, history, title):
    """Loss and accuracy by epoch as a PNG. Returns False where matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    epochs = [row["epoch"] for row in history]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    left.plot(epochs, [row["train_loss"] for row in history], marker="o", label="train")
    left.plot(epochs, [row["test_loss"] for row in history], marker="o", label="test")
    left.set(xlabel="epoch", ylabel="loss", title="Loss")
    right.plot(epochs, [100 * row["train_accuracy"] for row in history], marker="o", label="train")
    right.plot(epochs, [100 * row["test_accuracy"] for row in history], marker="o", label="test")
    right.set(xlabel="epoch", ylabel="accuracy (%)", title="Accuracy")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend()
        axes.xaxis.get_major_locator().set_params(integer=True)
    figure.suptitle(title)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return True


def write_report(path, report):
    """The JSON file is complete or not there: written beside its place and renamed."""
    folder = os.path.dirname(os.path.abspath(path))
    handle, temporary = tempfile.mkstemp(dir=folder, suffix=".tmp")
    try:
        with os.fdopen(handle, "w") as file:
            json.dump(report, file, indent=2)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
