"""Every error code: what it means and what to do about it. Codes are stable and never reused."""

from __future__ import annotations

from typing import NamedTuple


class Code(NamedTuple):
    """One code: what happened, why it happens, what to do."""

    title: str
    explanation: str
    fix: str


class Family(NamedTuple):
    """The codes that begin with one letter, and the exit code they all have."""

    title: str
    exit: int
    explanation: str
    fix: str


FAMILIES = {
    "C": Family(
        "configuration",
        2,
        "The experiment file, an option or a hyper-parameter cannot be meant. Nothing was run.",
        "Put right what the message names; `coterie check FILE` looks again without training.",
    ),
    "D": Family(
        "data",
        3,
        "The data is missing, damaged, or cannot be divided as asked. Nothing was run.",
        "Put right what the message names; `coterie data SOURCE` shows what can be read.",
    ),
    "A": Family(
        "access",
        8,
        "A key or certificate is missing, unusable, or was not accepted. Nothing was exchanged.",
        "`coterie certs DIR` makes new ones; each side has to use those made for it.",
    ),
    "Q": Family(
        "quorum",
        4,
        "Too few clients answered, or came at all. The last whole round is in the run's folder.",
        "Bring the clients back, then `coterie serve --resume RUN`.",
    ),
    "K": Family(
        "checkpoint",
        5,
        "The folder of a run cannot be used as it is. What is in it was not changed.",
        "Put right what the message names, or start the run again in another folder with --out.",
    ),
    "R": Family(
        "training",
        6,
        "Training left the finite numbers. The last whole round is in the run's folder.",
        "Lower train.lr, or look at the client that the message names; then resume.",
    ),
    "S": Family(
        "storage",
        7,
        "The disk is full or refuses to be written. The last whole round is intact.",
        "Make room or choose another folder, then `coterie resume RUN`.",
    ),
    "U": Family(
        "your code",
        1,
        "Your own model, method or data set raised an exception; it is shown above the message.",
        "Put it right there, then run or resume.",
    ),
    "X": Family(
        "unexpected",
        1,
        "Something happened that coterie did not foresee: most likely a fault in coterie.",
        "Run the command again with --debug and report what it prints.",
    ),
}

