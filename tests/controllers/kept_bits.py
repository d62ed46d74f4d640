# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.controllers.kept_bits FOLDER METHOD...``: three rounds of each method, SHA-256 of each model.

Prints one JSON object from method to hash. ``PLAIN`` is the environment in which the bits depend on no processor: it is
read when torch is loaded.
"""

import hashlib
import json
import sys
from pathlib import Path

import torch
from nvflare.apis.utils.decomposers import flare_decomposers
from nvflare.app_opt.pt.decomposers import TensorDecomposer
from nvflare.fuel.utils import fobs

from tests.controllers.test_every_method import run

# No vector instructions beyond the oldest, in torch's own code and in MKL's; one process, one thread.
PLAIN = {
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_CBWR": "COMPATIBLE",
    "OMP_NUM_THREADS": "1",
    "FDG_ISOLATE": "false",
}


def model_hash(tensors: dict[str, torch.Tensor]) -> str:
    """Return the SHA-256 of names, shapes and bytes of all tensors, in the order of the names."""
    digest = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        digest.update(f"{name} {value.dtype} {list(value.shape)}\n".encode())
        digest.update(value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def main() -> None:
    """Run the methods that are named, each in a folder of its own."""
    torch.backends.mkldnn.set_flags(_enabled=False, _fp32_precision=None)
    torch.set_num_threads(1)
    flare_decomposers.register()
    fobs.register(TensorDecomposer)
    folder, methods = Path(sys.argv[1]), sys.argv[2:]
    model = "groupnorm_convnet"
    hashes = {method: model_hash(run(method, folder / method, model=model, rounds=3).model) for method in methods}
    sys.stdout.write(json.dumps(hashes) + "\n")


if __name__ == "__main__":
    main()
