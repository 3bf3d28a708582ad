"""A worker process of a local run: Beam's own, without its log of every start and end.

What fails in a worker is raised where the graph was started, and said there once, so it is not printed here too. A
crash of the interpreter itself still is: that goes past sys.stderr. The worker ends when its run's folder is gone.
"""

import logging
import os
import sys
import threading
import time

SECONDS = 0.2


def end_with(folder: str) -> None:
    while os.path.exists(folder):
        time.sleep(SECONDS)
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=end_with, args=[sys.argv.pop()], daemon=True).start()
    logging.disable(logging.ERROR)
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    from apache_beam.runners.worker import sdk_worker_main

    sdk_worker_main.main(sys.argv)
