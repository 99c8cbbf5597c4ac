"""Everything that builds and runs a plan: cables, addresses, routes, launch files, and a check."""
