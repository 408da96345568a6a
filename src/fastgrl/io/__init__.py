"""Files: reading graphs from them, writing embeddings, tables and graphs to them."""

from fastgrl.io.reading import Reading as Reading
from fastgrl.io.reading import read as read
from fastgrl.io.reading import read_graph as read_graph
from fastgrl.io.reading import read_nodes as read_nodes
