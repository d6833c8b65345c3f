"""Runs that are over: opened again, their models taken away or asked, newcomers placed."""
