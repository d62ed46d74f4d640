# SPDX-License-Identifier: Apache-2.0
"""FLARE's tensor disk offload for the time of the rounds: what sites send is written to files as it arrives."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fdg_plugins.flare.internals import OFFLOAD, fetch, require


@contextmanager
def tensors_in_files(engine: Any, enabled: bool, job: str) -> Iterator[Path | None]:
    """Let FLARE write tensors that arrive to a new folder in the temporary one, which only this user may read; give it.

    None if it is not ``enabled``. In the end the folder is removed, whatever happened, with the files of what was still
    arriving. Raises ``InternalsError`` if it is enabled and this FLARE lacks something for it.
    """
    if not enabled:
        yield None
        return
    require(OFFLOAD)
    offload = fetch(OFFLOAD, "setup_tensor_disk_offload")(engine, enabled, job)
    try:
        yield Path(offload.root_dir) if offload.root_dir else None
    finally:
        if offload.root_dir:  # FLARE would remove it under a thread that still writes to it
            fetch(OFFLOAD, "cleanup_active_disk_tensor_downloads")("the rounds have ended", offload.root_dir)
        fetch(OFFLOAD, "cleanup_tensor_disk_offload")(engine, offload)
