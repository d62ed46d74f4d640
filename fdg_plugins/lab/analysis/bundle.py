# SPDX-License-Identifier: Apache-2.0
"""A run's segmentation network as a MONAI bundle for inference, which runs without this package.

``python -m monai.bundle run --config_file configs/inference.json --bundle_root . --dataset_dir IMAGES`` writes one mask
per image. The bundle holds MONAI's own network and transforms, by name, and the weights as a plain state dict.

Bundles are only written. Reading one would execute its expressions, which are code.
"""

import json
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch

from fdg_plugins.core.travel import ALL, Rule
from fdg_plugins.data import dataset_spec
from fdg_plugins.data.presets import Preset, preset_of
from fdg_plugins.data.specs import SegmentationSpec
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.lab.analysis.runs import Run
from fdg_plugins.lab.analysis.selection import SOURCE_VALIDATION
from fdg_plugins.models.monai_networks import DEFINED, monai_definition
from fdg_plugins.objectives import build_network
from fdg_plugins.objectives.network import travel_rules
from fdg_plugins.record.run_files import SELECTED_FILE
from fdg_plugins.record.text import marks
from fdg_plugins.settings.protocol import ADAPTERS
from fdg_plugins.storage import load_tensors, write_json, writing
from fdg_plugins.tasks.segmentation import OVERLAP

NETWORK, HEAD = "extractor.network.", "classifier."
LARGEST_BYTE = 255
PACKAGES = {"monai": "monai", "pytorch": "torch", "numpy": "numpy"}
MONAI_SIGNS = ("$", "@", "%")  # with which a text of a config is code, a reference, or a text from elsewhere


def write_bundle(run: Run, folder: Path, *, nifti: bool) -> Path:
    """Write the bundle of the global model selected on source validation to the new ``folder``; return it.

    ``nifti``: whether images with two sides are NIfTI files, which a run's record does not say; volumes always are.

    Raises ``SettingsError`` for a run of another task, network or head, ``DataError`` for a folder that exists or a
    model that the run did not keep.
    """
    spec = _spec(run)
    weights = bundle_weights(_selected_model(run), run.record.protocol.model, spec.dims)
    configs = {"inference.json": inference(run, spec, nifti=nifti), "metadata.json": metadata(run, spec)}
    if folder.exists():
        raise DataError(f"{folder} exists, expected the name of a new folder for the bundle.")
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as place:
            made = Path(place) / folder.name
            (made / "models").mkdir(parents=True)
            torch.save(weights, made / "models" / "model.pt")
            for name, content in configs.items():
                write_json(made / "configs" / name, content)
            made.rename(folder)
    return folder


def _spec(run: Run) -> SegmentationSpec:
    protocol, spec = run.record.protocol, dataset_spec(run.record.protocol.dataset)

    def check(is_right: bool, field: str, value: object, expected: str) -> None:
        if not is_right:
            raise SettingsError(site=f"run {run.folder}", field=field, value=value, expected=f"{expected} for a bundle")

    check(isinstance(spec, SegmentationSpec), "task", protocol.task, "'segmentation'")
    assert isinstance(spec, SegmentationSpec)
    check(protocol.model in DEFINED, "model", protocol.model, f"one of {', '.join(DEFINED)}")
    names = f"names without {', '.join(MONAI_SIGNS)} at the start, which MONAI would evaluate,"
    check(not any(name.startswith(MONAI_SIGNS) for name in spec.classes), "classes", spec.classes, names)
    check(protocol.head == "linear", "head", protocol.head, "'linear'")
    check(protocol.trainable != ADAPTERS, "trainable", protocol.trainable, "MONAI's network as it is")
    network = build_network(protocol, len(run.record.classes))
    personal = travel_rules(network, protocol).names(Rule.PERSONAL) if protocol.travels != ALL else ()
    check(not personal, "travels", protocol.travels, "one that leaves no parameter to each site")
    return spec


