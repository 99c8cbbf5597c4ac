"""Training jobs on Clos fabrics: what `routing.clos` does not know, because it knows no models."""
