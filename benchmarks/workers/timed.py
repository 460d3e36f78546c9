"""What every worker of a benchmark does: builds its step, then runs as many as it is told, and says how long each took.

Main entry: serve(step, facts). Workers stay alive, so that the driver can let them take turns in one run.
"""

import json
import resource
import sys
import time


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def serve(step, facts, after_import):
    """Answers each line "N" of standard input by the seconds of N steps, as a JSON list; ends with standard input.

    facts: printed first, when the worker is warm. after_import: resident_bytes() before the first tensor."""
    print(json.dumps(facts), flush=True)
    for line in sys.stdin:
        seconds = []
        for _ in range(int(line)):
            start = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - start)
        print(json.dumps(seconds), flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"peak_bytes": peak - after_import}), flush=True)
