"""Trains an image classifier on CIFAR-10.

    train.py                                        a few minutes: the airbench net, two epochs
    train.py --model airbench                       the full recipe: 94 % in eight epochs
    train.py --model resnet20 --epochs 10 --data ~/cifar-10-batches-bin
    anello run -n 4 train.py ...                    the same on four ranks: batches are shared, results are the same

Main entry: main()."""

import argparse
import difflib
import math
import os
import resource
import sys
import tempfile
import time

from models import MODELS, build
from recipes import OPTIMIZERS, SCHEDULES, Recipe, augmentation, fill_defaults
from report import Progress, duration, print_table, save_plot, write_report

import anello
from anello import dist, timeline

# Options that decide what is computed: a resumed run takes them from the checkpoint.
FIXED = [
    "model",
    "data",
    "epochs",
    "batch_size",
    "seed",
    "optimizer",
    "lr",
    "momentum",
    "weight_decay",
    "schedule",
    "label_smoothing",
]


class Parser(argparse.ArgumentParser):
    """An unknown option names the nearest one."""

    def error(self, message):
        if message.startswith("unrecognized arguments:"):
            wrong = message.split(":", 1)[1].split()[0]
            options = [o for action in self._actions for o in action.option_strings if o.startswith("--")]
            near = difflib.get_close_matches(wrong.split("=")[0], options, n=1, cutoff=0.0)
            message = f"[train] unknown option {wrong}. Hint: did you mean {near[0]}?"
        elif "invalid choice:" in message:
            name, rest = message.split("invalid choice:", 1)
            wrong = rest.split("'")[1]
            action = next(a for a in self._actions if "/".join(a.option_strings) in name)
            near = difflib.get_close_matches(wrong, list(action.choices), n=1, cutoff=0.0)
            message = (
                f"[train] {action.option_strings[0]} knows no '{wrong}'. "
                f"Hint: did you mean '{near[0]}'? Valid: {', '.join(action.choices)}."
            )
        if not message.startswith("[train]"):
            message = f"[train] {message}. Hint: --help shows the options."
        self.exit(2, f"{message}\n")


def number(kind, low, high=float("inf")):
    def parse(text):
        value = kind(text)
        if not low <= value <= high or not math.isfinite(value):
            raise argparse.ArgumentTypeError(f"{text} is not between {low} and {high}")
        return value

    parse.__name__ = kind.__name__
    return parse


def parse_arguments(argv):
    p = Parser(prog="train.py", description="Trains an image classifier on CIFAR-10.", allow_abbrev=False)
    p.add_argument("--data", metavar="DIR|download|synthetic", help="CIFAR-10 (binary version) in a folder or archive; "
                   "download: into the cache; synthetic: made-up images (default: cache, else download)")  # fmt: skip
    p.add_argument("--model", choices=sorted(MODELS), help="default: airbench, cut to two epochs")
    p.add_argument("--epochs", type=number(int, 1), help="default: airbench 8, resnet18 15, resnet20 30")
    p.add_argument("--batch-size", type=number(int, 1), help="of all ranks; default: airbench 2000, ResNets 128")
    p.add_argument("--seed", type=number(int, 0, 2**63 - 1), default=0)
    p.add_argument("--optimizer", choices=OPTIMIZERS, help="default: airbench's own, ResNets sgd")
    p.add_argument("--lr", type=number(float, 0), help="peak learning rate (airbench: a factor on its rates)")
    p.add_argument("--momentum", type=number(float, 0, 1), default=0.9, help="of sgd and muon")
    p.add_argument("--weight-decay", type=number(float, 0))
    p.add_argument("--schedule", choices=SCHEDULES, help="of the learning rate, over the whole run")
    p.add_argument("--label-smoothing", type=number(float, 0, 1))
    p.add_argument("--save", metavar="FILE", help="write a checkpoint after every epoch")
    p.add_argument("--resume", metavar="FILE", help="go on from a checkpoint, bit for bit")
    p.add_argument("--stop-after", type=number(int, 1), metavar="EPOCH", help="end early, after this epoch")
    p.add_argument("--threads", type=number(int, 1), help="default: what the machine and its limits allow")
    p.add_argument("--workers", type=number(int, 0), default=1, help="threads that prepare batches")
    p.add_argument("--no-sync-bn", action="store_true", help="batch statistics of each rank alone, not of all together")
    p.add_argument("--train-size", type=number(int, 1), help="use only so many training images")
    p.add_argument("--test-size", type=number(int, 1), help="use only so many test images")
    p.add_argument("--report", metavar="FILE", help="write the result as JSON")
    p.add_argument("--plot", metavar="FILE", default="cifar10.png", help="curves, where matplotlib is installed")
    p.add_argument("--quiet", action="store_true", help="no progress bar")
    return p.parse_args(argv)


