"""Tuning of the service's processes."""

import gc


def collect_rarely() -> None:
    """Run the garbage collector rarely: requests leave no cycles, and collecting took a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
