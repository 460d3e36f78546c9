"""Several hosts on one machine: network namespaces on a bridge, each with an address and a link of a set rate.

Main entry: Hosts (a context manager), why_not()."""

import os
import shutil
import subprocess
import uuid


def sh(*words, check=True):
    return subprocess.run([str(w) for w in words], check=check, capture_output=True, text=True, timeout=30)


def why_not():
    """Why there can be no namespaces here; None when there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed. Hint: apt-get install iproute2"
    name = f"anp{uuid.uuid4().hex[:6]}"
    made = sh("ip", "netns", "add", name, check=False)
    if made.returncode != 0:
        return f"network namespaces are not permitted here: {made.stderr.strip()}"
    try:
        pair = sh("ip", "link", "add", f"{name}a", "type", "veth", "peer", "name", f"{name}b", check=False)
        if pair.returncode != 0:
            return f"veth links are not permitted here: {pair.stderr.strip()}"
        sh("ip", "link", "del", f"{name}a", check=False)
    finally:
        sh("ip", "netns", "del", name, check=False)
    return None


class Hosts:
    """`count` namespaces with the addresses of `self.addresses`; jobs start from the first one.

    Each has a second interface as well, which leads nowhere: what picks the wrong one hangs."""

    def __init__(self, count, folder, rate=None):
        self.count, self.rate = count, rate
        self.tag = uuid.uuid4().hex[:5]
        self.names = [f"an{self.tag}{i}" for i in range(count)]
        self.addresses = [f"10.9.0.{i + 1}" for i in range(count)]
        self.bridge_space = f"an{self.tag}br"
        self.agent = folder / "agent.sh"

    def __enter__(self):
        try:
            self.build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def build(self):
        inside = ("ip", "-n", self.bridge_space)
        sh("ip", "netns", "add", self.bridge_space)
        sh(*inside, "link", "add", "bridge", "type", "bridge")
        sh(*inside, "link", "set", "bridge", "up")
        cases = []
        for i, (name, address) in enumerate(zip(self.names, self.addresses)):
            here = ("ip", "-n", name)
            sh("ip", "netns", "add", name)
            sh(*here, "link", "set", "lo", "up")
            sh(*here, "link", "add", "eth0", "type", "veth", "peer", "name", f"port{i}", "netns", self.bridge_space)
            sh(*here, "addr", "add", f"{address}/24", "dev", "eth0")
            sh(*here, "link", "set", "eth0", "up")
            sh(*inside, "link", "set", f"port{i}", "master", "bridge", "up")
            sh(*here, "link", "add", "docker0", "type", "veth", "peer", "name", f"void{i}")
            sh(*here, "addr", "add", "172.17.0.1/16", "dev", "docker0")
            sh(*here, "link", "set", "docker0", "up")
            sh(*here, "link", "set", f"void{i}", "up")
            if self.rate:
                self.limit(i, self.rate)
            cases.append(f"{address}) space={name} ;;")
        # mpirun calls it as: agent HOST COMMAND..., as it would ssh. ANELLO_HOST: one kernel, but not one host.
        self.agent.write_text(
            "#!/bin/bash\nhost=$1\nshift\ncase $host in\n"
            + "\n".join(cases)
            + '\nesac\nexec ip netns exec "$space" env ANELLO_HOST="$host" bash -c "$*"\n'
        )
        self.agent.chmod(0o755)

    def limit(self, host, rate):
        """Sets the rate of a host's link, as tc spells it: 1gbit."""
        where = ("dev", "eth0", "root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms")
        sh("tc", "-n", self.names[host], "qdisc", "replace", *where)

    def cut(self, host, down=True):
        """Takes a host's link away, or gives it back."""
        sh("ip", "-n", self.names[host], "link", "set", "eth0", "down" if down else "up")

    def prefix(self):
        """Put in front of a command: it then runs on the first host."""
        return ["ip", "netns", "exec", self.names[0], "env", f"ANELLO_HOST={self.addresses[0]}"]

    def options(self, slots=1):
        """For anello run."""
        return ["-H", ",".join(f"{a}:{slots}" for a in self.addresses), "--rsh-agent", str(self.agent)]

    def __exit__(self, *error):
        for name in [*self.names, self.bridge_space]:
            for pid in sh("ip", "netns", "pids", name, check=False).stdout.split():
                sh("kill", "-9", pid, check=False)
            sh("ip", "netns", "del", name, check=False)
