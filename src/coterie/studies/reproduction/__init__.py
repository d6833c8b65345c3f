"""Doing the papers' tables again: their settings, what they print, and what is measured here."""