def _selected_model(run: Run) -> dict[str, torch.Tensor]:
    if not (file := run.folder / SELECTED_FILE).is_file():
        raise DataError(
            f"run {run.folder} kept no {file.name}; expected it beside the record (a sweep: --set keep_models=true)."
        )
    return load_tensors(file)


def bundle_weights(state: Mapping[str, torch.Tensor], model: str, dims: int) -> dict[str, torch.Tensor]:
    """Return the state dict of the bundle's network, from that of ours.

    The linear head on channels-last features, weight ``[Y, D]``, is a convolution with a kernel of one pixel, weight
    ``[Y, D, 1, 1]`` (one more dimension for volumes). Raises ``SettingsError`` for a network that is not MONAI's own.
    """
    converted: dict[str, torch.Tensor] = {}
    for name, value in state.items():
        if name.startswith(NETWORK):
            converted[f"0.{name.removeprefix(NETWORK)}"] = value
        elif name.startswith(HEAD):
            kernel = [1] * dims if value.ndim == 2 else []
            converted[f"1.{name.removeprefix(HEAD)}"] = value.reshape(*value.shape, *kernel)
        else:
            raise SettingsError(f"model {model!r} has the parameter {name!r}, expected MONAI's network as it is.")
    return converted


def inference(run: Run, spec: SegmentationSpec, *, nifti: bool) -> dict[str, Any]:
    """Return the workflow ``inference.json``: a mask for every image of ``dataset_dir``, in the image's own size.

    A preset that scales images to a square is followed by scaling the logits back; the other presets keep the
    resolution, and larger images are put together from windows, as in training and evaluation.
    """
    protocol = run.record.protocol
    preset = preset_of(protocol.preset, spec)
    nifti = nifti or spec.dims > 2
    model, norm = protocol.model, protocol.normalization
    path, arguments = monai_definition(model, channels=spec.channels, dims=spec.dims, norm=norm)
    config = _template("inference.json")
    if preset.whole:
        config["inferer"] = _SCALED
    else:
        config["inferer"]["overlap"] = OVERLAP
    # MONAI registers the blocks of its DynUNet twice; our state dict has each parameter once.
    config["initialize"][1] = config["initialize"][1].replace("STRICT", str(model != "monai_dynunet"))
    config["preprocessing"]["transforms"] = _before(preset, spec, nifti=nifti)
    config["postprocessing"]["transforms"] = _after(spec, nifti=nifti)
    head = {"in_channels": arguments["out_channels"], "out_channels": len(spec.classes), "kernel_size": 1}
    return config | {
        "size": [protocol.image_size] * spec.dims,
        "body": {"_target_": path, **arguments},
        "head": {"_target_": f"torch.nn.Conv{spec.dims}d", **head},
    }


_RESIZE = "torch.nn.functional.interpolate"
_SCALED = (
    f"$lambda image, network: {_RESIZE}(network({_RESIZE}(image, @size, mode='bilinear', antialias=True)), "
    "image.shape[2:], mode='bilinear')"
)
# What ``data.decoding.to_rgb`` does before it converts: Pillow alone would cut 16-bit grey off at 255.
_PLAIN_IMAGE = (
    "Image.fromarray((np.asarray(image) >> 8).clip(0, 255).astype(np.uint8)) if image.mode.startswith('I') "
    "else image.convert('RGBA') if image.mode == 'P' and 'transparency' in image.info else image"
)
# MONAI takes the third axis of a slice for its depth; here it holds the channels, or has a length of one.
_AS_SLICE = "$lambda image: image[0].movedim(-1, 0) if image.ndim == 4 else image"


