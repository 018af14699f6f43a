"""Thin commands over the other packages: parse arguments, call, print. Nothing is computed here."""
