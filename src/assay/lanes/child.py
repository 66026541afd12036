"""The child process of a lane: `python -m assay.lanes.child LANE JOB.json [JOB.json ...]`.

Everything that can crash, hang or eat memory happens here. The observation of each job is in its folder
whatever becomes of this process. Exit code 0: all jobs done; 3: at least one failed, with its error written;
4: the parent is gone.
"""

import contextlib
import faulthandler
import os
import sys
import threading
import time
from pathlib import Path

from assay.lanes.job import Job, Observation, save_observation
from assay.lanes.registry import find
from assay.records.failure import FailureClass

FAILED = 3
ORPHANED = 4


def measure(lane_name: str, job: Job) -> bool:
    """Measure one job on the lane; False if it failed."""
    # Several jobs share one log: this line tells whose lines follow.
    print(f"[assay] job {job.workdir}", file=sys.stderr, flush=True)
    observation = Observation()
    save_observation(job, observation)
    try:
        find(lane_name).measure(job, observation)
    except MemoryError as error:
        observation.error = f"MemoryError: {error}"
        observation.error_class = FailureClass.OUT_OF_MEMORY
    except Exception as error:
        observation.error = f"{type(error).__name__}: {error}"
    save_observation(job, observation)
    return observation.error is None


def set_up() -> None:
    """Prepare this process for crashes, of its own and of its parent: say where, leave no core file, no orphan."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    # Only of the thread that crashed: the last lines of the log are the evidence.
    faulthandler.enable(all_threads=False)
    with contextlib.suppress(ImportError, ValueError, OSError):
        # A crash of the runtime must not leave core files of the size of a model behind.
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _end_with(parent: int) -> None:
    """End this process, and what it has started, once its parent is gone: nobody else would."""
    while os.getppid() == parent:
        time.sleep(1.0)
    import psutil

    from assay.processes import kill_all

    kill_all(psutil.Process().children(recursive=True))
    os._exit(ORPHANED)


def main(arguments: list[str]) -> int:
    """Measure the jobs in turn."""
    set_up()
    lane_name, *paths = arguments
    jobs = [Job.from_json(Path(path).read_text()) for path in paths]
    outcomes = [measure(lane_name, job) for job in jobs]
    return 0 if all(outcomes) else FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
