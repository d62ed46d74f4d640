# SPDX-License-Identifier: Apache-2.0
"""Facts about the data sets beyond their layout: where they come from, on what terms, and how many images they have.

Each number names its source. Unverified facts are marked as uncertain or omitted, never guessed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fdg_plugins.data.catalogue import dataset_spec


@dataclass(frozen=True, kw_only=True)
class Release:
    """The number of images in one release of a data set, by domain (MNIST: by part), and the source of the numbers.

    ``by_class`` gives the numbers per class, in the order of the data set's classes, if known. ``certain`` is false
    for numbers found only in papers: a difference then causes a remark, not an error.
    """

    name: str
    source: str
    images: Mapping[str, int]
    by_class: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    certain: bool = True


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The origin of a data set: its page, what to download there, and the ``terms`` of use.

    ``licence`` states the terms in one or two words. ``releases`` is empty if no numbers are known.
    """

    page: str
    obtain: str
    licence: str
    terms: str
    releases: tuple[Release, ...] = ()


_PACS = Origin(
    page="http://www.eecs.qmul.ac.uk/~dl307/project_iccv2017",
    obtain="the archive PACS.zip, which holds kfold/<domain>/<class>/, or pacs from Hugging Face (--from hf)",
    licence="none known",
    terms="no licence of the authors is known; published for research",
    releases=(
        Release(
            name="PACS",
            source="counted on the images; 9,991 in all, as in the paper",
            images={"art_painting": 2048, "cartoon": 2344, "photo": 1670, "sketch": 3929},
            by_class={
                "art_painting": (379, 255, 285, 184, 201, 295, 449),
                "cartoon": (389, 457, 346, 135, 324, 288, 405),
                "photo": (189, 202, 182, 186, 199, 280, 432),
                "sketch": (772, 740, 753, 608, 816, 80, 160),
            },
        ),
    ),
)

_VLCS = Origin(
    page="http://www.eecs.qmul.ac.uk/~dl307/project_iccv2017",
    obtain="DomainBed's VLCS.tar.gz (<domain>/<class>/), or VLCS with train/, crossval/ and test/ and numbered classes",
    licence="none known",
    terms="no licence is known; the images are Caltech-101's, LabelMe's, SUN09's and PASCAL VOC 2007's, "
    "each with terms of its own",
    releases=(
        Release(
            name="VLCS",
            source="papers; 10,729 in all, as in DomainBed's",
            images={"caltech101": 1415, "labelme": 2656, "sun09": 3282, "voc2007": 3376},
        ),
    ),
)

_OFFICE_HOME = Origin(
    page="https://www.hemanthdv.org/officeHomeDataset.html",
    obtain="OfficeHomeDataset_10072016.zip, or office-home from Hugging Face (--from hf)",
    licence="fair use notice",
    terms="the page has a fair use notice, no licence: read it there; used for research",
    releases=(
        Release(
            name="OfficeHomeDataset_10072016",
            source="papers; 15,588 in all, as in DomainBed's",
            images={"art": 2427, "clipart": 4365, "product": 4439, "real_world": 4357},
        ),
    ),
)

_TERRA_INCOGNITA = Origin(
    page="https://lila.science/datasets/caltech-camera-traps",
    obtain="eccv_18_all_images_sm.tar.gz and the annotations caltech_camera_traps.json.zip, both in one folder",
    licence="CDLA-Permissive-1.0",
    terms="Community Data License Agreement, permissive variant, as the page states",
    releases=(
        Release(
            name="DomainBed's choice",
            source="papers that used DomainBed's script; 24,330 in all, where DomainBed's own paper says 24,788",
            images={"location_38": 9736, "location_43": 3970, "location_46": 5883, "location_100": 4741},
            certain=False,
        ),
    ),
)

