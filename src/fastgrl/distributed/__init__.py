"""The same models on the machines of a Dask cluster: rows lie there, and so does the work.

    with connected("tcp://host:8786") as cluster, used(cluster):
        links = fg.LinkPredictor().fit(graph)

`used` is in `fastgrl.distributed.places`; `embed_folder` in `fastgrl.distributed.embedding` is for files that
no caller could hold. Nothing of Dask is imported before `connected` is called.
"""

from fastgrl.distributed.clusters import Cluster as Cluster
from fastgrl.distributed.dask_engine import connected as connected
