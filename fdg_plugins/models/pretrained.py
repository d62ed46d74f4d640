# SPDX-License-Identifier: Apache-2.0
"""Pretrained weights for the extractor, ImageNet's or others, from a local file; nothing is ever downloaded.

Only the server loads such weights; sites receive the model from it. The file is read once, so the digest is computed
from the same bytes as the tensors.
"""

import hashlib
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from pydantic.dataclasses import dataclass

from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.models import efficientnet_lite
from fdg_plugins.models.networks import NETWORKS
from fdg_plugins.models.registry import ExtractorClassifier
from fdg_plugins.models.torchvision_networks import imagenet_file_name, resize_positions

IMAGENET = "imagenet"
_EXTRACTOR, _WRAPPED = "extractor.", "network."


@dataclass(frozen=True, config={"extra": "forbid"})
class InitialWeights:
    """The origin of the extractor's initial parameters: ``imagenet`` or ``pretrained file``, with file name and digest,
    or ``from scratch``.

    Records of earlier versions say ``imagenet`` of every file that a network with such weights was started from.
    """

    label: str
    file: str | None = None
    sha256: str | None = None


FROM_SCRATCH = InitialWeights("from scratch")
OWN_FILE = "pretrained file"


def load_pretrained(
    model: ExtractorClassifier,
    name: str,
    mode: str,
    file: Path | None = None,
    sha256: str | None = None,
    norm: str = "default",
) -> InitialWeights:
    """Load weights into ``model.extractor``, in place, and return their origin; the classifier is unchanged.

    ``mode`` is ``none`` (do nothing), ``imagenet`` (weights must be found) or ``auto`` (use them if found). The weights
    are read from ``file`` (``.pth`` or ``.safetensors``), or else from torchvision's cache. For a network without
    ImageNet weights whose record names its head or output, ``auto`` takes a ``file`` of other weights: of this
    extractor, of a whole network of this package, or of MONAI's network. Head or output are left out if they do not
    fit, because another task has other classes. The position embeddings of a vision transformer are interpolated.
    ``norm``: the network's normalization; ImageNet weights are for batch normalization only. The digest must equal
    ``sha256`` if given; a file in the cache must match the digits in its name. The origin is ``imagenet`` if the digest
    begins with the digits in the name of torchvision's file, or if the mode asserts it; else ``pretrained file``.

    Raises SettingsError for an unknown model or digest format, and for a model without such weights, DataError for a
    file that is missing, has another digest, does not fit the extractor, or contains non-finite numbers.
    """
    found = read_weights(name, mode, file, sha256, norm)
    if found is None:
        return FROM_SCRATCH
    network, published = NETWORKS.get(name), imagenet_file(name, norm)
    _load(model, found.path, found.tensors, [f"{name}." for name in (network.output, network.head) if name])
    is_imagenet = published is not None and (mode == IMAGENET or found.digest.startswith(_digits_in(published.name)))
    return InitialWeights(IMAGENET if is_imagenet else OWN_FILE, found.path.name, found.digest)


class Weights(NamedTuple):
    """The tensors in a file of weights, by name, and the SHA-256 of the file."""

    path: Path
    digest: str
    tensors: dict[str, torch.Tensor]


def read_weights(name: str, mode: str, file: Path | None, sha256: str | None, norm: str) -> Weights | None:
    """Return the weights that :func:`load_pretrained` loads with the same arguments; None if it loads none."""
    if sha256 is not None and not re.fullmatch("[0-9a-fA-F]{64}", sha256):
        raise SettingsError(field="sha256 of the pretrained weights", value=sha256, expected="64 hexadecimal digits")
    path = None if mode == "none" else _find_file(name, mode, file, imagenet_file(name, norm))
    if path is None:
        return None
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"pretrained weights {path} cannot be read: {error.strerror}.") from error
    digest = hashlib.sha256(content).hexdigest()
    for start in (sha256 or "", _digits_in(path.name) if file is None else ""):
        if not digest.startswith(start.lower()):
            raise DataError(f"pretrained weights {path} have SHA-256 {digest}; expected {start}.")
    return Weights(path, digest, _tensors(path, content))


def cache_folder() -> Path:
    """Return the folder in which torchvision caches downloaded weights (``TORCH_HOME`` changes it)."""
    return Path(torch.hub.get_dir()) / "checkpoints"


