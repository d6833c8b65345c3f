"""The rows: what goes wrong, and what is expected then. Tests say by `row(n)` which they prove."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """One thing that goes wrong."""

    number: int
    part: str
    fault: str
    expected: str


CRASH, INPUT, SECURITY = "Crash and recovery", "Bad input", "Security"
BYZANTINE, PRIVACY = "Hostile clients", "Privacy"
_PARTS = (
    (
        CRASH,
        (
            (
                "the process of a run is killed in the middle of a round",
                "`coterie resume` does the round again; models, metrics.csv and clusters.csv are "
                "those of a run that was never disturbed, to the byte",
            ),
            (
                "a crash at every single storage operation",
                "the folder is at the end of a round; after a resume its bytes are those of an "
                "undisturbed run and no temporary file is left",
            ),
            (
                "Ctrl-C or SIGTERM",
                "the run stops within 2 seconds, its last round is whole, the command that goes on "
                "is printed, exit 130; a second signal ends at once",
            ),
            (
                "a resume with other settings, data, threads or version",
                "refused with every key that differs (exit 5) unless it is allowed by name; what "
                "may change the bits is a warning",
            ),
            (
                "a client's process is killed in the middle of a round",
                "noticed at once and named; what it was at is done again, or the round goes on "
                "with a quorum",
            ),
            (
                "a client answers after the deadline",
                "its answer is not used, and that is told",
            ),
            (
                "a client leaves and comes back; somebody new comes late",
                "it keeps its name, its cluster and its private model; who is new is placed and "
                "nobody else moves",
            ),
            (
                "too few clients answer",
                "the round is abandoned and the models stay as they were, to the bit; after "
                "`engine.max_abandoned` attempts exit 4, and the run can be resumed",
            ),
            (
                "nobody connects",
                "told every 10 seconds; exit 4 at `engine.connect_timeout`",
            ),
            (
                "a cluster loses all its members",
                "its model stays as it is and lives again when somebody returns; nothing is "
                "divided by zero",
            ),
            (
                "the disk is full, or may not be written",
                "exit 7 with the path and the bytes wanted and free; the last checkpoint loads",
            ),
            (
                "a checkpoint is cut, changed by one bit, or a file of it is gone",
                "found by its SHA-256 and named; the round before is used, aloud; exit 5 if there "
                "is none",
            ),
            (
                "two processes on one folder",
                "the second is refused with the number and the machine of the first; the lock of a "
                "process that was killed holds nobody up",
            ),
        ),
    ),
    (
        INPUT,
        (
            (
                "NaN or infinity in an update",
                "that client is left out, named with the tensor and how many; the others are "
                "averaged; all of them: the round is abandoned, then exit 6",
            ),
            (
                "another shape or type, a missing or a further tensor",
                "refused before anything is computed, with what was expected and what came",
            ),
            (
                "a number of samples that is negative, 0, NaN or 1e9",
                "no such number is accepted; what a client declares counts for no more than "
                "`engine.max_weight_share` of its cluster",
            ),
            (
                "a huge answer, or one that claims to be huge",
                "refused before it is fetched; memory rises by less than twice the model",
            ),
            (
                "two clients of one name",
                "the second is refused and the first stays",
            ),
            (
                "an answer that comes twice, again, or for another round",
                "counted once, or not at all",
            ),
            (
                "a client without samples",
                "prevented where clients are made, or told by name; a mean of nothing is not a "
                "number, and not 0",
            ),
            (
                "one class, one sample, a class that nobody trained on, equal clients, a last "
                "batch of one with batch normalisation",
                "every method trains; distances are finite by a written rule",
            ),
            (
                "clustering of one, of two, of equals, into more groups than clients, of NaN",
                "a defined answer; too many groups are told; NaN is refused by name",
            ),
            (
                "damaged data: cut IDX, bad magic, cut PNG, ragged CSV, missing labels, objects in "
                "an NPZ, bombs",
                "exit 3 with the file and the place; a cap on what is decoded",
            ),
            (
                "a bad experiment file",
                "all problems at once, each with its line, the nearest name and what to do; exit 2 "
                "before torch is imported",
            ),
            (
                "a user's own code raises in a client",
                "its own traceback first, with client and round, once; exit 1",
            ),
        ),
    ),
    (
        SECURITY,
        (
            (
                "a pickle in the place of a checkpoint or a model",
                "never unpickled",
            ),
            (
                "a hostile CIFAR batch, objects in an NPZ, code in an experiment file or a run's "
                "folder, `../` in a name",
                "refused; nothing of it runs and nothing is written elsewhere",
            ),
            (
                "a node with no listed key, another's name, or a key that was taken off the list",
                "refused before any model leaves, and told; exit 8 at the client",
            ),
            (
                "no TLS, another authority, an expired certificate",
                "refused in the handshake, exit 8; no server leaves the loopback without TLS",
            ),
            (
                "attacks on the live view and on pages: another host's name, no token, other "
                "verbs, paths, a client called `<script>`",
                "refused; all text stays text; the page may load nothing",
            ),
            (
                "calling home",
                "no connection but to this machine in any command",
            ),
        ),
    ),
    (
        BYZANTINE,
        (
            (
                "a fifth of the clients flip the sign of their updates, or scale them by ten",
                "a robust mean stays within 3 points of the clean run, where flipped signs cost "
                "the plain mean 20 or more and scaling 10 or more; too few clients for it are told",
            ),
            (
                "flipped labels, free-riders, and clients that imitate a cluster to enter it",
                "clusters that were not attacked lose at most a point; the report names who is "
                "suspicious",
            ),
        ),
    ),
    (
        PRIVACY,
        (
            (
                "images and labels are rebuilt from what clients send",
                "`coterie audit` says what can be rebuilt from each kind of upload; the control "
                "succeeds, and fails under differential privacy",
            ),
            (
                "membership inference",
                "AUC with its interval; an over-fitted model is caught, shuffled labels are not",
            ),
            (
                "claims of differential privacy",
                "epsilon is that of an independent computation; impossible pairs are refused",
            ),
        ),
    ),
)
ROWS = tuple(
    Row(number, part, *text)
    for number, (part, text) in enumerate(
        ((part, text) for part, rows in _PARTS for text in rows), 1
    )
)
assert len(ROWS) == 36