_DOMAINNET = Origin(
    page="https://ai.bu.edu/M3SDA",
    obtain="the six archives <domain>.zip of the cleaned version and its lists <domain>_train.txt and "
    "<domain>_test.txt, all in one folder; or DomainNet from Hugging Face (--from hf)",
    licence="none known",
    terms="no licence is known; the images were collected from the web: read the notice on the page; used for research",
    releases=(
        Release(
            name="cleaned",
            source="the page, row #Cleaned; 586,575 in all, as in DomainBed's paper",
            images={
                "clipart": 48129,
                "infograph": 51605,
                "painting": 72266,
                "quickdraw": 172500,
                "real": 172947,
                "sketch": 69128,
            },
        ),
        Release(
            name="original, with duplicates",
            source="the page, row #Original; of clipart the paper says 48,833",
            images={
                "clipart": 48837,
                "infograph": 53201,
                "painting": 75759,
                "quickdraw": 172500,
                "real": 175327,
                "sketch": 70386,
            },
            certain=False,
        ),
    ),
)

_DOMAINNET_10 = Origin(
    page=_DOMAINNET.page,
    obtain="DomainNet, as for domainnet; these ten classes are picked from it",
    licence=_DOMAINNET.licence,
    terms=_DOMAINNET.terms,
)

_OFFICE_CALTECH_10 = Origin(
    page="https://github.com/redhat12345/OfficeCaltechDomainAdaptation",
    obtain="the folder images/ of the repository: <domain>/<class>/<image>, with the domains amazon, Caltech10, dslr "
    "and webcam",
    licence="none known",
    terms="no licence is known; images of Office-31 (Saenko et al., ECCV 2010) and Caltech-256 (Griffin et al., 2007), "
    "published for research",
    releases=(
        Release(
            name="Office-Caltech10",
            source="counted on the images; 2,533 in all, as in the paper",
            images={"amazon": 958, "caltech10": 1123, "dslr": 157, "webcam": 295},
            by_class={
                "amazon": (92, 82, 94, 99, 100, 100, 99, 100, 94, 98),
                "caltech10": (151, 110, 100, 138, 85, 128, 133, 94, 87, 97),
                "dslr": (12, 21, 12, 13, 10, 24, 22, 12, 8, 23),
                "webcam": (29, 21, 31, 27, 27, 30, 43, 30, 27, 30),
            },
        ),
    ),
)

