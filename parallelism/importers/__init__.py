"""Models from elsewhere: PyTorch modules, and the measured times of their operators."""
