"""What is read and written: LIBRA's inputs, plans, answers as text and JSON."""
