"""How each net is trained: optimizers, schedules, loss, augmentation. Every rate is a function of the step alone.
Main entry: DEFAULTS, Recipe."""

import math

import anello
from anello import optim
from anello.nn import functional as F

# What holds for an option that is not given. "quick" is what runs when no model is named: the airbench net, cut to a
# few minutes.
DEFAULTS = {
    "quick": {"model": "airbench", "epochs": 2, "batch_size": 1000},
    "airbench": {"epochs": 8, "batch_size": 2000},
    "resnet18": {"epochs": 15, "batch_size": 128},
    "resnet20": {"epochs": 30, "batch_size": 128},
}
AIRBENCH = {"optimizer": "airbench", "schedule": "linear", "label_smoothing": 0.2, "weight_decay": 0.004}
RESNET = {"optimizer": "sgd", "schedule": "onecycle", "label_smoothing": 0.1}
RATES = {"sgd": 0.2, "adam": 0.002, "adamw": 0.002, "muon": 0.02}
WEIGHT_DECAYS = {"airbench": 0.004, "sgd": 5e-4, "adam": 0.0, "adamw": 0.01, "muon": 0.01}
OPTIMIZERS = ["airbench", *RATES]
SCHEDULES = ["onecycle", "cosine", "multistep", "linear", "constant"]


def fill_defaults(args):
    """Gives every option that the user left open its value for the chosen model."""
    chosen = dict(DEFAULTS[args.model or "quick"])
    args.model = args.model or chosen.pop("model")
    chosen.update(AIRBENCH if args.model == "airbench" else RESNET)
    if args.optimizer not in (None, chosen["optimizer"]):  # another optimizer than the model's own: its usual values
        chosen.update(RESNET, weight_decay=WEIGHT_DECAYS[args.optimizer]) if args.optimizer != "airbench" else None
    for name, value in chosen.items():
        if getattr(args, name, None) is None:
            setattr(args, name, value)
    if args.lr is None:
        args.lr = RATES.get(args.optimizer, 1.0)  # airbench: a factor on its own rates
    if args.weight_decay is None:
        args.weight_decay = WEIGHT_DECAYS[args.optimizer]


def augmentation(model):
    """airbench: mirrored in alternation, cropped from a reflecting border of 2; ResNets: crop of 4 and random flip."""
    if model == "airbench":
        return anello.data.Augmentation(crop_padding=2, padding="reflect", flip="alternating")
    return anello.data.Augmentation(crop_padding=4, padding="zero", flip="random")


def split_parameters(model):
    """(filters and matrices, biases and scales): what Muon can take, and what it cannot."""
    trained = [p for p in model.parameters() if p.requires_grad]
    return [p for p in trained if p.ndim >= 2], [p for p in trained if p.ndim < 2]


class Recipe:
    """Optimizers and schedules of one run. step() after every backward."""

    def __init__(self, model, args, steps_per_epoch):
        self.args = args
        self.steps = max(1, args.epochs * steps_per_epoch)
        self.optimizers, self.schedules = [], []
        if args.optimizer == "airbench":
            self._airbench(model, steps_per_epoch)
        else:
            self._usual(model)

    def loss(self, logits, labels, reduction=None):
        """airbench sums its loss over the batch, the others take the mean."""
        reduction = reduction or ("sum" if self.args.optimizer == "airbench" else "mean")
        return F.cross_entropy(logits, labels, label_smoothing=self.args.label_smoothing, reduction=reduction)

    def zero_grad(self):
        for optimizer in self.optimizers:
            optimizer.zero_grad()

    def step(self):
        for optimizer in self.optimizers:
            optimizer.step()
        for schedule in self.schedules:
            schedule.step()

    def state_dict(self):
        state = {f"optimizer{i}": o.state_dict() for i, o in enumerate(self.optimizers)}
        state.update({f"schedule{i}": s.state_dict() for i, s in enumerate(self.schedules)})
        return state

    def load_state_dict(self, state):
        for i, optimizer in enumerate(self.optimizers):
            optimizer.load_state_dict(state[f"optimizer{i}"])
        for i, schedule in enumerate(self.schedules):
            schedule.load_state_dict(state[f"schedule{i}"])

    def _airbench(self, model, steps_per_epoch):
        """Muon on the filters, SGD on the rest, every rate falling linearly to 0; the whitening bias's by epoch 3."""
        factor, decay = self.args.lr, self.args.weight_decay
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        whiten = [trained.pop("whiten.bias")] if "whiten.bias" in trained else []
        head = [p for name, p in trained.items() if name in ("head.weight", "fc.weight")]
        filters = [p for p in trained.values() if p.ndim == 4]
        biases = [p for p in trained.values() if p.ndim < 2]
        groups = [(whiten, 0.053), (biases, 0.053), (head, 0.67)]
        groups = [(params, lr * factor) for params, lr in groups if params]
        sgd = optim.SGD(
            [{"params": params, "lr": lr, "weight_decay": decay / lr} for params, lr in groups],
            lr=0.053 * factor,
            momentum=0.85,
            nesterov=True,
        )
        muon = optim.Muon(filters, lr=0.24 * factor, momentum=0.6, nesterov=True, steps=3, normalize=True)

        total, early = self.steps, min(self.steps, 3 * steps_per_epoch)

        def down_to_zero(at):
            return lambda step: max(0.0, 1.0 - step / at)

        lambdas = [down_to_zero(early if params is whiten else total) for params, _ in groups]
        self.optimizers = [sgd, muon]
        self.schedules = [optim.LambdaLR(sgd, lambdas), optim.LambdaLR(muon, down_to_zero(total))]

    def _usual(self, model):
        a = self.args
        trained = [p for p in model.parameters() if p.requires_grad]
        if a.optimizer == "sgd":
            nesterov = a.momentum > 0
            made = [optim.SGD(trained, lr=a.lr, momentum=a.momentum, nesterov=nesterov, weight_decay=a.weight_decay)]
        elif a.optimizer == "adam":
            made = [optim.Adam(trained, lr=a.lr, weight_decay=a.weight_decay)]
        elif a.optimizer == "adamw":
            made = [optim.AdamW(trained, lr=a.lr, weight_decay=a.weight_decay)]
        else:
            matrices, vectors = split_parameters(model)
            made = [
                optim.Muon(matrices, lr=a.lr, momentum=a.momentum, weight_decay=a.weight_decay),
                optim.AdamW(vectors, lr=a.lr / 10, weight_decay=0.0),
            ]
        self.optimizers = made
        self.schedules = [s for s in map(self._schedule, made) if s is not None]

    def _schedule(self, optimizer):
        """One rate a step, over the whole run."""
        n, kind = self.steps, self.args.schedule
        if kind == "onecycle":
            rates = [group["lr"] for group in optimizer.param_groups]
            return optim.OneCycleLR(optimizer, max_lr=rates, total_steps=n, cycle_momentum=False)
        if kind == "cosine":
            return optim.CosineAnnealingLR(optimizer, T_max=n)
        if kind == "linear":
            return optim.LinearLR(optimizer, start_factor=1.0, end_factor=0.0, total_iters=n)
        if kind == "multistep":
            return optim.MultiStepLR(optimizer, milestones=[math.ceil(n * 0.5), math.ceil(n * 0.75)], gamma=0.1)
        return None
