"""Attacks: what somebody who sees the uploads of a client learns of its samples, with controls.

uploads      what left a client, sorted by kind
pictures     samples as people see them, and how alike two are
rebuilding   samples rebuilt from gradients, forces and subspaces
labels       label counts from the last layer and from signatures
membership   who was trained on, by loss
controls     attacks that must succeed and attacks that must fail, or nothing is concluded

May touch: core, words, tasks.
"""
