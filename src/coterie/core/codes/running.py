"""The codes of what goes wrong in a run: access, quorum, its folder, training, your code."""

from __future__ import annotations

from coterie.core.codes.families import Code, explained_by_family

RUNNING: dict[str, Code] = {
    "A001": Code(
        "a client that its server does not let in",
        "The server does not know the client's key, or the key is in use by another process. "
        "Keys are listed by the server when it starts.",
        "Use the key that was made for this client; the server needs its public half.",
    ),
    "A002": Code(
        "a certificate or key that cannot be used",
        "The file is missing, is no certificate or key, belongs to another authority, or has run "
        "out.",
        "`coterie certs DIR --clients NAMES` makes new ones; copy the folders it names to the "
        "machines it names.",
    ),
    "K001": Code(
        "no usable checkpoint",
        "The run stopped before its first round was saved, or every checkpoint is damaged.",
        "Start the run again.",
    ),
    "K002": Code(
        "a damaged checkpoint",
        "A file of the checkpoint is missing, or its SHA-256 is not the one in the manifest: it "
        "was cut short or changed after it was written.",
        "Nothing, if an older one is whole: it is used instead, and the rounds since are repeated "
        "to the same bits.",
    ),
    "K003": Code(
        "a checkpoint of another format",
        "It was written by another version of coterie.",
        "Resume it with the version that wrote it.",
    ),
    "K004": Code(
        "records that were changed",
        "metrics.csv or clusters.csv no longer begins with what the checkpoint knows of it.",
        "Put the file back, or start the run again.",
    ),
    "K005": Code(
        "a folder that already holds a run",
        "A run never writes over another.",
        "Resume it, or choose another folder with --out.",
    ),
    "K006": Code(
        "a folder that holds no run",
        "The folder of a run has a run.toml.",
        "Name a folder that `coterie run` wrote.",
    ),
    "K007": Code(
        "a run that is in use",
        "Another process holds the folder. The lock goes with that process, even if it is killed.",
        "Wait until it ends, or stop it.",
    ),
    "K008": Code(
        "other data than the run was started with",
        "The fingerprint of the clients' data differs: another file, partition, seed or scaling.",
        "Put the data back, or start a new run.",
    ),
    "K009": Code(
        "a run that was started from Python",
        "Only the program that started it has its data and its model.",
        "Continue it there: coterie.fit(..., out=folder, resume=True). Commands that only read "
        "work on it: report, export, predict, place.",
    ),
    "K010": Code(
        "other settings than the run was started with",
        "The rounds to come would belong to another experiment than the rounds behind.",
        "Put the settings back, or allow each by name: --allow-change KEY.",
    ),
    "K011": Code(
        "a folder that holds no comparison",
        "The folder of a comparison has a compare.toml.",
        "Name a folder that `coterie compare` wrote.",
    ),
    "K012": Code(
        "another comparison than the folder was started with",
        "The runs to come would not be comparable with the runs that are there.",
        "Put the settings back, or choose another folder with --out.",
    ),
    "K013": Code(
        "runs that do not share their clients or their initial weights",
        "Methods are compared on the same clients and from the same weights. Somebody changed the "
        "data or the folder of a run between two runs of one seed.",
        "Start the comparison again in another folder with --out.",
    ),
    "K014": Code(
        "a file that no model can be made of",
        "The file of a model (.safetensors, .pt2 or .onnx) carries a card that says which network "
        "it is of. Files of other programs do not have it. ONNX files are run by onnxruntime.",
        "Name a file that `coterie export`, `Result.save` or a client of a federation wrote; for "
        'an .onnx file, pip install "coterie[onnx]".',
    ),
    "K015": Code(
        "a model that does not know its scaling",
        "In a federation every client scales its samples by the numbers of its own data, which "
        "the server never sees.",
        "Use the model's file on the client's own machine.",
    ),
    "K020": Code(
        "fewer rounds than are done",
        "A run goes on from its last whole round; it cannot be taken back to an earlier one.",
        "Name as many rounds as are done, or more; for a shorter run, start another with --out.",
    ),
    "K021": Code(
        "a tuning whose runs failed",
        "Settings are chosen when every candidate was tried with every seed. One that diverges "
        "is out; any other failure would make the choice depend on chance.",
        "Mend what the message names and give the same command again: what is done is kept.",
    ),
    "K016": Code(
        "another network than the run was trained with",
        "Its tensors have other names, shapes or another order than those of the run.",
        "Give the network of the run, with the same layers and the same frozen ones.",
    ),
    "K017": Code(
        "a file of a run that cannot be read",
        "The system refuses to read it, or something else has its name: a folder, a pipe, a "
        "device. Nothing of the kind is opened.",
        "Check the file and its permissions, or take it from a copy of the run.",
    ),
    "K018": Code(
        "a damaged file of a run",
        "Its text is not what a run writes: cut short, changed, or in another encoding. "
        "checkpoints/ has hashes and repairs itself (K002); the other files do not.",
        "Put the file back from a copy of the run; `coterie resume RUN` writes the page, the "
        "summary and what the models are again.",
    ),
    "Q001": Code(
        "a round that too few clients answered",
        "A question has engine.deadline seconds; with fewer answers than engine.quorum of those "
        "asked, the round is abandoned and nothing of it is kept. After engine.max_abandoned "
        "attempts the run ends.",
        "Bring the clients back and resume; or lower engine.quorum, or raise engine.deadline.",
    ),
    "Q002": Code(
        "clients that did not come",
        "Too few clients joined within engine.connect_timeout seconds.",
        "Look at what `coterie join` says on the clients' side, then start or resume again.",
    ),
    "Q003": Code(
        "answers of which none can be used",
        "Every task declares what its answer may be: type, shape and range. None that came was "
        "like that, and each is in events.jsonl with its client and the reason.",
        "Look at the reasons; for a task of your own, at its answer_form.",
    ),
    "R014": Code(
        "updates that are not finite",
        "Numbers grew beyond all bounds during local training (NaN, infinity, or too large to "
        "compute with). A client whose update, loss or private model is so is left out of its "
        "round; when all are, the run stops.",
        "Lower train.lr; look for a client with very few samples or unscaled features "
        "(data.scaling).",
    ),
    "R015": Code(
        "numbers of the server that are not finite",
        "Every update was finite by itself, and what was computed from them was not: a model, a "
        "distance or a weight. The round is not kept.",
        "Lower train.lr; look at the norms of updates in the report for a client that sends much "
        "larger numbers than the others, and leave it out.",
    ),
    "S001": Code(
        "a file that cannot be written",
        "The disk is full or read-only, a limit was reached, or the name cannot be one: too "
        "long, or below a file. The last whole round is intact.",
        "Make room or choose another folder with --out, then resume.",
    ),
    "S002": Code(
        "a file or folder that the system refuses",
        "The operating system said no where nobody expected it: permissions, a broken link, a name "
        "that is too long, too many open files.",
        "Look at the path that the message names.",
    ),
    "U001": Code(
        "your own code raised an exception on a client",
        "The model, or the data it was given, raised it during training or testing; the exception "
        "is shown above the message, once.",
        "Put it right and resume; --debug shows the whole way there.",
    ),
    "U002": Code(
        "a client on which worker processes die",
        "Three worker processes in turn ended without a word while they worked on it. The system "
        "kills a process when memory runs out; native code can also crash.",
        "Use fewer workers or a smaller batch; the serial engine shows what happens in one "
        "process.",
    ),
    **explained_by_family({"X001": "something unexpected"}),
}
