"""Transformers as they are trained: architectures, parallel layouts, costs, memory, schedules."""
