from __future__ import annotations

import json
import subprocess
import sys

import pytest

from fastgrl.parallel import available_cpus

# Time that threads other than Python's own spend during a call. A BLAS that has handed out work even once
# keeps its threads waiting busily for tens of milliseconds, on cores that others could use.
PROGRAM = """
import json, tempfile, time, warnings
import numpy as np
import fastgrl as fg
from fastgrl.parallel import use_threads

def of_others():
    return time.process_time() - time.thread_time()

def watched(name, run):
    begin = of_others()
    value = run()
    spent[name] = 1000 * (of_others() - begin)
    return value

def watch_links(**how):
    links, name = fg.LinkPredictor(**how), how["design"]
    watched(f"{name}: fit", lambda: links.fit(graph))
    watched(f"{name}: vectors", lambda: (links.left_, links.right_))
    watched(f"{name}: score_pairs", lambda: links.score_pairs(list(zip(ids[:-1], ids[1:]))))
    watched(f"{name}: recommend", lambda: links.recommend(k=3))
    watched(f"{name}: certificate_", lambda: links.certificate_)
    new = watched(f"{name}: transform", lambda: links.transform(edges))
    watched(f"{name}: new nodes", lambda: (new.recommend(k=3), new.score_pairs([(5001, 5000), (3, 5000)])))
    watched(f"{name}: partial_fit", lambda: links.partial_fit(edges))
    with tempfile.TemporaryDirectory() as folder:
        watched(f"{name}: save", lambda: links.save(folder + "/model"))
        loaded = watched(f"{name}: load", lambda: fg.load(folder + "/model"))
        watched(f"{name}: loaded", lambda: (loaded.recommend(k=3), loaded.left_))

def watch_nodes(**how):
    nodes, name = fg.NodeClassifier(select=False, **how), how["design"]
    watched(f"{name}: fit", lambda: nodes.fit(graph, y, features=X))
    watched(f"{name}: predict", lambda: (nodes.predict(), nodes.predict_proba(), nodes.decision_function()))
    watched(f"{name}: quality", lambda: (nodes.certificate_, nodes.loo_accuracy_, nodes.score(ids, truth)))
    watched(f"{name}: explain", lambda: nodes.explain(3))
    watched(f"{name}: new nodes", lambda: nodes.predict(edges=edges, features=X[:2]))
    watched(f"{name}: relabel", lambda: nodes.relabel({0: 1, 1: 2}))

def watch_factorisations():
    M = fg.Polynomial(fg.transition(graph), [3, 2, 1]) - 0.02 * fg.Ones((n, n))
    svd = watched("fsvd", lambda: fg.fsvd(M, 32))
    watched("fsvd by subspaces", lambda: fg.fsvd(M, 32, method="subspace", n_iter=3))
    watched("fsvd of an array", lambda: fg.fsvd(X, 16))
    watched("certificate", lambda: fg.certificate(M, svd))
    watched("pinv_apply", lambda: fg.pinv_apply(svd, np.ones((n, 50))))
    watched("embed", lambda: fg.embed(graph, 32))
    watched("NodeFeatures", lambda: fg.NodeFeatures(graph, features=X).fit(ids).transform(ids))

warnings.simplefilter("ignore")
digits, spent = fg.load_dataset("digits"), {}
graph, X, truth, ids, n = digits.graph, digits.X, digits.y, digits.graph.node_ids, digits.graph.num_nodes
y = np.where(np.arange(n) % 3, truth, -1)
edges = [(0, 5000), (1, 5000), (2, 5001), (5, 5001)]
with use_threads(1):
    watch_links(design="log-diffusion", select=False)
    watch_links(design="degree-walk", select=False)
    watch_links(design="shrunken", select=False, n_components=32)
    watch_nodes(design="co-ridge")
    watch_nodes(design="jkn-text")
    watch_factorisations()
A = np.ones((800, 800))
watched("control", lambda: A @ A)
print(json.dumps(spent))
"""


@pytest.mark.skipif(available_cpus() < 2, reason="a BLAS has no second thread on one CPU")
def test_no_blas_call_of_ours_wakes_a_second_thread():
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    spent = json.loads(run.stdout)
    assert spent.pop("control") > 5, "nothing is measured here"
    assert not {name: spent for name, spent in spent.items() if spent > 3}
