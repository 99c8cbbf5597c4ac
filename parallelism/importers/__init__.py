"""Models from elsewhere: Hugging Face configurations, PyTorch modules, measured operators."""
