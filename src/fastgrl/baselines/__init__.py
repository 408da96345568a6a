"""Published methods to compare with, one file each.

Each module has a function `run(dataset, *, seed, …) -> Outcome`: planetoid, gcn, gat, mixhop and gcnii for
nodes; wys, node2vec, netmf and netmf_eigen for links. The functions named here give vectors of any graph.
"""

from fastgrl.baselines.netmf import netmf as netmf
from fastgrl.baselines.node2vec import node2vec as node2vec
from fastgrl.baselines.node2vec import random_walks as random_walks
