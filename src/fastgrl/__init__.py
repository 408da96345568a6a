"""Learning from graphs by solving linear problems: the SVD of matrices that are never formed."""

from fastgrl.certificates import Certificate as Certificate
from fastgrl.certificates import certificate as certificate
from fastgrl.datasets import load_dataset as load_dataset
from fastgrl.errors import FastgrlError as FastgrlError
from fastgrl.fsvd import SVD as SVD
from fastgrl.fsvd import fsvd as fsvd
from fastgrl.fsvd import pinv_apply as pinv_apply
from fastgrl.graph import Graph as Graph
from fastgrl.io import read_graph as read_graph
from fastgrl.kernels import kernel_info as kernel_info
from fastgrl.leaves import Diagonal as Diagonal
from fastgrl.leaves import Function as Function
from fastgrl.leaves import Identity as Identity
from fastgrl.leaves import LowRank as LowRank
from fastgrl.leaves import Matrix as Matrix
from fastgrl.leaves import Ones as Ones
from fastgrl.normalisations import renormalised as renormalised
from fastgrl.normalisations import symmetric as symmetric
from fastgrl.normalisations import transition as transition
from fastgrl.operators import HStack as HStack
from fastgrl.operators import Operator as Operator
from fastgrl.operators import Polynomial as Polynomial
from fastgrl.operators import VStack as VStack
from fastgrl.operators import as_operator as as_operator

__version__ = "0.1.0"
