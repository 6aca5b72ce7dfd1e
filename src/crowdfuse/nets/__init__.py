"""Networks: backbones that turn inputs into features, heads with parameters per annotator, and input transforms."""

from crowdfuse.nets.annotator_heads import AnnotatorEmbedding, AnnotatorHead, EmbeddedHead, SeparateHeads
from crowdfuse.nets.annotator_tables import (
    PerAnnotator,
    active_annotators,
    append_mean_rows,
    extend_tables,
    take_rows,
)
from crowdfuse.nets.augment import (
    CropAndFlip,
    RandomResizedCropAndFlip,
    choose_augmentation,
    make_augmentation,
)
from crowdfuse.nets.backbones import Backbone, Trunk, make_trunk
from crowdfuse.nets.external_backbones import load_backbone
from crowdfuse.nets.lenet import LeNet
from crowdfuse.nets.resnet import ResNet18
from crowdfuse.nets.standardize import Standardize

__all__ = [
    "AnnotatorEmbedding",
    "AnnotatorHead",
    "Backbone",
    "CropAndFlip",
    "EmbeddedHead",
    "LeNet",
    "PerAnnotator",
    "RandomResizedCropAndFlip",
    "ResNet18",
    "SeparateHeads",
    "Standardize",
    "Trunk",
    "active_annotators",
    "append_mean_rows",
    "choose_augmentation",
    "extend_tables",
    "load_backbone",
    "make_augmentation",
    "make_trunk",
    "take_rows",
]
