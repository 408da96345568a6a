"""The same models on the machines of a Dask cluster: rows lie there, and so does the work.

`with connected("tcp://…") as cluster:` is how one begins. Nothing of Dask is imported before that.
"""

from fastgrl.distributed.clusters import Cluster as Cluster
from fastgrl.distributed.dask_engine import connected as connected
