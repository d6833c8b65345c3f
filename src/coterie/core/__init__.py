"""What everything rests on: the types, a model as a row, addressed randomness, errors, storage.

A `State` goes in and comes out, a `Task` is what a client can be asked, `Federation.ask` is the
only door to the clients, and `run` is the loop of rounds. Nothing here knows a method or an engine.

May touch: nothing.
"""