def imagenet_file(name: str, norm: str = "default") -> Path | None:
    """Return where a network's ImageNet weights are looked for, in their package or in torchvision's cache.

    None: there are none for the network with this normalization.
    """
    if name == efficientnet_lite.NAME and norm in ("default", "batch"):
        return efficientnet_lite.packaged_weights() or cache_folder() / efficientnet_lite.IMAGENET_FILE
    file_name = imagenet_file_name(name, norm)
    return None if file_name is None else cache_folder() / file_name


def _find_file(name: str, mode: str, file: Path | None, published: Path | None) -> Path | None:
    network = NETWORKS.get(name)
    takes_files = published is not None or (mode == "auto" and bool(network.output or network.head))
    if not takes_files and (mode != "auto" or file is not None):
        raise SettingsError(
            f"model {name} has no ImageNet weights with these settings; expected mode none, or auto without a file."
        )
    if file is not None or published is None:
        return file
    if mode == IMAGENET and not published.is_file():
        raise DataError(
            f"pretrained weights of {name} were not found at {published} and no file was named; "
            "expected them put there or named as file (nothing is downloaded)."
        )
    return published if published.is_file() else None


def _digits_in(file_name: str) -> str:
    return Path(file_name).stem.rpartition("-")[2]


def _tensors(path: Path, content: bytes) -> dict[str, torch.Tensor]:
    try:
        if path.suffix == ".safetensors":
            value: Any = safetensors.torch.load(content)
        else:
            value = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # the readers raise a dozen classes, some of them generic; all mean the same to a user
        raise DataError(
            f"pretrained weights {path} cannot be read ({type(error).__name__}); expected a file of plain tensors."
        ) from error
    if not isinstance(value, Mapping) or not all(isinstance(entry, torch.Tensor) for entry in value.values()):
        raise DataError(f"pretrained weights {path} hold a {type(value).__name__}; expected tensors by parameter name.")
    return {str(key): tensor for key, tensor in value.items()}


def _named_as(expected: Mapping[str, torch.Tensor], tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the extractor's tensors: below ``extractor.`` in a whole network; MONAI's file lacks ``network.``."""
    own = {key.removeprefix(_EXTRACTOR): value for key, value in tensors.items() if key.startswith(_EXTRACTOR)}
    found = own or dict(tensors)
    lacks = all(key.startswith(_WRAPPED) for key in expected) and not any(key.startswith(_WRAPPED) for key in found)
    return {f"{_WRAPPED if lacks else ''}{key}": value for key, value in found.items()}


def _with_head(
    expected: Mapping[str, torch.Tensor], tensors: Mapping[str, torch.Tensor], head: str
) -> dict[str, torch.Tensor]:
    own = {key: value for key, value in expected.items() if key.startswith(head)}
    found = {key: value for key, value in tensors.items() if key.startswith(head)}
    fits = all(key in found and found[key].shape == value.shape for key, value in own.items())
    rest = {key: value for key, value in tensors.items() if key not in found}
    return {**rest, **({key: found[key] for key in own} if fits else own)}


def _load(model: ExtractorClassifier, path: Path, tensors: dict[str, torch.Tensor], own: Sequence[str]) -> None:
    expected = model.extractor.state_dict()
    tensors = resize_positions(_named_as(expected, efficientnet_lite.by_our_names(tensors)), expected)
    for key, value in expected.items():
        if key.endswith("num_batches_tracked"):  # BatchNorm's counters, which torchvision's published files predate
            tensors.setdefault(key, torch.zeros_like(value))
    for part in own:
        tensors = _with_head(expected, tensors, part)
    for key in sorted(expected.keys() | tensors.keys()):
        came, wanted = (_form(one.get(key)) for one in (tensors, expected))
        is_finite = came == wanted and bool(tensors[key].to(expected[key].dtype).isfinite().all())
        if not is_finite:
            more = "numbers that are NaN or infinite" if came == wanted else came
            text = f"pretrained weights {path} have {key} as {more}; expected {wanted}, all finite."
            raise DataError(text, public="the pretrained weights do not fit the network.")
    model.extractor.load_state_dict(tensors)


def _form(tensor: torch.Tensor | None) -> str:
    if tensor is None:
        return "nothing"
    kind = "floats" if tensor.is_floating_point() else f"numbers of {tensor.dtype}"
    return f"{kind} {list(tensor.shape)} ({tensor.layout})"
