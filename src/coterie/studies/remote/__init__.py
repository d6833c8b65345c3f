"""Clients on other machines: who is waited for, what they bring, what is agreed."""
