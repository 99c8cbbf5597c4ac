"""The question: what to train, on what cluster, at what prices."""