def load_data(args):
    """(train, test) by --data. Without network and data the run goes on with synthetic images, and says so."""
    wanted = args.data or "download"
    if wanted == "synthetic":
        splits = anello.data.synthetic(args.train_size or 50000, args.test_size or 10000, seed=0)
    elif wanted == "download":
        try:
            splits = anello.data.load_cifar10(download())
        except OSError as error:
            if args.data:
                raise
            say(
                f"CIFAR-10 is not here and could not be downloaded: {error}\n"
                "Training on synthetic images instead. To train on the real ones: --data DIR with the folder "
                "cifar-10-batches-bin, or run once with a network."
            )
            args.data = "synthetic"
            return load_data(args)
    else:
        splits = anello.data.load_cifar10(wanted)
    args.data = wanted
    train, test = splits.train, splits.test
    return train.slice(0, min(args.train_size or len(train), len(train))), test.slice(
        0, min(args.test_size or len(test), len(test))
    )


def download():
    """The archive's path. One rank of each machine fetches it; what goes wrong there is raised on all."""
    world, problem = dist.world(), None
    patience, world.stall_timeout = world.stall_timeout, 0  # a download may take long
    if world.local_rank() == 0:
        try:
            anello.data.download_cifar10()
        except OSError as error:
            problem = str(error)
    problem = next(filter(None, dist.all_gather_object(problem)), None)
    world.stall_timeout = patience
    if problem:
        raise OSError(problem)
    return anello.data.download_cifar10()


def say(text):
    """Rank 0 prints for all."""
    if dist.rank() == 0:
        print(text, flush=True)


def six_views(model, x):
    """airbench's test-time augmentation: the image and its mirror (.25 each), two diagonal shifts by a pixel of both
    (.125 each)."""

    def mirrored(images):
        return 0.5 * model(images) + 0.5 * model(images.flip(2))

    padded = anello.nn.functional.pad(x, (0, 0, 1, 1, 1, 1), mode="reflect")
    side = x.shape[1]
    up_left, down_right = padded[:, 0:side, 0:side], padded[:, 2 : side + 2, 2 : side + 2]
    return 0.5 * mirrored(x) + 0.25 * mirrored(up_left) + 0.25 * mirrored(down_right)


@anello.no_grad()
def evaluate(model, data, views=False, batch_size=500):
    """(mean loss, accuracy) on a data set, of which each rank takes its share."""
    model.eval()
    loss, right = 0.0, 0
    loader = anello.data.DataLoader(data, batch_size=batch_size, shuffle=False, rank=dist.rank(), size=dist.size())
    for x, y in loader:
        logits = six_views(model, x) if views else model(x)
        loss += anello.nn.functional.cross_entropy(logits, y, reduction="sum").item()
        right += (logits.argmax(1) == y).sum().item()
    model.train()
    loss, right = total(loss, right)
    return loss / len(data), right / len(data)


def total(*values):
    """Each number summed over the ranks."""
    sums = anello.tensor(values, dtype=anello.float64)
    dist.all_reduce(sums)
    return sums.tolist()


