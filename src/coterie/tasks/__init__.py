"""What a client can be asked: to train, to be tested, to describe its data.

A task is a frozen dataclass of plain values that runs on the client with nothing but what is the
client's own and what was sent. Engines run tasks; they know none of the methods that ask.

May touch: core, words.
"""
