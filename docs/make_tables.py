# SPDX-License-Identifier: Apache-2.0
"""Makes what follows from the code: ``settings.md``, ``record.md``, and the table of what leaves a site."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pydantic
from page_table import markdown_table

from fdg_plugins.controllers import RunRecord
from fdg_plugins.plugins.method import Leaving
from fdg_plugins.plugins.methods import METHODS
from fdg_plugins.plugins.reports import OF_SETTINGS
from fdg_plugins.settings.protocol import OTHER_VARIABLES, PREFIX, Protocol
from fdg_plugins.settings.site_config import SiteConfig

DOCS = Path(__file__).parent

SETTINGS = """# Settings

For researchers and engineers: every setting of a run, with its default.

## The protocol, fixed by the server

Defaults are the FedOMG paper's for PACS, or the authors' code's where the paper is silent. A job's config may set any
field under `protocol` (and under `stand_in_protocol` what replaces it on the stand-in); the variable in the environment
of the server wins over both. Settings of the job's aggregator answer to variables in the same way: `FDG_KAPPA`,
`FDG_SERVER_LR`, `FDG_RESCALE`, `FDG_WEIGHTING` (a name, or JSON); so do those of its weighting: `FDG_STEP_SIZE`; and
those of its objective: `FDG_STRENGTH`, `FDG_EMA`, `FDG_INSIGHT_MOMENTUM`, `FDG_PROBE` (not FedDIM's `target`:
`FDG_TARGET` is the held-out domain; `FDG_OBJECTIVE` takes JSON, such as `{{"name": "dim", "target": "feature"}}`). A
name that weighting and objective share is refused. A `FDG_` variable that names no setting stops the job, so that
a misspelt one cannot pass unnoticed.

{protocol}

## Which parameters travel

`travels` gives every parameter and buffer of the network one of three rules. *Shared*: trained by the sites, sent in
updates, combined. *Personal*: trained by each site and kept there for the run, also through rounds in which the site is
not drawn and restarts of its process; never in an update. *Frozen*: never changed; BatchNorm with frozen running
statistics uses them and leaves them. Buffers of truth values or with infinities, such as masks, and complex ones are
frozen where they would be shared. The values of `travels`:

| `travels` | shared | else |
|---|---|---|
| `all` | everything | |
| `head` | the classifier | the extractor is frozen: the classifier alone is trained |
| `extractor` | the extractor | each site has a classifier of its own |
| `body` | the extractor | the classifier is frozen: it stays as it was initialised |
| `{{"personal": [patterns], "frozen": [patterns]}}` | what no pattern names | as named |

A pattern is the beginning of a dotted name (`"extractor.layer4"`) or has wildcards (`"*.running_mean"`). It must name
something, and something trainable must be left to share. A site is judged with its own personal parameters. **A site
without any, the held-out one above all, uses those of the initial model**, and so do the model files of a run: they
hold the whole network, its personal part as it was before round 1. A head that is personal therefore says nothing on
the held-out domain. Updates hold what is shared. What is not is sent down once, if it is the
[larger part](trainable.md) of the model, and otherwise with each task. A site removes its personal parameters with its
state of the run, when the run has finished. FedDIM, FedIIR, FedCSA, FedPAC and FedAS need the whole head to travel, and
the last two a part of the extractor to be trained, FedADG a part of its generator; SCAFFOLD, MoFedSAM, HarmoFL and
StableFDG need everything to travel. A job that asks for something else ends before any site is asked.

[`trainable`](trainable.md) says which of what `travels` names is trained at all: everything, the head, or head and
adapters. What it leaves out is frozen.

## BatchNorm's running statistics

A BatchNorm layer normalises by the batch while it trains and by its running statistics when it is judged. In a
federation the two drift apart: parameters are averaged or moved by a method's direction, statistics lag behind.
`batch_norm` is the rule:

