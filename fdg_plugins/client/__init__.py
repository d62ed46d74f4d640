# SPDX-License-Identifier: Apache-2.0
"""What a site's own training script reports, so that it takes part in this package's methods.

For scripts that FLARE's Client API runs (``flare.receive()``, ``flare.send()``) under FLARE's own FedAvg. The script
keeps its data, its network and its training loop. The server's half is an aggregator of this package and, for methods
with reports, what :func:`fdg_plugins.recipes.equip` adds to the job.

====================================== ==================================================================
method                                 what the script adds
====================================== ==================================================================
FedOMG and other aggregators           nothing
FedNova                                :meth:`LocalRound.answer`, which counts effective steps
FedDG-GA                               the same, with :func:`evaluate` before and after training
ARFL                                   the same, with evaluations of the training split
FedDIM                                 :class:`ClassInsight`: a penalty in the loss, and class means
FedIIR                                 :class:`GradientAlignment`: a penalty in the loss, and a gradient
====================================== ==================================================================

With PyTorch Lightning, :class:`fdg_plugins.client.lightning.ReportCallback` does this beside FLARE's own callback.

A whole round without a federation: the model as FLARE's ``receive`` would return it, and the answer to it.

    >>> import torch
    >>> from nvflare.app_common.abstract.fl_model import FLModel
    >>> model = torch.nn.Linear(4, 3)
    >>> received = FLModel(params=model.state_dict(), current_round=0, meta={"site_name": "hospital-a"})
    >>> validation = [(torch.randn(8, 4), torch.randint(3, (8,)))]
    >>> local, before = LocalRound(received), evaluate(model, validation)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    >>> after = evaluate(model, validation)
    >>> answer = local.answer(model, optimizer, steps=2, num_samples=40, before=before, after=after)
    >>> answer.params_type, sorted(answer.metrics), answer.meta["fdg_report"]["effective_steps"]
    (<ParamsType.DIFF: 'DIFF'>, ['accuracy', 'loss'], 2.5)
"""

from fdg_plugins.client.answers import LocalRound, evaluate, evaluation
from fdg_plugins.client.parts import ClassInsight, GradientAlignment, SitePart

__all__ = ["ClassInsight", "GradientAlignment", "LocalRound", "SitePart", "evaluate", "evaluation"]
