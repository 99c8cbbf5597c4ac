"""Collectives on any network and any group of its hosts: best rates, trees that reach them."""
