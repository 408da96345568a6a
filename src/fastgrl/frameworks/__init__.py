"""The functional SVD on tensors of PyTorch, JAX and TensorFlow: a seam for each, and no second iteration.

A module of this package is imported when the first array of its library is met.
"""
