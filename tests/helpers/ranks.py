"""A script on several ranks, each forked from this warm process: `python ranks.py RANKS PORT SCRIPT …`.

It does what DeepSpeed's launcher does on one machine, whose own two processes cost more than a small training: it tells
each rank its place, and ends all when one fails, with that one's exit code.
"""

import os
import runpy
import signal
import sys


def main() -> None:
    ranks, port, script, *arguments = sys.argv[1:]
    alive = set()
    for rank in range(int(ranks)):
        process = os.fork()
        if process == 0:
            os.environ.update({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": ranks})
            os.environ.update({"LOCAL_SIZE": ranks, "RANK": str(rank), "LOCAL_RANK": str(rank)})
            sys.argv = [script, f"--local_rank={rank}", *arguments]
            sys.path[0] = os.path.dirname(script)
            runpy.run_path(script, run_name="__main__")
            sys.exit()
        alive.add(process)
    while alive:
        process, status = os.wait()
        alive.remove(process)
        if code := os.waitstatus_to_exitcode(status):
            for other in alive:
                os.kill(other, signal.SIGTERM)
            sys.exit(code)


if __name__ == "__main__":
    main()
