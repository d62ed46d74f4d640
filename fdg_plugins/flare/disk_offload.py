# SPDX-License-Identifier: Apache-2.0
"""FLARE's tensor disk offload during the rounds: tensors from sites are written to files as they arrive."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nvflare.app_common.utils.tensor_disk_offload_context import cleanup_tensor_disk_offload, setup_tensor_disk_offload
from nvflare.app_opt.pt.tensor_downloader import cleanup_active_disk_tensor_downloads


@contextmanager
def tensors_in_files(engine: Any, enabled: bool, job: str) -> Iterator[Path | None]:
    """Let FLARE write arriving tensors to a new private folder in the temporary directory; yield that folder.

    Yields None if not ``enabled``. The folder is always removed at the end, including files that are still arriving.
    """
    if not enabled:
        yield None
        return
    offload = setup_tensor_disk_offload(engine, enabled, job)
    try:
        yield Path(offload.root_dir) if offload.root_dir else None
    finally:
        if offload.root_dir:  # FLARE alone would remove it while a thread may still write to it
            cleanup_active_disk_tensor_downloads("the rounds have ended", offload.root_dir)
        cleanup_tensor_disk_offload(engine, offload)