| `batch_norm` | at a site | the global model has |
|---|---|---|
| `average` | received, updated by the site's batches, sent with the update | the weighted mean of the sites' |
| `frozen` | never changed, and used in training too | those of the initial model |
| `local` | the site's own, kept for the run; they are sent too | the weighted mean of the sites' |
| `reestimate` | as `average`, but measured anew for the site's own model | those of the round's training images |

For networks without BatchNorm (`normalization` `group`, for instance), all four are the same. Scale and shift are
ordinary parameters under each.

**`reestimate`** replaces the global model's statistics before each round and before the last evaluation, so they belong
to the model that is sent, probed, judged and saved. A site's own model has its statistics replaced after training and
before it is judged. The price is two forward passes without augmentation over the training images of a round: one in
the task `statistics`, one after training. In such a pass, layers normalise by the batch, of 64 images in a fixed random
order. A site answers with sums, sums of squares and counts in float64, and the server adds them in the order of the
sites' names. The sites are those drawn for the round, and after the last round all sources. So mean and (unbiased)
variance are those of all their images together: exactly for the first layer, while later ones see inputs that were
normalised batch by batch. A site that fails, or whose numbers cannot be right, is left out; with fewer than
`min_sites`, the averaged statistics stay. A round's record names the sites (`statistics`). The held-out site measures
nothing. Layers whose statistics are personal or frozen by `travels` keep them, and so do, in the site's own model,
those that an objective holds in evaluation mode. Differential privacy refuses the report; a site's `allowed_reports`,
if set, must contain `normalization_statistics`.

**`local`**: the held-out site never trains, so it uses the mean of the sources' statistics, as does a source before its
first training. To send no statistics at all, make them personal by `travels`
(`{{"personal": ["*.running_mean", "*.running_var", "*.num_batches_tracked"]}}`). The held-out site then uses those of
the initial model, which mean nothing unless it was pretrained. FedBN keeps scale and shift at the site as well: add
their names to the patterns.

[FedDG-GA](methods/fedga.md) and [FedIIR](methods/fediir.md) have defaults of their own, and their pages say why.

## Precision

`precision` says how sites compute forward passes; parameters, updates, penalties and reports stay float32.

| `precision` | at a site |
|---|---|
| `float32` | the default |
| `bfloat16` | torch's autocast, on any hardware; where that is slow, the site's log and `fdg doctor` say so |
| `auto` | bfloat16 with `channels_last` where the hardware multiplies in bfloat16, else float32 |

With `auto`, every site decides by its own hardware, so two sites of a run may differ. bfloat16 is for GPUs of compute
capability 8.0 or newer, and for CPUs with AMX or AVX512_BF16. `fdg doctor` says what `auto` means on a machine. What a
site uses is in its answer to the census, one of the two words, and so in the record (`census`, `precision`) and in the
server's first lines. **To repeat such a run elsewhere, name the value**: `precision=float32`, or `precision=bfloat16`
with `channels_last=true`. That is possible if all sites used the same one; otherwise it takes sites with the same kinds
of hardware. A site that is moved to other hardware during a run fails with a sentence instead of computing otherwise, a
run does not resume with sites that choose otherwise, and `fdg report` refuses a table of runs whose sites chose
differently. Speed and effect on accuracy: [benchmarks](benchmarks.md#where-the-time-goes).

## Other variables

{others}

## A site's own config

`local/fdg_site.json` in a site's folder (in the simulator: in the workspace's `local/`), keyed by site name; no job can
change it. What it leaves out comes from the environment of the site's process. Outside the simulator, a file with
entries of which none is for the site, or for `server` at the server, ends every job here: it would hold for nobody.

```json
{site}
```

{fields}
"""

RECORD = """# The record of a run: `results.json`

For researchers and plug-ins that read records. It is written to the server's run folder after every round, atomically:
it is valid JSON at every moment. Rounds count from 1; an evaluation is of the global model after a round, 0 being the
initial one. Accuracies are fractions, sizes bytes of tensors (parameters and buffers, without the envelope), times
seconds. A loss that is not finite is null. `gamma`, `objective` and `duality_gap` are null for methods without them.

