"""Jobs over 2 to 4 hosts, which are network namespaces of this machine.

Main entry: the tests. Where namespaces are not permitted they are skipped, and say why."""

import json
import os
import signal
import time

import pytest
from hosts import Hosts, why_not
from jobs import MPI_LOOP, Job, needs_mpi, script

REASON = why_not()
pytestmark = [needs_mpi, pytest.mark.skipif(REASON is not None, reason=str(REASON))]
LIMIT = 5.0

SHOW = """
import json, os, socket
names = sorted(name for _, name in socket.if_nameindex())
print(json.dumps({"rank": int(os.environ["OMPI_COMM_WORLD_RANK"]), "host": os.environ.get("ANELLO_HOST"),
                  "local": os.environ["OMPI_COMM_WORLD_LOCAL_RANK"], "space": os.readlink("/proc/self/ns/net")}))
"""


@pytest.fixture(params=[2, 4])
def hosts(request, tmp_path):
    with Hosts(request.param, tmp_path) as made:
        yield made


def test_ranks_are_on_the_hosts_and_find_each_other(hosts, tmp_path):
    job = Job(hosts.options(), script(tmp_path, SHOW), prefix=hosts.prefix())
    code, out, err = job.finish(60)
    assert code == 0, err
    rows = {row["rank"]: row for row in (json.loads(line.partition("] ")[2]) for line in out.splitlines())}
    assert sorted(rows) == list(range(hosts.count))
    assert len({row["space"] for row in rows.values()}) == hosts.count
    assert {row["local"] for row in rows.values()} == {"0"}
    assert all(rows[r]["host"] == hosts.addresses[r] for r in rows)


def test_an_all_reduce_goes_over_the_right_network(hosts):
    """Each host has a second interface with the same address everywhere, as docker0 has: it must not be tried."""
    code, out, err = Job(hosts.options(), MPI_LOOP, ["20"], prefix=hosts.prefix()).finish(60)
    assert code == 0, err
    assert out.count(f"first sum {hosts.count}.0") == hosts.count


def test_two_ranks_a_host(tmp_path):
    with Hosts(2, tmp_path) as hosts:
        code, out, err = Job(hosts.options(slots=2), MPI_LOOP, ["5"], prefix=hosts.prefix()).finish(60)
        assert code == 0, err
        assert out.count("first sum 4.0") == 4


def test_a_rank_killed_on_another_host_is_named(tmp_path):
    with Hosts(3, tmp_path) as hosts:
        job = Job(hosts.options(), MPI_LOOP, ["1000000000"], prefix=hosts.prefix())
        job.read_until("first sum")
        os.kill(job.wait_for_ranks(3)[2], signal.SIGKILL)
        killed = time.monotonic()
        code, _, err = job.finish()
        assert time.monotonic() - killed < LIMIT
        assert code == 128 + signal.SIGKILL
        assert "rank 2" in err.splitlines()[-1] and "failed first: it was killed by SIGKILL" in err.splitlines()[-1]


def test_ctrl_c_ends_the_ranks_on_every_host(tmp_path):
    with Hosts(2, tmp_path) as hosts:
        job = Job(hosts.options(), MPI_LOOP, ["1000000000"], prefix=hosts.prefix())
        job.read_until("first sum")
        job.process.send_signal(signal.SIGINT)
        sent = time.monotonic()
        assert job.finish()[0] == 130
        assert time.monotonic() - sent < LIMIT


def test_a_host_that_is_not_there_is_one_line(tmp_path):
    with Hosts(2, tmp_path) as hosts:
        options = ["-H", "10.9.0.1:1,no-such-host.invalid:1"]
        code, _, err = Job(options, MPI_LOOP, ["1"], prefix=hosts.prefix()).finish(60)
        assert code == 2
        assert "host no-such-host.invalid:" in err and len(err.splitlines()) == 1