def _before(preset: Preset, spec: SegmentationSpec, *, nifti: bool) -> list[dict[str, Any]]:
    mode = "L" if spec.channels == 1 else "RGB"
    reader: dict[str, Any] = {"reader": "NibabelReader"}
    if not nifti:
        reader = {
            "reader": "PILReader",
            "reverse_indexing": False,
            "converter": f"$lambda image: ({_PLAIN_IMAGE}).convert('RGB').convert({mode!r})",
        }
    turned = [_transform("Orientationd", axcodes="RAS")] if spec.dims > 2 else []
    shaped = [_transform("Lambdad", func=_AS_SLICE)] if nifti and spec.dims == 2 else []
    if nifti and spec.channels > 1:  # a grey image is repeated for all channels, as ``PairForm.image`` does
        repeated = f"image.repeat({spec.channels}, *[1] * (image.ndim - 1))"
        shaped.append(_transform("Lambdad", func=f"$lambda image: {repeated} if len(image) == 1 else image"))
    intensity = _transform("NormalizeIntensityd", nonzero=True, channel_wise=True)
    if preset.intensity is not None:
        lowest, highest = preset.intensity
        intensity = _transform("ScaleIntensityRanged", a_min=lowest, a_max=highest, b_min=0.0, b_max=1.0, clip=True)
    return [_transform("LoadImaged", **reader), _transform("EnsureChannelFirstd"), *shaped, *turned, intensity]


def _after(spec: SegmentationSpec, *, nifti: bool) -> list[dict[str, Any]]:
    # Only what turned a volume is to be undone; PILWriter writes [C, W, H].
    turned = _transform("Invertd", "pred", transform="@preprocessing", orig_keys="image", nearest_interp=True)
    as_read = [turned] if spec.dims > 2 else [] if nifti else [_transform("Transposed", "pred", indices=[0, 2, 1])]
    # The value that stands for each class in a mask file, the first of several; all are in 16 bits.
    values = [of_class[0] for of_class in spec.mask_values] or list(range(len(spec.classes)))
    saving = {
        "output_dir": "@output_dir",
        "output_postfix": "mask",
        "output_ext": ".nii.gz" if nifti else ".png",
        "output_dtype": "$np.uint8" if max(values) <= LARGEST_BYTE else "$np.uint16",
        "separate_folder": False,
        "resample": False,
    }
    # From class numbers to the values that the data set's own masks have.
    mapped = _transform("MapLabelValued", "pred", orig_labels=list(range(len(values))), target_labels=values)
    return [
        _transform("AsDiscreted", "pred", argmax=True),
        *as_read,
        *([mapped] if spec.mask_values else []),
        _transform("SaveImaged", "pred", **saving),
    ]


def metadata(run: Run, spec: SegmentationSpec) -> dict[str, Any]:
    """Return ``metadata.json`` in the form of MONAI's schema."""
    record = run.record
    mark = f"[{marks(record)}] " if record.stand_in else ""
    domains = sorted({record.census[site].domain for site in record.sources})
    chosen = next(one.after_round for one in record.choices if one.rule == SOURCE_VALIDATION)
    content = _template("metadata.json")
    data = content["network_data_format"]
    for images, names in (
        (data["inputs"]["image"], [f"channel {number}" for number in range(spec.channels)]),
        (data["outputs"]["pred"], spec.classes),
    ):
        images["spatial_shape"] = [record.protocol.image_size] * spec.dims
        images |= {"num_channels": len(names), "channel_def": {str(place): name for place, name in enumerate(names)}}
    return content | {
        "changelog": {"0.1.0": f"exported from the run {record.run}"},
        **{f"{name}_version": version(package) for name, package in PACKAGES.items()},
        "required_packages_version": {"nibabel": version("nibabel")},
        "task": f"segmentation of {', '.join(spec.classes[1:])} in {record.data}",
        "description": f"{mark}trained by {run.method} on {', '.join(domains)}; held out: {run.target}; the global "
        f"model after round {chosen}, chosen by {SOURCE_VALIDATION}.",
    }


def _template(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((files("fdg_plugins.lab.analysis") / "data" / name).read_text("utf-8"))
    return content


def _transform(name: str, keys: str = "image", **settings: object) -> dict[str, Any]:
    return {"_target_": f"monai.transforms.{name}", "keys": keys, **settings}
