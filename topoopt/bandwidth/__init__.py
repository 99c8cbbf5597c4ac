"""LIBRA: how to divide bandwidth over the dimensions of a multi-dimensional network.

`allocate.allocate_bandwidth` is the whole way from inputs to an `allocate.Allocation`;
`problem.Problem` and `solver.solve` are the fast core below it.
"""