class Run:
    """Everything that a checkpoint holds: model, recipe, loader, random state, history."""

    def __init__(self, args, train, saved=None):
        anello.manual_seed(args.seed)
        self.args = args
        self.model = build(args.model)
        if dist.size() > 1 and not args.no_sync_bn:
            dist.SyncBatchNorm.convert(self.model)
        self.loader = anello.data.DataLoader(
            train,
            batch_size=args.batch_size // dist.size(),
            rank=dist.rank(),
            size=dist.size(),
            shuffle=True,
            drop_last=len(train) >= args.batch_size,
            workers=args.workers,
            seed=args.seed,
            augmentation=augmentation(args.model),
        )
        if args.model == "airbench" and saved is None:
            first = train.slice(0, min(5000, len(train)))
            self.model.whiten_from(anello.data.normalize_images(first.images, first.mean, first.stddev))
        # On one rank this only counts samples; on several, gradients are added up while backward runs.
        self.parallel = dist.DataParallel(self.model, reduction="sum" if args.optimizer == "airbench" else "mean")
        self.recipe = Recipe(self.model, args, len(self.loader))
        self.history, self.epoch = [], 0
        if saved is not None:
            self.load_state_dict(saved)

    def state_dict(self):
        return {
            "model": self.model.state_dict(),
            "recipe": self.recipe.state_dict(),
            "loader": self.loader.state_dict(),
            "random": anello.get_rng_state(),
            "epoch": self.epoch,
            "history": {name: [row[name] for row in self.history] for name in self.history[0]},
            "options": {name: getattr(self.args, name) for name in FIXED},
        }

    def load_state_dict(self, state):
        self.model.load_state_dict(state["model"])
        self.recipe.load_state_dict(state["recipe"])
        self.loader.load_state_dict(state["loader"])
        anello.set_rng_state(state["random"])
        self.epoch, columns = state["epoch"], state["history"]
        self.history = [dict(zip(columns, row)) for row in zip(*columns.values())]

    def train_epoch(self):
        """One epoch; returns (mean loss, accuracy, seconds, images)."""
        args, started = self.args, time.perf_counter()
        bar = Progress(f"epoch {self.epoch + 1}/{args.epochs}", len(self.loader), not args.quiet and dist.rank() == 0)
        seen, right, total_loss = 0, 0, 0.0
        self.model.train()
        for step, (x, y) in enumerate(self.loader, 1):
            self.recipe.zero_grad()
            logits = self.parallel(x)
            loss = self.recipe.loss(logits, y)
            loss.backward()
            self.recipe.step()
            timeline.step(samples=len(y))
            value = loss.item() / (max(len(y), 1) if args.optimizer == "airbench" else 1)
            if value != value:
                raise RuntimeError(f"[train] the loss became NaN in epoch {self.epoch + 1}. Hint: use a smaller --lr.")
            seen += len(y)
            total_loss += value * len(y)
            right += (logits.detach().argmax(1) == y).sum().item()
            rate = dist.size() * seen / (time.perf_counter() - started)
            bar.update(step, f"{rate:,.0f} images/s  loss {total_loss / max(seen, 1):.3f}")
        bar.close()
        self.epoch += 1
        total_loss, right, seen = total(total_loss, right, seen)
        return total_loss / seen, right / seen, time.perf_counter() - started, seen


def restore_options(args, path):
    """The checkpoint, after its options were put in place of those not given; contradictions are an error."""
    saved = dist.broadcast_object(anello.load_checkpoint(path) if dist.rank() == 0 else None)
    for name, value in saved["options"].items():
        given = getattr(args, name, None)
        if given is not None and given != value and (name, given) not in (("seed", 0), ("momentum", 0.9)):
            option = "--" + name.replace("_", "-")
            sys.exit(f"[train] {path} was made with {option} {value}, not {given}. Hint: leave {option} out.")
        setattr(args, name, value)
    return saved


