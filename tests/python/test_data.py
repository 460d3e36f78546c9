"""Data sets and the loader from Python.
Main entry: pytest."""

import gc
import re
import threading

import numpy as np
import pytest
from file_server import serve

import anello
from anello import data


@pytest.fixture(scope="module")
def splits():
    return data.synthetic(300, 40, seed=1)


def epochs(dataset, count, **options):
    loader = data.DataLoader(dataset, **options)
    return [[(x.numpy().copy(), y.tolist()) for x, y in loader] for _ in range(count)]


def same(a, b):
    return all(
        len(e) == len(f) and all((x == u).all() and y == v for (x, y), (u, v) in zip(e, f)) for e, f in zip(a, b)
    )


def test_image_dataset(splits):
    train, test = splits
    assert splits.train.images.shape == (300, 32, 32, 3)
    assert train.images.dtype is anello.uint8
    assert len(train) == 300
    assert len(test.class_names) == 10
    image, label = train[-1]
    assert image.shape == (32, 32, 3)
    assert label.item() == train.labels[299].item()
    assert train.slice(10, 20).labels.tolist() == train.labels[10:20].tolist()
    assert train.subset([5, 3]).labels.tolist() == [train.labels[5].item(), train.labels[3].item()]
    assert "300 images" in repr(train)
    for call in (lambda: train[300], lambda: train.slice(0, 301), lambda: train.subset([300])):
        with pytest.raises(IndexError):
            call()


def test_own_images():
    images = np.zeros((4, 8, 8, 1), np.uint8)
    dataset = data.ImageDataset(anello.from_numpy(images), anello.tensor([0, 1, 0, 1]), ["a", "b"])
    images[:] = 255
    with pytest.raises(ValueError, match="channel_stats"):
        data.DataLoader(dataset)
    x, y = next(iter(data.DataLoader(dataset, batch_size=4, augmentation=data.Augmentation(normalize=False))))
    assert x.max().item() == 1
    assert y.tolist() == [0, 1, 0, 1]
    assert data.channel_stats(dataset.images) == ([1.0], [0.0])
    for wrong, error in (
        (lambda: data.ImageDataset(anello.zeros(4, 8, 8, 1), anello.arange(4)), TypeError),
        (lambda: data.ImageDataset(anello.from_numpy(images), anello.arange(3)), ValueError),
        (lambda: data.ImageDataset(anello.from_numpy(images), anello.arange(4), ["a"]), ValueError),
    ):
        with pytest.raises(error):
            wrong()


def test_batches_do_not_depend_on_the_workers(splits):
    options = {
        "batch_size": 64,
        "shuffle": True,
        "seed": 7,
        "augmentation": data.Augmentation(crop_padding=4, flip="random", cutout=8),
    }
    expected = epochs(splits.train, 2, workers=0, **options)
    for workers in (1, 2, 5):
        assert same(epochs(splits.train, 2, workers=workers, **options), expected)
    assert same(epochs(splits.train, 2, num_workers=3, **options), expected)
    assert not same(expected[:1], expected[1:])
    assert sorted(label for _, y in expected[0] for label in y) == sorted(splits.train.labels.tolist())


def test_the_order_is_that_of_the_set_unless_shuffled(splits):
    labels = [label for _, y in epochs(splits.test, 1, batch_size=7)[0] for label in y]
    assert labels == splits.test.labels.tolist()


def test_length_and_drop_last(splits):
    assert len(data.DataLoader(splits.train, batch_size=128)) == 3
    loader = data.DataLoader(splits.train, batch_size=128, drop_last=True)
    assert len(loader) == 2
    assert [x.shape[0] for x, _ in loader] == [128, 128]


def test_resuming_in_the_middle(splits):
    options = {"batch_size": 50, "shuffle": True, "seed": 3}
    whole = epochs(splits.train, 2, **options)
    loader = data.DataLoader(splits.train, **options)
    for step, _ in enumerate(loader):
        if step == 1:
            state = loader.state_dict()
            break
    other = data.DataLoader(splits.train, **options)
    other.load_state_dict(state)
    rest = [y.tolist() for _, y in other]
    assert rest == [y for _, y in whole[0][2:]]
    assert [y.tolist() for _, y in other] == [y for _, y in whole[1]]
    other.set_epoch(0)
    assert [y.tolist() for _, y in other] == [y for _, y in whole[0]]
    assert other.epoch == 0
    with pytest.raises(ValueError):
        data.DataLoader(splits.test, **options).load_state_dict(state)


def test_a_loop_left_early_and_a_second_one(splits):
    loader = data.DataLoader(splits.train, batch_size=10, workers=2)
    first = iter(loader)
    next(first)
    second = iter(loader)
    next(second)
    with pytest.raises(anello.Error):
        next(first)
    del first
    assert sum(1 for _ in second) == 29
    del second, loader
    gc.collect()


class Squares:
    def __len__(self):
        return 10

    def __getitem__(self, i):
        return [np.full(2, float(i), np.float32), i * i]


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_data_sets_in_python(workers):
    loader = data.DataLoader(Squares(), batch_size=4, workers=workers)
    assert len(loader) == 3
    for _ in range(2):
        batches = list(loader)
        assert [y.tolist() for _, y in batches] == [[0, 1, 4, 9], [16, 25, 36, 49], [64, 81]]
        assert batches[2][0].tolist() == [[8, 8], [9, 9]]
        assert batches[0][1].dtype is anello.int64


