"""Datasets by name, checked before they are read, and synthetic graphs of any size."""

from fastgrl.datasets.cache import FileStatus as FileStatus
from fastgrl.datasets.cache import data_folder as data_folder
from fastgrl.datasets.cache import verify as verify
from fastgrl.datasets.catalogue import DatasetInfo as DatasetInfo
from fastgrl.datasets.catalogue import FileInfo as FileInfo
from fastgrl.datasets.catalogue import describe as describe
from fastgrl.datasets.catalogue import list_datasets as list_datasets
from fastgrl.datasets.readers import convert_ogbl_ddi as convert_ogbl_ddi
from fastgrl.datasets.readers import download as download
from fastgrl.datasets.readers import load_dataset as load_dataset
from fastgrl.datasets.records import LinkDataset as LinkDataset
from fastgrl.datasets.records import NodeDataset as NodeDataset
from fastgrl.datasets.synthetic import block_model as block_model
from fastgrl.datasets.synthetic import overlapping_blocks as overlapping_blocks
from fastgrl.datasets.synthetic import rmat as rmat