def unwritable(args):
    """What stands in the way of the files that rank 0 will write, or None: better told before training than after."""
    for option, path in (("--save", args.save), ("--report", args.report)):
        if not path:
            continue
        folder = os.path.dirname(os.path.realpath(path))
        if os.path.isdir(path):
            return f"[train] {option} {path}: that is a folder. Hint: name a file in it."
        try:
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            return f"[train] {option} {path}: cannot write in {folder}: {error.strerror}. Hint: make the folder first."
    return None


def main(argv=None):
    args = parse_arguments(argv)
    problem = dist.broadcast_object(unwritable(args) if dist.rank() == 0 else None)
    if problem:
        sys.exit(problem)
    if args.threads:
        anello.set_num_threads(args.threads)
    saved = restore_options(args, args.resume) if args.resume else None
    fill_defaults(args)
    if args.batch_size % dist.size():
        per_rank = -(-args.batch_size // dist.size())
        say(f"batch {args.batch_size} does not divide among {dist.size()} ranks: {per_rank * dist.size()} instead")
        args.batch_size = per_rank * dist.size()
    train, test = load_data(args)
    run = Run(args, train, saved)
    parameters = sum(p.numel() for p in run.model.parameters())
    ranks = f"{dist.size()} ranks of " if dist.size() > 1 else ""
    say(
        f"{args.model} ({parameters:,} parameters) on {len(train):,} images of {args.data}, batch {args.batch_size}, "
        f"{ranks}{anello.get_num_threads()} threads, cpu {anello.cpu_isa()}"
    )

    seconds = images = 0
    while run.epoch < min(args.epochs, args.stop_after or args.epochs):
        loss, accuracy, took, seen = run.train_epoch()
        seconds, images = seconds + took, images + seen
        last = run.epoch == args.epochs
        test_loss, test_accuracy = evaluate(run.model, test, views=last and args.model == "airbench")
        run.history.append(
            {
                "epoch": run.epoch,
                "train_loss": loss,
                "train_accuracy": accuracy,
                "test_loss": test_loss,
                "test_accuracy": test_accuracy,
                "seconds": took,
            }
        )
        say(
            f"epoch {run.epoch:>3}  train loss {loss:.4f}  acc {100 * accuracy:5.2f} %   "
            f"test loss {test_loss:.4f}  acc {100 * test_accuracy:5.2f} %   "
            f"{seen / took:,.0f} images/s  {duration(took)}"
        )
        if args.save and dist.rank() == 0:
            anello.save_checkpoint(args.save, run.state_dict())
    finish(args, run, parameters, seconds, images)


def finish(args, run, parameters, seconds, images):
    if not run.history:
        sys.exit("[train] the checkpoint is already at its last epoch. Hint: nothing is left to do.")
    if dist.rank() != 0:
        return
    rate = images / seconds if seconds else 0.0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    report = {
        "model": args.model,
        "seed": args.seed,
        "test_accuracy": run.history[-1]["test_accuracy"],
        "images_per_second": rate,
        "train_seconds": seconds,
        "peak_rss_bytes": peak,
        "parameters": parameters,
        "ranks": dist.size(),
        "threads": anello.get_num_threads(),
        "device": "cpu",
        "precision": "float32",
    }
    print_table(
        [
            ("model", f"{args.model}, {parameters:,} parameters"),
            ("data", args.data),
            ("epochs", run.epoch),
            ("test accuracy", f"{100 * report['test_accuracy']:.2f} %"),
            ("training", f"{duration(seconds)}, {rate:,.0f} images/s"),
            ("peak memory", f"{peak / 2**20:,.0f} MiB"),
            ("ranks", dist.size()),
            ("device", f"cpu ({anello.cpu_isa()}), {report['threads']} threads, float32"),
        ]
    )
    if args.plot:
        if save_plot(args.plot, run.history, f"{args.model}, seed {args.seed}"):
            print(f"curves: {args.plot}")
        else:
            print("no plot: matplotlib is not installed. Hint: pip install matplotlib")
    if args.report:
        write_report(args.report, report)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\n[train] stopped. Hint: with --save, --resume goes on from the last whole epoch.")
    except (OSError, RuntimeError, ValueError, MemoryError) as error:
        sys.exit(str(error))