@pytest.mark.parametrize("workers", [0, 2])
def test_errors_of_a_data_set_come_where_their_batch_is_due(workers):
    class Fails(Squares):
        def __getitem__(self, i):
            if i == 5:
                raise LookupError("sample 5")
            return super().__getitem__(i)

    seen = []
    with pytest.raises(LookupError, match="sample 5"):
        for _, y in data.DataLoader(Fails(), batch_size=2, workers=workers):
            seen.append(y.tolist())
    assert seen == [[0, 1], [4, 9]]

    class Strange(Squares):
        def __getitem__(self, i):
            return 3

    with pytest.raises(TypeError, match="pair"):
        next(iter(data.DataLoader(Strange(), workers=workers)))


def test_a_python_loader_can_be_dropped_at_any_time():
    for _ in range(20):
        loop = iter(data.DataLoader(Squares(), batch_size=1, workers=2, prefetch=4))
        next(loop)
        del loop


def test_tensor_dataset():
    dataset = data.TensorDataset(anello.randn(5, 3), anello.arange(5))
    x, y = next(iter(data.DataLoader(dataset, batch_size=5)))
    assert x.tolist() == dataset.features.tolist()
    assert y.tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match=r"\[TensorDataset\]"):
        data.TensorDataset(anello.zeros(2), anello.zeros(3))


def test_shards_are_disjoint_and_complete(splits):
    seen = []
    for rank in range(3):
        for _, y in data.DataLoader(
            data.TensorDataset(anello.arange(300), anello.arange(300)), batch_size=16, shuffle=True, rank=rank, size=3
        ):
            seen += y.tolist()
    assert sorted(seen) == list(range(300))


def test_bad_options(splits):
    for call, words in (
        (lambda: data.DataLoader(splits.train, batch_size=0), "batch_size"),
        (lambda: data.DataLoader(splits.train, workers=-1), "workers"),
        (lambda: data.DataLoader(splits.train, rank=2, size=2), "rank"),
        (lambda: data.Augmentation(flip="randm"), "random"),
        (lambda: data.Augmentation(padding="reflekt"), "reflect"),
        (lambda: data.DataLoader(Squares(), augmentation=data.Augmentation()), "augmentation"),
        (lambda: data.load_cifar10("x", verify="no"), "never"),
    ):
        with pytest.raises(ValueError, match=words):
            call()
    with pytest.raises(TypeError, match="__len__"):
        data.DataLoader(3)


def test_cifar10_errors_name_the_file(tmp_path):
    with pytest.raises(OSError, match=str(tmp_path)):
        data.load_cifar10(tmp_path)
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    for name in ("data_batch_1.bin", "data_batch_2.bin"):
        (folder / name).write_bytes(b"\0" * 3073)
    with pytest.raises(anello.IoError, match=r"data_batch"):
        data.CIFAR10(tmp_path)


def test_download_reports_and_can_be_stopped(tmp_path):
    import sys

    fetcher = [sys.executable, "-c", "import sys, time; open(sys.argv[2], 'ab').write(b'x' * 1000); time.sleep(5)"]
    seen = []

    def progress(done, total):
        seen.append((done, total))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        data.download_cifar10(tmp_path, progress=progress, fetcher=fetcher)
    assert seen[0][1] > 100_000_000
    assert not (tmp_path / "cifar-10-binary.tar.gz").exists()
    with pytest.raises(OSError, match="cifar-10"):
        data.download_cifar10(tmp_path, progress=False, fetcher=[sys.executable, "-c", "raise SystemExit(3)"])


def test_another_file_than_the_published_one_is_refused(tmp_path, monkeypatch):
    with serve(b"x" * 100_000) as server:
        monkeypatch.setenv("ANELLO_CIFAR10_URL", server.url)
        with pytest.raises(OSError, match=re.escape(server.url)) as error:
            data.download_cifar10(tmp_path, progress=False)
        assert "100000" in str(error.value) or "SHA-256" in str(error.value)
        assert server.requests
    assert not (tmp_path / "cifar-10-binary.tar.gz").exists()


def test_what_is_in_the_cache_is_not_fetched_again(tmp_path, monkeypatch):
    monkeypatch.setenv("ANELLO_CIFAR10_URL", "http://127.0.0.1:9/cifar-10-binary.tar.gz")
    with pytest.raises(OSError, match=r"127\.0\.0\.1:9"):
        data.CIFAR10(tmp_path, download=True)
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(b"earlier")
    with pytest.raises(OSError, match="cifar-10-binary"):
        data.CIFAR10(tmp_path, download=True)
    assert (tmp_path / "cifar-10-binary.tar.gz").read_bytes() == b"earlier"


@pytest.mark.parametrize("move", [lambda loader, _: loader.set_epoch(0), lambda loader, s: loader.load_state_dict(s)])
def test_a_loader_whose_workers_run_python_can_be_put_elsewhere(move):
    """Workers that wait for Python's lock are joined: the lock has to be free meanwhile."""
    loader = data.DataLoader(Squares(), batch_size=1, workers=2, prefetch=4)
    state = loader.state_dict()
    for _ in range(20):
        next(iter(loader))
        move(loader, state)
        assert next(iter(loader))[1].tolist() == [0]


def test_two_threads_may_not_share_a_loop():
    entered, leave = threading.Event(), threading.Event()

    class Slow(Squares):
        def __getitem__(self, i):
            entered.set()
            leave.wait(10)
            return super().__getitem__(i)

    loader = data.DataLoader(Slow(), workers=0)
    loop, errors = iter(loader), []

    def run():
        next(loop)

    thread = threading.Thread(target=run)
    thread.start()
    entered.wait(10)
    try:
        next(loop)
    except anello.Error as error:
        errors.append(error)
    leave.set()
    thread.join()
    assert errors
