# SPDX-License-Identifier: Apache-2.0
"""The studies of docs/results on real data: what each runs, as a call of ``fdg sweep``.

    python benchmarks/studies.py                                         # what there is
    python benchmarks/studies.py office --data-root /data                # resumes: finished runs are not run again
    python benchmarks/studies.py office --data-root /data --set parallel=2 --seeds 0,1,2
    fdg report sweeps/office                                             # the table

Other options go to ``fdg sweep`` as they are. Training is from scratch, except in the studies ``*_head`` and
``*_pretrained``, which start from the ImageNet weights of the extra ``pretrained``.
"""

import argparse
import shlex
import subprocess
import sys
from pathlib import Path

FDG = str(Path(sys.executable).with_name("fdg"))
FIVE = "fedavg,fedomg,fedga,feddim,fediir"
EXCEPT_FIVE = (
    "fedprox,fedsam,mofedsam,scaffold,fednova,harmofl,fedcsa,arfl,am,rsc,fedsr,fedadg,stablefdg,fedlgf,"
    "perfedavg,fedrod,fedpac,fedbabu,fedas"
)
PERSONAL = "fedavg,fedomg,fedrod,fedbabu,fedpac,fedas"
# A server that steps along FedOMG's direction with 0.05, the paper's value for ImageNet weights, hardly moves from
# scratch, and neither does a site with MoFedSAM's printed radius.
OMG, MOFEDSAM = "--set fedomg:server_lr=1", "--set mofedsam:radius=0.05"
AUTO = "--set precision=auto"
# All methods under the same rule: what is compared is then the method, not what BatchNorm does to it.
SAME_RULE = "--set batch_norm=reestimate"
PHOTOGRAPHS = (
    f"--set rounds=30 --set local_epochs=1 --set image_size=64 --set batch_size=32 --set learning_rate=0.02 {AUTO}"
)
OFFICE = f"--dataset officecaltech10 {PHOTOGRAPHS} {SAME_RULE}"
PACS = f"--dataset pacs {PHOTOGRAPHS}"
CARTOON = f"--methods fedavg,fedomg --targets cartoon {PACS} {OMG}"
# All methods in a few hours of a plain CPU: small network and images, and the arithmetic that every machine has.
SMALL = (
    f"--methods {FIVE},{EXCEPT_FIVE} --set rounds=10 --set local_epochs=1 --set batch_size=32 "
    f"--set learning_rate=0.02 --set precision=float32 --set channels_last=true {SAME_RULE} {OMG} {MOFEDSAM}"
)
ALL_DIGITS = f"--dataset rotatedmnist --protocol fediir {AUTO}"
SKEWED = (
    f"--methods {PERSONAL} --protocol fedomg-fl --set partition=dirichlet --set dirichlet_alpha=0.1 "
    f"--set sites_per_round=40 {AUTO}"
)
# A linear head on frozen features: a few minutes a run.
PRETRAINED = (
    "--set model=efficientnet_lite0 --set pretrained=imagenet --set image_size=96 --set rounds=10 --set local_epochs=1 "
    "--set batch_size=32 --set max_samples_per_domain=200"
)
SEVEN = f"{FIVE},fedomg+iir,fedomg+ga"


def _methods(names: str, server_lr: float) -> str:
    """Return the options for these methods, those with FedOMG's direction with this ``server_lr``."""
    steps = [f"--set {name}:server_lr={server_lr}" for name in names.split(",") if "omg" in name]
    return " ".join([f"--methods {names}", *steps])


