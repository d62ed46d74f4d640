# SPDX-License-Identifier: Apache-2.0
"""The page on networks: its table is that of the records, and its files are those of the examples."""

import re
from pathlib import Path

from fdg_plugins.models import NETWORKS
from fdg_plugins.models.torchvision_networks import imagenet_file_name

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "networks.md").read_text(encoding="utf-8")


def test_every_network_but_monais_is_in_the_table_with_its_weights_and_images() -> None:
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| \d+ \| ([^|]*) \| ([^|]*)\| ([^|]*)\|$", PAGE, re.MULTILINE)
    assert {name for name, *_ in rows} == {name for name in NETWORKS.own() if not name.startswith("monai")}
    for name, normalization, images, weights in rows:
        network = NETWORKS.get(name)
        assert weights.strip(" `") == (imagenet_file_name(name) or "")
        assert (normalization == "batch, or group") == network.has_norm("group")
        assert (f"multiples of {network.multiple} px" in images) == (network.multiple > 1)
        assert (f"at least {network.smallest} px" in images) or network.smallest == 1


def test_the_files_on_the_page_are_the_examples() -> None:
    for name in ("no_batchnorm", "timm_networks"):
        code = (ROOT / "examples" / "networks" / f"{name}.py").read_text(encoding="utf-8").partition("\n")[2]
        assert f"```python\n{code}```" in PAGE
