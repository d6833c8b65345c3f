"""Attacks that a simulation can be put under: who is hostile, on what data, and with what replies.

attack     what one asks for, as data
attackers  who they are
data       clients that train on other samples than their own
replies    clients that send something else than what they trained

May touch: core, data, tasks, engines.
"""
