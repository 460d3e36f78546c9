"""The program of test_dist.py: one case of it by name, on every rank; each writes what it found into a JSON file.

Main entry: the functions, chosen by the first argument; the second is the folder of the results.
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import anello
from anello import dist, nn, optim
from anello.dist import functional


def network():
    anello.manual_seed(5 + dist.rank())  # the ranks start apart: DataParallel gives them rank 0's
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.GlobalAvgPool2d(), nn.Linear(6, 4)
    ).double()


def losses():
    """20 steps in float64 with SyncBatchNorm, the same global batches for any number of ranks."""
    model = dist.DataParallel(dist.SyncBatchNorm.convert(network()), check_every=1)
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    size, rank = dist.size(), dist.rank()
    seen = []
    for step in range(20):
        anello.manual_seed(1000 + step)
        x = anello.randn(8, 6, 6, 3, dtype=anello.float64)
        y = anello.arange(8) % 4
        share = slice(rank * 8 // size, (rank + 1) * 8 // size)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x[share]), y[share])
        loss.backward()
        optimizer.step()
        seen.append(dist.all_reduce(loss.detach().reshape(1), "average").item())
    return seen


def collectives():
    comm, rank, size = dist.world(), dist.rank(), dist.size()
    x = anello.arange(4) + rank
    found = {"sum": dist.all_reduce(x.clone()).tolist(), "max": dist.all_reduce(x.clone(), "max").tolist()}
    found["broadcast"] = dist.broadcast(x.clone(), root=size - 1).tolist()
    found["gathered"] = dist.all_gather(anello.full((rank + 1,), rank, dtype=anello.int64)).tolist()
    found["scattered"] = dist.reduce_scatter(anello.ones(size, 2)).tolist()
    found["exchanged"] = dist.all_to_all(anello.full((size,), rank, dtype=anello.int64)).tolist()
    found["gather"] = [t.tolist() for t in dist.gather(x, root=0)]
    found["scatter"] = dist.scatter([x + i for i in range(size)] if rank == 0 else []).tolist()
    found["object"] = dist.broadcast_object({"from": rank}, root=size - 1)
    found["objects"] = dist.all_gather_object(["rank", rank])
    work = comm.all_gather_async(anello.full((1,), rank, dtype=anello.int64), name="later")
    found["async"] = work.wait().tolist()
    if rank == 0:
        dist.send(anello.ones(3), to=size - 1, tag=7)
    if rank == size - 1:
        found["received"] = dist.recv(anello.zeros(3), from_=0, tag=7).tolist()
    group = comm.split(color=rank % 2)
    found["group"] = [group.rank(), group.size()]
    y = anello.full((2,), float(rank), requires_grad=True)
    (functional.all_gather(y) * (rank + 1)).sum().backward()
    found["gradient"] = y.grad.tolist()
    dist.barrier()
    return found


def uneven():
    """Ranks with 2, 3, ... batches of different sizes: what each step's gradient is, and whether all end alike."""
    rank = dist.rank()
    found = []
    net = nn.Linear(1, 1, bias=False).double()
    model = dist.DataParallel(net)
    data = [anello.full((rank + 1, 1), float(rank + 1), dtype=anello.float64)] * (2 + rank)
    for x in dist.even_batches(data):
        model.module.zero_grad()
        out = model(x)
        (out.mean() if len(x) else out.sum()).backward()
        found.append(net.weight.grad.item())
    with model.join():
        for x in data:
            model.module.zero_grad()
            model(x).mean().backward()
    model.check_parameters()
    return found


def forms():
    """Arguments and results of any form; no_sync; a wrapper whose state is that of the module inside."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(2, 1)
            self.spare = nn.Linear(2, 1)

        def forward(self, pair, scale=1.0):
            return {"out": self.fc(pair["x"]) * scale}

    net = Net()
    model = dist.DataParallel(net, bucket_mb=1e-5, first_bucket_mb=1e-5)
    with model.no_sync():
        model({"x": anello.ones(3, 2)}, scale=dist.rank() + 1.0)["out"].mean().backward()
    model({"x": anello.ones(1, 2)}, scale=dist.rank() + 1.0)["out"].mean().backward()
    return {
        "state": list(model.state_dict()),
        "names": [name for name, p in model.named_parameters()],
        "samples": model.report.samples,
        "unused": model.report.unused,
        "spare": net.spare.weight.grad is None,
        "grad": net.fc.weight.grad.tolist(),
    }


def shards():
    """What each rank sees of two epochs, and of the rest of one that another number of ranks began."""
    dataset = anello.data.TensorDataset(anello.arange(23).reshape(23, 1), anello.arange(23))
    options = {"batch_size": 3, "shuffle": True, "seed": 4, "rank": dist.rank(), "size": dist.size()}
    loader = anello.data.DataLoader(dataset, **options)
    epochs = [[y.tolist() for x, y in loader] for _ in range(2)]
    begun = anello.data.DataLoader(dataset, batch_size=3, shuffle=True, seed=4)
    iterator = iter(begun)
    first = [next(iterator)[1].tolist() for _ in range(2)]
    loader.load_state_dict(begun.state_dict())
    return {"epochs": epochs, "first": first, "rest": [y.tolist() for x, y in loader]}


def nothing_blocks():
    """Other Python threads run while a rank waits for another one."""
    count = [0]

    def tick():
        while count[0] >= 0:
            count[0] += 1
            time.sleep(0.005)

    thread = threading.Thread(target=tick)
    thread.start()
    if dist.rank() == 0:
        time.sleep(0.5)
    dist.barrier()
    seen, count[0] = count[0], -10
    thread.join()
    return seen


def interrupted():
    """Ctrl-C ends a wait for a rank that does not come."""
    if dist.rank() != 0:
        time.sleep(1)
        return "slept"
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    start = time.monotonic()
    try:
        dist.all_reduce(anello.ones(3))
    except KeyboardInterrupt:
        return "interrupted" if time.monotonic() - start < 2 else "late"
    return "nothing"


def dropout():
    anello.manual_seed(1)
    dist.DataParallel(nn.Linear(1, 1))
    return nn.Dropout(0.5)(anello.ones(32)).tolist()


if __name__ == "__main__":
    dist.world().stall_timeout = 20
    result = globals()[sys.argv[1]]()
    (Path(sys.argv[2]) / f"{dist.rank()}.json").write_text(json.dumps(result))
    if sys.argv[1] == "interrupted":
        time.sleep(1.5)
        os._exit(0)  # the group is left in the middle of an operation
