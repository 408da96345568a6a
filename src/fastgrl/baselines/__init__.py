"""Published methods to compare with, one file each.

Of links, a pair of nodes scores by the product of its vectors; `gcn` is a module with a `run` of its own.
"""

from fastgrl.baselines.netmf import netmf as netmf
from fastgrl.baselines.node2vec import node2vec as node2vec
from fastgrl.baselines.node2vec import random_walks as random_walks