_MNIST = Origin(
    page="http://yann.lecun.com/exdb/mnist/",
    obtain="the four files train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
    "t10k-labels-idx1-ubyte, with or without .gz",
    licence="CC BY-SA 3.0 (Keras)",
    terms="Creative Commons Attribution-Share Alike 3.0, as Keras' documentation says",
    releases=(
        Release(
            name="MNIST",
            source="counted on the images",
            images={"train": 60000, "t10k": 10000},
            by_class={
                "train": (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
                "t10k": (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
            },
        ),
    ),
)

_DIGITS = Origin(
    page="https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits",
    obtain="nothing: scikit-learn brings the images along",
    licence="CC BY 4.0",
    terms="Creative Commons Attribution 4.0, as the page states",
    releases=(
        Release(name="test part, as scikit-learn has it", source="counted on the images", images={"digits": 1797}),
    ),
)


_MNIST_PARTS = Origin(
    page=_MNIST.page,
    obtain=_MNIST.obtain,
    licence=_MNIST.licence,
    terms=_MNIST.terms,
    releases=(
        Release(
            name="MNIST",
            source="counted on the images",
            images={"train": 60000, "test": 10000},
            by_class={
                "train": _MNIST.releases[0].by_class["train"],
                "test": _MNIST.releases[0].by_class["t10k"],
            },
        ),
    ),
)

_EMNIST = Origin(
    page="https://www.nist.gov/itl/products-and-services/emnist-dataset",
    obtain="of the binary files (gzip.zip) the four that begin with emnist-mnist-, with or without .gz",
    licence="none known",
    terms="no licence text seen; derived from NIST Special Database 19, a work of the US government",
    releases=(
        Release(
            name="EMNIST, MNIST division", source="the paper", images={"train": 60000, "test": 10000}, certain=False
        ),
    ),
)


def _cifar(number: int, folder: str) -> Origin:
    return Origin(
        page="https://www.cs.toronto.edu/~kriz/cifar.html",
        obtain=f"the binary version (suitable for C programs), {folder}/; the Python version consists of pickles, "
        "which are never read",
        licence="none known",
        terms="no licence text on the page, which asks to cite the report",
        releases=(
            Release(name=f"CIFAR-{number}", source="the page", images={"train": 50000, "test": 10000}, certain=False),
        ),
    )


# The counts by class are those of the task of Sagawa et al. (ICLR 2020), whose groups in training are 71,629 and 66,874
# women and men who are not blond, 22,880 and 1,387 who are; they add up to the parts. Not counted on the images here.
_CELEBA = Origin(
    page="https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html",
    obtain="img_align_celeba.zip (aligned and cropped), list_attr_celeba.txt and list_eval_partition.txt",
    licence="research only",
    terms="non-commercial research, no redistribution, as the page's agreement says; read it before downloading",
    releases=(
        Release(
            name="CelebA",
            source="the paper and its list of parts; by class as of the task's paper",
            images={"test": 19962, "train": 162770},
            by_class={"test": (2660, 17302), "train": (24267, 138503)},
            certain=False,
        ),
    ),
)


def _vessels(name: str, drive: int) -> Release:
    images = {"chase_db1": 28, "drive": drive, "hrf": 45, "stare": 20}
    return Release(name=name, source="the four publications", images=images)


_VESSELS = Origin(
    page="https://drive.grand-challenge.org (DRIVE); https://cecas.clemson.edu/~ahoover/stare (STARE); "
    "https://researchdata.kingston.ac.uk/96 (CHASE_DB1); https://www5.cs.fau.de/research/data/fundus-images (HRF)",
    obtain="training.zip and test.zip of DRIVE, stare-images.tar and labels-ah.tar of STARE, CHASEDB1.zip, and all.zip "
    "of HRF, all in one folder; masks of the first observers are used",
    licence="CC BY 4.0 (HRF), else none known",
    terms="DRIVE: no licence text seen, the download needs an account; STARE: publicly available, no licence text "
    "seen; CHASE_DB1: public reference data set of Kingston University, no licence text seen; HRF: CC BY 4.0, free for "
    "research",
    releases=(_vessels("with DRIVE's test labels", 40), _vessels("without them", 20)),
)

_BY_PLUGIN = "see the plug-in that brings it"
_NOT_SAID = "not said by the plug-in"

_ORIGINS: Mapping[str, Origin] = {
    "pacs": _PACS,
    "vlcs": _VLCS,
    "officehome": _OFFICE_HOME,
    "terraincognita": _TERRA_INCOGNITA,
    "domainnet": _DOMAINNET,
    "domainnet10": _DOMAINNET_10,
    "officecaltech10": _OFFICE_CALTECH_10,
    "mnist": _MNIST_PARTS,
    "emnist": _EMNIST,
    "celeba": _CELEBA,
    "cifar10": _cifar(10, "cifar-10-batches-bin"),
    "cifar100": _cifar(100, "cifar-100-binary"),
    "rotatedmnist": _MNIST,
    "rotatedmnist_7k": _MNIST,
    "rotateddigits": _DIGITS,
    "vessels": _VESSELS,
}


def origin_of(dataset: str) -> Origin:
    """Return the origin of the data set called ``dataset``; for a plug-in's data set, what its record says.

    Raises SettingsError, listing the known names, if there is no such data set.
    """
    spec = dataset_spec(dataset)
    return _ORIGINS.get(spec.name) or Origin(page=spec.reference, obtain=_BY_PLUGIN, licence=_NOT_SAID, terms=_NOT_SAID)