```python
from fdg_plugins.controllers import RunRecord

record = RunRecord.model_validate_json(open("results.json").read())
```

With many sites and rounds a record has megabytes: 8.7 after 200 rounds with 100 sites. To keep it, compress it where it
lies, to a sixth or less; `fdg report`, `fdg plot` and `fdg export bundle` read `results.json.gz` where there is no
`results.json`:

```bash
gzip -9n runs/fedomg-cifar10-test-seed0/results.json
```
"""


def settings_page() -> str:
    """Return the page of all settings."""
    site = {"photo": {"data_root": "/data", "domain": "photo", "device": "cuda:0"}}
    protocol = markdown_table(("variable", "field", "default", "what it is"), _protocol_rows())
    others = markdown_table(("variable", "what it is"), ((f"`{name}`", text) for name, text in OTHER_VARIABLES.items()))
    fields = markdown_table(("field", "default", "what it is"), _site_rows())
    return SETTINGS.format(protocol=protocol, others=others, site=json.dumps(site), fields=fields)


def record_page() -> str:
    """Return the page that documents ``results.json``."""
    schema = RunRecord.model_json_schema(mode="serialization")
    parts = {"RunRecord": schema, **schema["$defs"]}
    pages = [RECORD]
    for name, part in parts.items():
        if "properties" in part:
            text = " ".join(str(part.get("description", "")).split())
            pages.append(f"## {name}\n\n{text}\n\n{markdown_table(('field', 'type'), _record_rows(part))}\n")
    return "\n".join(pages)


def leaving_table() -> str:
    """Return the table of what leaves a site, as the records of methods say it."""
    return markdown_table(("what", "shape", "with", "`allowed_reports`", "what it reveals"), _leaving_rows())


def _leaving_rows() -> Iterator[tuple[str, ...]]:
    """Yield a line for each thing that leaves, with the methods and settings of which it is part."""
    found: dict[tuple[str, str, str], list[str]] = {}
    words: dict[tuple[str, str, str], set[str]] = {}
    lines = [(line, method.key) for method in METHODS.own().values() for line in method.leaves]
    for line, key in [*lines, *((line, "any method") for line in OF_SETTINGS)]:
        if line.when == "once per job":
            continue  # the census, in words above
        thing = (line.what, line.shape, line.reveals)
        plain = line.when == Leaving.when
        by = "every method" if key == "fedavg" else f"`{key}`" if key != "any method" else key
        found.setdefault(thing, []).append(by if plain else f"{by}, {line.when}")
        words.setdefault(thing, set()).update([f"`{line.report}`"] if line.report else [])
    for (what, shape, reveals), by_whom in found.items():
        yield what, shape, "; ".join(by_whom), ", ".join(sorted(words[what, shape, reveals])), reveals


def _protocol_rows() -> Iterator[tuple[str, ...]]:
    for name, field in Protocol.model_fields.items():
        yield f"`{PREFIX}{name.upper()}`", f"`{name}`", _default(field), " ".join(str(field.description).split())


def _site_rows() -> Iterator[tuple[str, ...]]:
    for name, field in SiteConfig.model_fields.items():
        yield f"`{name}`", _default(field), " ".join(str(field.description).split())


def _record_rows(part: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for name, schema in part["properties"].items():
        yield f"`{name}`", _type(schema)


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(_type(option) for option in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if isinstance(by_name := schema.get("patternProperties"), dict):
        return f"mapping to {', '.join(map(_type, by_name.values()))}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"mapping to {_type(schema['additionalProperties'])}"
    return str(schema.get("type", "any"))


def _default(field: pydantic.fields.FieldInfo) -> str:
    default = field.get_default(call_default_factory=True, validated_data={})
    return "" if default is None else f"`{json.dumps(default) if isinstance(default, dict) else default}`"
