"""Checks of settings and names, with messages that say what was expected."""
