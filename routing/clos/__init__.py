"""Routing of persistent training traffic on Clos (leaf-spine) fabrics. Knows no models.

In the order data flows: `fabric` (what is wired and live), `flows` (what is sent), `routers`
(which spine each flow takes), `metric` (how fast every job then is, and the bound), `tables`
(what hosts are told).
"""
