"""Real federations: clients on machines of their own, reached by Flower's messages.

backend    questions as messages, a quorum of answers, rounds that are abandoned without one
exchange   who is there, what was sent, what came back, what came too late
messages   what crosses: a question and an answer as typed records
validate   an answer is looked at before a number of it is used; knows no Flower
client     the client's side, and what it keeps for itself, on its own disk
serving    a server and a client as commands
children   SuperLink and SuperNode as processes that end with their parent; child is their main
guard      stands before the SuperLink: who may ask for what, and how much may be sent
runtime    being the server of a run, and answering a SuperNode, inside our own process
certs      an authority, a server's certificate, a key per client; nginx a proxy before the server
internals  all that is used below Flower's public interface: nothing else may import it
"""

import contextlib
import os
import warnings

# Before Flower is imported, which reads them then: it must not look for anything outside.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")

with warnings.catch_warnings():  # it imports names that newer versions of click deprecate
    warnings.simplefilter("ignore", DeprecationWarning)
    with contextlib.suppress(ImportError):  # the extra is missing: whoever needs it says so
        import flwr.app
        import flwr.clientapp
        import flwr.serverapp  # noqa: F401