OWN = {
    "C001": Code(
        "a command line that cannot be read",
        "A command, option or argument does not exist, or a value is missing.",
        "`coterie --help` lists the commands, `coterie COMMAND --help` their options.",
    ),
    "C010": Code(
        "an experiment file that cannot be read",
        "There is no such file, it may not be read, or it is not UTF-8 text.",
        "Check the name, or write a new file with `coterie init FILE`.",
    ),
    "C011": Code(
        "an experiment file that is not TOML",
        "The text breaks the rules of TOML at the line and column shown. Most often a text lacks "
        "its quotes, a bracket is not closed, or a key is given twice.",
        "Mend the line shown; https://toml.io explains the format.",
    ),
    "C012": Code(
        "problems in an experiment",
        "Every problem is listed with its line, its key and value, the reason and what to do: "
        "unknown keys and tables, values of the wrong type or out of range, and settings that are "
        "possible alone but not together. Settings of the command line stand above the file.",
        "Mend them all and look again with `coterie check FILE`; `coterie check FILE --explain "
        "KEY` says where a value came from; `coterie init FILE` writes a file with every key.",
    ),
    "C013": Code(
        "a setting on the command line that is not key=value",
        "Settings name the table and the key: train.rounds=50. Values are TOML; bare words are "
        "texts.",
        'Write it like train.lr=0.1, partition.kind=dirichlet:0.3 or "data.source=./my photos".',
    ),
    "C014": Code(
        "a key that does not exist",
        "--explain takes the dotted name of a key, such as train.lr.",
        "`coterie check FILE --explain train` shows a whole table.",
    ),
    "C015": Code(
        "a file that would be overwritten",
        "`coterie init` never replaces a file unasked.",
        "Choose another name, or add --force.",
    ),
    "C016": Code(
        "a code that does not exist",
        "Codes are a letter and three digits: C for configuration, D for data, K for checkpoints, "
        "R for training, S for storage, U for your own code.",
        "`coterie help` lists them all.",
    ),
    "C017": Code(
        "methods that cannot be compared as asked",
        "A comparison needs two methods or more, each under its own name, and a setting that one "
        "method has alone may not change the clients, the network or the seed.",
        "Write --methods fedavg,fedclust:clusters=4, or method = [...] in the experiment file.",
    ),
    "C018": Code(
        "a file that lists several methods",
        "A run has one method. A list asks for a comparison: the same experiment for each of them.",
        "`coterie compare FILE`, or choose one of them: method=fedavg.",
    ),
    "C019": Code(
        "a chart that cannot be drawn",
        "There is no chart of that name, the run has nothing for it, or figures as files were "
        "asked for without kaleido and a Chrome or Chromium to draw them in.",
        'The message says which; for files: pip install "coterie[figures]" and a browser.',
    ),
    "C030": Code(
        "a network that cannot take these samples",
        "Convolutions and pooling need images of at least some size; features need a network "
        "that takes any input.",
        "`coterie models` says what each takes; mclr, dnn2 and mlp take anything.",
    ),
    "C031": Code(
        "a network of yours that cannot be built or used",
        "The factory could not be imported or called, or its network does not take the samples or "
        "does not give one output per class.",
        "Let the function take shape and classes, and size the first and last layers by them.",
    ),
    "C032": Code(
        "columns that the network does not have",
        "A method or an option names a layer, or the head, and the network has none of that name.",
        "Name one of the layers that the message lists; model.head names the head.",
    ),
    "C033": Code(
        "a network that is not known",
        "No network has this name.",
        '`coterie models` lists them; your own is "package.module:function".',
    ),
    "C034": Code(
        "a network that does not have this option",
        "Only some networks have normalisation, and each has its own options.",
        "`coterie models` shows what each has.",
    ),
    "C035": Code(
        "a network that cannot be one row of numbers",
        "Federated methods need every parameter and buffer to be floating-point numbers of one "
        "kind, each belonging to one place.",
        "Change what the message names in the network.",
    ),
    "C040": Code(
        "a method of yours that cannot be imported",
        'A method from elsewhere is given as "package.module:Class": a frozen dataclass that can '
        "be imported from where coterie runs.",
        "Try `python -c 'import package.module'`; set PYTHONPATH if the module is not installed.",
    ),
    "C041": Code(
        "a method that is not known",
        "No method has this name.",
        "`coterie methods` lists them.",
    ),
    "C042": Code(
        "an engine that is not known",
        "No engine has this name.",
        "Use one that the message lists.",
    ),
    "C043": Code(
        "a task that a client does not know",
        "A message names a task that is not defined where it arrived.",
        "Install the same version of coterie, and of your own methods, on both sides.",
    ),
    "C044": Code(
        "a server without samples of its own",
        "The method compares models on samples that the server holds.",
        "Set data.public to 1 or more: samples of each class, set aside for the server.",
    ),
    "C045": Code(
        "a tracker that cannot be used",
        "No tracker has this name, or the package it writes with is not installed.",
        "Install the extra that the message names, or leave it out: output.trackers=[].",
    ),
    "C046": Code(
        "a port that cannot be used",
        "Another program listens there, or it may not be used by you.",
        "Name another with --port; without one, a free port is chosen.",
    ),
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
        "`coterie certs DIR` makes new ones; copy the folders it names to the machines it names.",
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
    "C050": Code(
        "an engine that needs a server",
        "Clients of the flower engine are other machines: they join a server.",
        "`coterie serve FILE` starts it, `coterie join SERVER --data PATH` joins it.",
    ),
    "C051": Code(
        "a federation whose clients do not fit together",
        "All clients must have samples of one shape and one set of classes, and the experiment "
        "must name a network that all of them have.",
        "Look at the clients that the message names.",
    ),
    "C053": Code(
        "a server that would be open to everybody",
        "Without TLS, whoever reaches the server can read and change what crosses, and take part.",
        "Make certificates with `coterie certs DIR` and give --certs; or stay on 127.0.0.1.",
    ),
    "C054": Code(
        "an engine whose package is not installed",
        "The ray engine needs Ray.",
        "pip install 'coterie[ray]', or choose another engine.",
    ),
    "C055": Code(
        "a Ray cluster that cannot be used",
        "Nobody answers at engine.address, or the cluster has fewer cores than engine.workers.",
        "Start the cluster, or name fewer workers; without an address Ray starts on this machine.",
    ),
    "C052": Code(
        "a program that is not installed or does not start",
        "SuperLink and SuperNode come with Flower.",
        'pip install "coterie[flower]"; the last lines of its log are in the message.',
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
        "Continue it there: coterie.fit(..., out=folder, resume=True).",
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
    "R014": Code(
        "updates that are not finite",
        "Numbers grew beyond all bounds during local training (NaN or infinity). A client whose "
        "update is not finite is left out of its round; when all are, the run stops.",
        "Lower train.lr; look for a client with very few samples or unscaled features "
        "(data.scaling).",
    ),
    "S001": Code(
        "a file that cannot be written",
        "The disk is full, read-only, or a limit was reached. The last whole round is intact.",
        "Make room or choose another folder with --out, then resume.",
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
    "X001": Code(
        "something unexpected",
        FAMILIES["X"].explanation,
        FAMILIES["X"].fix,
    ),
}


def codes() -> dict[str, Code]:
    """Every code there is; those of the data are told in one line and explained by their family."""
    from coterie.data import codes as data
    from coterie.data import kinds

    told = {**data.CODES, **kinds.CODES}
    brief = {c: Code(t, FAMILIES[c[0]].explanation, FAMILIES[c[0]].fix) for c, t in told.items()}
    return dict(sorted({**brief, **OWN}.items()))
