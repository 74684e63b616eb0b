"""Ends a process after the disk failed to keep what it wrote.

After a failed sync the kernel may have dropped the pages and reports nothing the next time, so it is not safe to
continue: later commits would depend on data that is on no disk.
"""

import os
import sys
from typing import Never

LOST = "the disk failed to keep what was written; this process ends, since its last commits may be gone"
LOST_CODE = 5  # exit code of the process: the store is not available


def end_process(error: BaseException) -> Never:
    """Ends the process at once, without answering its callers: nothing that was just written is durable."""
    sys.stderr.write(f"gatepost: {LOST} ({error})\n")
    sys.stderr.flush()
    os._exit(LOST_CODE)
