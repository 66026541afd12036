"""Jobs for a browser, one after the other: after a failure the browser is not used again."""

from __future__ import annotations

import functools

from assay.errors import AssayError
from assay.lanes.browser.measurement import Measurement
from assay.lanes.browser.options import BrowserOptions
from assay.lanes.browser.page_job import BrowserFailure
from assay.lanes.browser.running import RunningBrowser
from assay.lanes.job import Job, Observation, save_observation
from assay.records.failure import FailureClass


@functools.cache
def measurer() -> Measurer:
    """The one measurer of this process: its browser serves all browser lanes."""
    return Measurer()


class Measurer:
    """Measures jobs one after the other, and may keep the browser between them.

    Attributes:
        keep: Whether the browser stays for the next job with the same options.
    """

    def __init__(self) -> None:
        self.keep = False
        self._browser: RunningBrowser | None = None

    def measure(self, job: Job, observation: Observation, accelerator: str) -> None:
        """Measure a job; a failure is written into the observation, and ends the browser.

        Args:
            job: What to measure.
            observation: Filled and saved as it goes.
            accelerator: `wasm`, `webgpu` or `webnn`.
        """
        failed = True
        try:
            options = BrowserOptions.of(job.options)
            if self._browser is not None and self._browser.options != options:
                self.close()
            if self._browser is None:
                self._browser = RunningBrowser(options)
            self._browser.run(Measurement(self._browser, job, observation, accelerator).run())
            failed = False
        except BrowserFailure as failure:
            observation.error = str(failure)
            observation.error_class = failure.failure
        except AssayError as error:
            observation.error = str(error)
            observation.error_class = FailureClass.LANE_UNAVAILABLE
        finally:
            save_observation(job, observation)
            if failed or not self.keep:
                self.close()

    def close(self) -> None:
        """Close the browser that was kept, if there is one."""
        browser, self._browser = self._browser, None
        if browser is not None:
            browser.close()
