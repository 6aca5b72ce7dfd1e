"""What people read after a fit."""