HEAD = f"{PRETRAINED} --set trainable=head --set batch_norm=frozen {AUTO}"
FROZEN = f"{HEAD} --set learning_rate=0.05"
POOLED = f"--methods fedavg,erm,irm,fishr {FROZEN} " + " ".join(
    f"--set {name}:learning_rate=0.001" for name in ("erm", "irm", "fishr")
)
# The others of the 24 train or send more than a head.
OTHERS = "fedsam,fednova,fedcsa,arfl,am,rsc,fedlgf,perfedavg,fedrod"
HEAD_STEP = f"--methods fedomg {FROZEN} --set fedomg:server_lr=0.05,0.1,0.25,0.5"
WHOLE = f"{PRETRAINED} --set batch_norm=frozen --set channels_last=true"
WHOLE_TEN = f"{_methods(f'{SEVEN},fedprox,scaffold,fedsr', 0.5)} {WHOLE}"
# After four rounds on one domain, 0.01 is better than 0.002 for FedAvg; after ten, 0.003 is better.
THREE_SEEDS = f"--seeds 0,1,2 {WHOLE_TEN} --set learning_rate=0.01"
# Each method with the rate that was better on the sources of `pacs_pretrained` and `pacs_pretrained_rates`; in five
# rounds half a step of FedOMG comes less far, so a whole one follows.
FULL = (
    "--dataset pacs --set model=efficientnet_lite0 --set pretrained=imagenet --set image_size=128 --set rounds=5 "
    "--set local_epochs=1 --set batch_size=32 --set batch_norm=frozen --set channels_last=true "
    "--set learning_rate=0.003"
)
# With the default radius 0.05, FedSAM has 10 % on art painting and HarmoFL 35; with 0.01 they have 59 and 54.
WHOLE_OTHERS = (
    f"--methods {OTHERS},mofedsam,harmofl,fedadg,stablefdg,fedpac,fedbabu,fedas {WHOLE} {MOFEDSAM} "
    "--set fedsam:radius=0.01 --set harmofl:radius=0.01 --set learning_rate=0.01"
)
# FedOMG and FedAvg from scratch, changing one thing: kappa, the server's step, the length of the direction,
# or local epochs.
SCRATCH = (
    "--dataset pacs --set model=strided_convnet --set rounds=10 --set local_epochs=1 --set batch_size=32 "
    "--set learning_rate=0.02 --set precision=float32 --set channels_last=true --set image_size=64 "
    f"--set max_samples_per_domain=1000 {SAME_RULE}"
)
CIFAR10 = f"--methods fedavg,fedomg --dataset cifar10 --protocol fedomg-fl {AUTO} --set sites=20,40,60 --set rounds=100"
MANY = f"--dataset rotatedmnist --protocol fediir-many {AUTO}"

