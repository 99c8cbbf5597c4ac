"""What a plan is compared with, and what each fabric costs."""
