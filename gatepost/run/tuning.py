"""How the processes of the service are tuned."""

import gc


def collect_rarely() -> None:
    """Requests under way are many short-lived objects without cycles; looking for some took a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
