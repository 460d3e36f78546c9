"""Steps of one net in Anello. Main entry: train_anello.py '{"net": "resnet18", "batch": 64, ...}'."""

import contextlib
import json
import sys
from pathlib import Path

from timed import resident_bytes, serve

import anello

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples/cifar10"))


def main():
    after_import = resident_bytes()
    import models

    a = json.loads(sys.argv[1])
    anello.set_num_threads(a["threads"])
    anello.manual_seed(0)
    model = models.MODELS[a["net"]]()
    x, labels = anello.randn(a["batch"], 32, 32, 3), anello.randint(0, 10, (a["batch"],))
    low = a["precision"] == "bfloat16"

    def forward():
        with anello.autocast(dtype=anello.bfloat16) if low else contextlib.nullcontext():
            return model(x).float()

    if a["mode"] == "inference":
        model.eval()

        def step():
            with anello.no_grad():
                forward()
    else:
        optimizer = anello.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)

        def step():
            optimizer.zero_grad()
            loss = anello.nn.functional.cross_entropy(forward(), labels)
            loss.backward()
            optimizer.step()
            loss.item()

    for _ in range(3):
        step()
    serve(step, {"version": anello.__version__, "isa": anello.cpu_isa()}, after_import)


main()
