# SPDX-License-Identifier: Apache-2.0
"""FLARE's tensor disk offload for the time of the rounds: what sites send is written to files as it arrives."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nvflare.app_common.utils.tensor_disk_offload_context import cleanup_tensor_disk_offload, setup_tensor_disk_offload
from nvflare.app_opt.pt.tensor_downloader import cleanup_active_disk_tensor_downloads


@contextmanager
def tensors_in_files(engine: Any, enabled: bool, job: str) -> Iterator[Path | None]:
    """Let FLARE write tensors that arrive to a new folder in the temporary one, which only this user may read; give it.

    None if it is not ``enabled``. In the end the folder is removed, whatever happened, with the files of what was still
    arriving.
    """
    offload = setup_tensor_disk_offload(engine, enabled, job)
    try:
        yield Path(offload.root_dir) if offload.root_dir else None
    finally:
        if offload.root_dir:  # FLARE would remove it under a thread that still writes to it
            cleanup_active_disk_tensor_downloads("the rounds have ended", offload.root_dir)
        cleanup_tensor_disk_offload(engine, offload)
