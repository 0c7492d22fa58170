"""Triton kernels of the fast path: what torch would do in several passes over memory, done in one.

Each wrapper takes contiguous tensors and returns new ones; nothing here knows of autograd. Random masks are a hash
of a seed and a place, so that a backward pass draws them again instead of reading them.
"""
