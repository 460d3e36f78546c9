"""Training and inference of the CIFAR-10 nets beside PyTorch: images/s, ratio, peak memory, all in one run.

    ./dev bench train                              ResNet-18 and ResNet-20, in every precision there is
    ./dev bench train --net resnet18 --precision float32 --json FILE
    ./dev bench train --inference                  batch 1 and 64

PyTorch is taken from --torch PYTHON (an interpreter that has it), $ANELLO_TORCH_PYTHON, this one, or the system's
python3. All contenders stay alive and take turns, round by round; the figures are medians over all steps.
Main entry: main().
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

import anello

WORKERS = Path(__file__).resolve().parent / "workers"
BATCHES = {"resnet18": 64, "resnet20": 128}


class Worker:
    """A contender: a process that runs steps when it is asked to."""

    def __init__(self, label, python, program, options, env=None):
        self.label, self.options, self.seconds, self.peak = label, options, [], None
        command = [python, str(WORKERS / program), json.dumps(options)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True, env={**os.environ, **(env or {})})  # fmt: skip
        self.facts = self._answer()

    def _answer(self):
        line = self.process.stdout.readline()
        if not line:
            reason = self.process.stderr.read().strip().splitlines()
            raise RuntimeError(f"[bench] {self.label} ended: {reason[-1] if reason else 'no output'}")
        return json.loads(line)

    def run(self, steps):
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        self.seconds += self._answer()

    def end(self):
        self.process.stdin.close()
        self.peak = self._answer()["peak_bytes"]
        self.process.wait()

    @property
    def rate(self):
        return self.options["batch"] / statistics.median(self.seconds)


def find_torch(wanted):
    """An interpreter that has PyTorch, or None."""
    candidates = [wanted] if wanted else [os.environ.get("ANELLO_TORCH_PYTHON"), sys.executable, "/usr/bin/python3"]
    for python in filter(None, candidates):
        try:
            found = subprocess.run([python, "-c", "import torch"], capture_output=True, check=False)
        except OSError:
            continue
        if found.returncode == 0:
            return python
    if wanted:
        sys.exit(f"[bench] {wanted} cannot import torch. Hint: an interpreter whose environment has PyTorch.")
    return None


def contenders(args, net, batch, precision):
    options = {"net": net, "batch": batch, "precision": precision, "threads": args.threads, "mode": args.mode}
    avx2 = {"ANELLO_CPU": "avx2"} if args.avx2 else {}
    limited = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"} if args.avx2 else {}
    made = [Worker("anello", sys.executable, "train_anello.py", options, avx2)]
    if args.torch is None:
        return made
    variants = [("torch channels_last", {}), ("torch nchw", {"channels_last": False})]
    if args.compile:
        variants.append(("torch.compile", {"compile": True}))
    for label, extra in variants:
        try:
            made.append(Worker(label, args.torch, "train_torch.py", {**options, **extra}, limited))
        except RuntimeError as error:
            print(f"  {label}: left out, {error}", file=sys.stderr)
    return made


def measure(args, net, batch, precision):
    """One table: every contender's images/s and memory, and the ratio to the best of the peers."""
    workers = contenders(args, net, batch, precision)
    for _ in range(args.rounds):
        for worker in workers:
            worker.run(args.steps)
    for worker in workers:
        worker.end()
    peers = [w.rate for w in workers[1:]]
    rows = []
    print(f"\n{net}, {args.mode}, batch {batch}, {precision}, {args.threads} threads")
    for w in workers:
        quartiles = statistics.quantiles(w.seconds * 2, n=4)  # twice the same: also of a single step
        row = {
            "contender": w.label,
            **w.facts,
            **w.options,
            "images_per_second": w.rate,
            "step_seconds": statistics.median(w.seconds),
            "spread": (quartiles[2] - quartiles[0]) / statistics.median(w.seconds),
            "peak_bytes": w.peak,
            "ratio": workers[0].rate / w.rate,
        }
        rows.append(row)
        print(f"  {w.label:<20} {w.facts['version']:<14} {w.rate:9.1f} images/s  spread {100 * row['spread']:4.1f} %"
              f"  memory {w.peak / 2**20:7.0f} MiB  anello is {row['ratio']:.2f}x")  # fmt: skip
    if peers:
        print(f"  anello against the best peer: {workers[0].rate / max(peers):.2f}x")
    return rows


def processor():
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return value


def main():
    p = argparse.ArgumentParser(prog="./dev bench train", description="Anello beside PyTorch.", allow_abbrev=False)
    p.add_argument("--net", choices=sorted(BATCHES), action="append", help="default: both")
    p.add_argument("--precision", choices=["float32", "bfloat16"], action="append", help="default: all there are")
    p.add_argument("--inference", dest="mode", action="store_const", const="inference", default="train")
    p.add_argument("--batch", type=positive, action="append", help="default: the net's; inference 1 and 64")
    p.add_argument("--threads", type=positive, default=len(os.sched_getaffinity(0)))
    p.add_argument("--rounds", type=positive, default=5, help="turns of each contender")
    p.add_argument("--steps", type=positive, default=3, help="steps a turn")
    p.add_argument("--torch", metavar="PYTHON", help="an interpreter that has PyTorch")
    p.add_argument("--compile", action="store_true", help="torch.compile too (takes minutes)")
    p.add_argument("--avx2", action="store_true", help="limit both to AVX2")
    p.add_argument("--json", metavar="FILE", help="write all figures")
    args = p.parse_args()
    there = ["float32", "bfloat16"] if hasattr(anello, "autocast") else ["float32"]
    if not set(args.precision or there) <= set(there):
        p.exit(2, f"[bench] this version of Anello has no autocast. Hint: --precision {there[0]}\n")
    args.torch = find_torch(args.torch)
    if args.torch is None:
        print("PyTorch was not found: Anello alone. Hint: --torch PYTHON, or pip install torch.")
    rows = []
    for net in args.net or sorted(BATCHES):
        default = [1, 64] if args.mode == "inference" else [BATCHES[net]]
        for batch in args.batch or default:
            for precision in args.precision or there:
                rows += measure(args, net, batch, precision)
    if args.json:
        facts = {"date": time.strftime("%Y-%m-%d"), "cpu": processor(), "rows": rows}
        Path(args.json).write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    try:
        main()
    except RuntimeError as error:
        sys.exit(str(error))
