"""The end of a process whose disk failed to keep what it wrote.

After a failed sync the kernel may have dropped the pages and reports nothing the next time, so going on is not safe:
later commits would be built on what is on no disk.
"""

import os
import sys
from typing import Never

LOST = "the disk failed to keep what was written; this process ends, since its last commits may be gone"
LOST_CODE = 5  # of the process: the store is not available


def end_process(error: BaseException) -> Never:
    """At once, with no answer to anybody who waits: nothing that was just written may be called durable."""
    sys.stderr.write(f"gatepost: {LOST} ({error})\n")
    sys.stderr.flush()
    os._exit(LOST_CODE)
