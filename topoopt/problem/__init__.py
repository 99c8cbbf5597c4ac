"""The question: job, cluster, prices, units, options and budgets."""
