"""Data to try things on: files or generators in, arrays out."""
