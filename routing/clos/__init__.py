"""Routing of persistent training traffic on Clos (leaf-spine) fabrics. Knows no models.

In the order data flows: `fabric` (what is wired and live), `flows` (what is sent), `assignment`
(a spine for every flow), `metric` (how fast every job then is) and `bounds` (how fast it could
be), `routers` (who chooses), `tables` (what hosts are told); `simulation`, under a controller in
`loop`. Kernels take their arrays in the groups of `arrays_kernels` and `run_kernels`.
"""
