"""Loaders of public data sets, and a generator of two moons."""

from __future__ import annotations

from crowdfuse.datasets.cifar import CifarData, load_cifar
from crowdfuse.datasets.cifar10h import load_cifar10h, load_cifar10h_labels
from crowdfuse.datasets.cifar10n import load_cifar10n
from crowdfuse.datasets.cifar_features import CifarFeatures, load_cifar_features
from crowdfuse.datasets.crowd import CrowdDataset
from crowdfuse.datasets.dopanim import load_dopanim
from crowdfuse.datasets.image_folder import (
    ImageFolder,
    ImageFolderSplit,
    read_image_folder,
    split_image_folder,
    weakness_distances,
)
from crowdfuse.datasets.label_only import LabelOnly, load_label_only
from crowdfuse.datasets.labelme import load_labelme, load_labelme_images
from crowdfuse.datasets.mnist import ImageData, load_mnist
from crowdfuse.datasets.music_genres import load_music_genres
from crowdfuse.datasets.sentiment import Sentiment, load_sentiment
from crowdfuse.datasets.two_moons import TwoMoons, make_two_moons

__all__ = [
    "CifarData",
    "CifarFeatures",
    "CrowdDataset",
    "ImageData",
    "ImageFolder",
    "ImageFolderSplit",
    "LabelOnly",
    "Sentiment",
    "TwoMoons",
    "load_cifar",
    "load_cifar10h",
    "load_cifar10h_labels",
    "load_cifar10n",
    "load_cifar_features",
    "load_dopanim",
    "load_label_only",
    "load_labelme",
    "load_labelme_images",
    "load_mnist",
    "load_music_genres",
    "load_sentiment",
    "make_two_moons",
    "read_image_folder",
    "split_image_folder",
    "weakness_distances",
]