STUDIES = {
    "rotatedmnist_70k": f"--methods fedavg,fediir --targets angle_0,angle_75 {ALL_DIGITS}",
    "rotatedmnist_70k_more": f"--methods feddim,fedomg --targets angle_0 {ALL_DIGITS} {OMG}",
    "rotatedmnist_7k": f"--methods {FIVE} --dataset rotatedmnist_7k --seeds 0,1 --protocol feddim {AUTO} {OMG}",
    "pacs": f"--methods {FIVE} {PACS} {SAME_RULE} {OMG}",
    "pacs_statistics": f"{CARTOON} --set batch_norm=average,reestimate",
    "pacs_group": f"{CARTOON} --set normalization=group",
    "pacs_other_methods": f"--methods {EXCEPT_FIVE} {PACS} {SAME_RULE} {MOFEDSAM}",
    "office": f"--methods {FIVE} --seeds 0,1 {OFFICE} {OMG}",
    "office_other_methods": f"--methods {EXCEPT_FIVE} {OFFICE} {MOFEDSAM}",
    "office_all_methods": f"--dataset officecaltech10 {SMALL} --set model=convnet --set image_size=32",
    "pacs_all_methods": (
        f"--dataset pacs {SMALL} --set model=strided_convnet --set image_size=64 --set max_samples_per_domain=1000"
    ),
    "pacs_head": f"--dataset pacs --seeds 0,1,2,3,4 {_methods(f'{SEVEN},fedprox,fedsr', 1)} {FROZEN}",
    "office_head": f"--dataset officecaltech10 --seeds 0,1,2,3,4 {_methods(SEVEN, 0.5)} {FROZEN}",
    "pacs_head_step": f"--dataset pacs {HEAD_STEP}",
    "office_head_step": f"--dataset officecaltech10 {HEAD_STEP},1",
    "pacs_head_rates": (
        f"--dataset pacs --methods {FIVE} {HEAD} --set learning_rate=0.02,0.05,0.1 --set fedomg:server_lr=0.5"
    ),
    "pacs_head_references": f"--dataset pacs --seeds 0,1,2 {POOLED}",
    "office_head_references": f"--dataset officecaltech10 --seeds 0,1,2 {POOLED}",
    "pacs_head_others": f"--dataset pacs --methods {OTHERS} {FROZEN}",
    "office_head_others": f"--dataset officecaltech10 --methods fedprox,fedsr,{OTHERS} {FROZEN}",
    "pacs_pretrained": f"--dataset pacs {THREE_SEEDS}",
    "pacs_pretrained_rates": f"--dataset pacs {WHOLE_TEN} --set learning_rate=0.003",
    "pacs_pretrained_full": (
        f"--methods fedavg,fedomg,fedga {FULL} --set fedomg:server_lr=0.5 --set fedomg:learning_rate=0.01"
    ),
    "pacs_pretrained_full_step": f"--methods fedomg {FULL} --set fedomg:server_lr=1",
    "pacs_pretrained_others": f"--dataset pacs {WHOLE_OTHERS}",
    "office_pretrained": f"--dataset officecaltech10 {THREE_SEEDS}",
    "office_pretrained_others": f"--dataset officecaltech10 {WHOLE_OTHERS}",
    "omg_kappa": f"--methods fedavg,fedomg {SCRATCH} {OMG} --set fedomg:kappa=0.05,0.1,0.25,0.5",
    "omg_step": f"--methods fedomg {SCRATCH} --set fedomg:server_lr=0.25,0.5",
    "omg_rescaled": f"--methods fedomg {SCRATCH} {OMG} --set fedomg:rescale=true",
    "omg_epochs": f"--methods fedavg,fedomg {SCRATCH} {OMG}".replace("epochs=1", "epochs=3"),
    # FedIIR's Tables 2 and 8, and its Figure 2: accuracy by the number of sites, of which five train in a round.
    "rotatedmnist_many_sites": f"--methods fedavg,fediir --targets angle_0,angle_75 {MANY}",
    "rotatedmnist_number_of_sites": (
        f"--methods fedavg,fediir --targets angle_0 {MANY} --set sites=5,10,20,50,100 --set rounds=50"
    ),
    "rotatedmnist_number_of_sites_small": (
        f"--methods fedavg,fediir --targets angle_0 {MANY} --set sites=100,50,20,10 --set rounds=100 "
        "--set max_samples_per_domain=500"
    ),
    # FedDIM's Tables 2 and 3.
    "rotatedmnist_7k_many_sites": (
        f"--methods fedavg,feddim --dataset rotatedmnist_7k --protocol feddim-many {AUTO} "
        "--set feddim:insight_momentum=0,0.5,1"
    ),
    # FedDG-GA's Table 3.
    "pacs_ga_decay": f"--methods fedga {PACS} --set step_size=0.01,0.05,0.1,0.2 --set decay=linear,none",
    # From sites with a domain each to sites with the same mix of all (lambda of the benchmark of Bai et al.).
    "pacs_mixed_domains": (
        f"--methods fedavg,fedomg --targets sketch {PACS} {SAME_RULE} {OMG} --set partition=mix "
        "--set mix_share=0,0.1,0.5,1"
    ),
    # FedOMG's Figures 2 and 9 to 13: numbers of sites, and skew.
    "cifar10_number_of_sites": f"{CIFAR10} --set dirichlet_alpha=0.1",
    "cifar10_number_of_sites_alpha_1": f"{CIFAR10} --set dirichlet_alpha=1",
    "cifar10_skewed": f"--dataset cifar10 {SKEWED}",
    "mnist_skewed": f"--dataset mnist {SKEWED}",
}


def main() -> int:
    """Run a study, or list all; return the exit code of ``fdg sweep``."""
    about, then = (__doc__ or "").splitlines()[0], "other options go to fdg sweep as they are"
    parser = argparse.ArgumentParser(description=about, epilog=then, allow_abbrev=False)
    parser.add_argument("study", nargs="?", choices=list(STUDIES))
    parser.add_argument("--data-root", help="the folder that holds the data sets")
    parser.add_argument("--to", help="the sweep's folder; default: sweeps/STUDY")
    asked, more = parser.parse_known_args()
    if asked.study is None:
        for name, call in STUDIES.items():
            sys.stdout.write(f"{name:<24} {call}\n")
        return 0
    if asked.data_root is None:
        parser.error("--data-root is missing: the folder that holds the data sets.")
    order = [asked.to or f"sweeps/{asked.study}", *shlex.split(STUDIES[asked.study]), "--data-root", asked.data_root]
    return subprocess.run([FDG, "sweep", *order, *more]).returncode


if __name__ == "__main__":
    sys.exit(main())
