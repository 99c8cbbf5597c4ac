"""Topology construction: rings, matchings, the finder, and the fabrics it is compared with."""
