"""What can be asked of networks and plans once they are made."""
