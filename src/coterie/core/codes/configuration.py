"""The codes of what was asked for and cannot be meant: command line, file, network, engine."""

from __future__ import annotations

from coterie.core.codes.families import Code

CONFIGURATION: dict[str, Code] = {
    "C001": Code(
        "a command line that cannot be read",
        "A command, option or argument does not exist, or a value is missing.",
        "`coterie` alone lists the commands; with --help behind it, each lists its options.",
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
        "The message says which. Modules are found where they are installed and in the folder "
        "where you are; the function may take shape and classes, to size its layers.",
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
    "C036": Code(
        "a saved model whose network is not at hand",
        "Its network was made in Python and has no name, or it is not coterie's own: a file or "
        "folder from elsewhere must not choose what code runs. A .pt2 file is a program itself.",
        "Give the network again (model=...), or allow the code that it names or holds "
        "(--allow-code).",
    ),
    "C037": Code(
        "a client or cluster that the run does not have",
        "Clients have the names of clusters.csv, clusters the numbers there.",
        "Use one that the message lists.",
    ),
    "C038": Code(
        "a metric that cannot be used",
        "evaluate.metrics names metrics of coterie's, or functions of labels and scores as "
        "package.module:function. This one does not exist, cannot be imported, or would share its "
        "name in the records with another.",
        "docs/metrics.md lists those that there are, and shows a function of one's own.",
    ),
    "C039": Code(
        "a test that shows no scores",
        "Metrics beside accuracy and loss are computed from what a model says to each test sample. "
        "A method with a test of its own must show that.",
        "Derive the test from coterie.Score or coterie.tasks.score.Showing, or leave out "
        "evaluate.metrics.",
    ),
    "C040": Code(
        "a method of yours that cannot be imported",
        'A method from elsewhere is given as "package.module:Class": a frozen dataclass that can '
        "be imported from where coterie runs.",
        "Install the module, or start coterie in the folder that holds it.",
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
    "C048": Code(
        "a setting that a method's formulas cannot have",
        "Some methods are derived for plain SGD, or take a step of their own on the server: with "
        "another optimiser they would compute something else than they say.",
        "Leave the setting out, or choose another method; the method's page says what it needs.",
    ),
    "C050": Code(
        "an engine that needs a server",
        "Clients of the flower engine are other machines: they join a server.",
        "`coterie serve FILE --certs DIR/server` starts it, and `coterie join SERVER --data PATH "
        "--certs DIR/clients/NAME` joins it; --insecure tries both on one machine.",
    ),
    "C051": Code(
        "a federation whose clients do not fit together",
        "All clients must have samples of one shape and one set of classes, and the experiment "
        "must name a network that all of them have.",
        "Look at the clients that the message names.",
    ),
    "C052": Code(
        "a program that is not installed or does not start",
        "SuperLink and SuperNode come with Flower, certificates are made with cryptography: both "
        "are in the extra flower, which not everybody installs.",
        'pip install "coterie[flower]"; the last lines of its log are in the message.',
    ),
    "C053": Code(
        "a server that would be open to everybody",
        "Without TLS, whoever reaches the server can read and change what crosses, and take part.",
        "Make certificates with `coterie certs DIR --clients NAMES` and give --certs; or stay on "
        "127.0.0.1.",
    ),
    "C054": Code(
        "an engine that this machine is not equipped for",
        "The ray engine needs Ray; the compiled one llvmlite and a processor with AVX2 and FMA.",
        "pip install 'coterie[ray]' or 'coterie[fast]', or choose another engine.",
    ),
    "C056": Code(
        "data that only a client of a federation has",
        "The clients of a federation keep their data, and what a method leaves with them. The "
        "server has the models it sent and the scores it was told.",
        "Ask on the client's machine: `coterie join` keeps the client's model there.",
    ),
    "C057": Code(
        "a model that cannot be written in this format",
        "A model's file ends in .safetensors, .pt2 or .onnx; ONNX takes packages of its own.",
        'pip install "coterie[onnx]", or choose another format.',
    ),
    "C058": Code(
        "a client that predicts with several models at once",
        "Under FedEM and FedRC a client's probabilities are those of k models, mixed, and a file "
        "holds one model.",
        "Take the models one by one, as clusters; fedrc.hard = true tests and uses one.",
    ),
    "C055": Code(
        "a Ray cluster that cannot be used",
        "Nobody answers at engine.address, or the cluster has fewer cores than engine.workers.",
        "Start the cluster, or name fewer workers; without an address Ray starts on this machine.",
    ),
    "C070": Code(
        "a table of a paper that cannot be done again like this",
        "There is no such table, or it has no such setting or method, or its data cannot be had.",
        "`coterie reproduce` lists the tables and the data that each can be run on.",
    ),
    "C080": Code(
        "a part of the atlas that there is not",
        "The grid of the atlas is fixed: it has these kinds of difference, data sets, sizes and "
        "methods, and no others. A method of your own joins with --method package.module:Class.",
        "The message names what is nearest; `coterie atlas --list` shows all of it.",
    ),
    "C061": Code(
        "nothing to choose by",
        "A round, or a setting, is chosen on validation data: samples of a client that it neither "
        "trains on nor is tested on. Test data never choose.",
        "Set data.validation_share, 0.2 is usual; in Python, validation_share of `partition` or "
        "`Population.of`.",
    ),
    "C085": Code(
        "an attack that cannot be carried out",
        "It names clients or a planted group that there are not, or leaves nobody honest.",
        "`coterie data FILE` shows the clients and groups; docs/robust.md has the attacks.",
    ),
    "C060": Code(
        "a value from Python that cannot be meant",
        "A method, solver, partition or function was given a field or keyword that it does not "
        "have, or a value of another type or out of its bounds.",
        "The message lists what there is; a type checker finds most of these before anything runs.",
    ),
    "C071": Code(
        "a run that cannot be audited here",
        "An audit compares what an attacker rebuilds with the samples themselves, and the clients "
        "of a federation keep theirs.",
        "Audit the experiment file on data of your own: `coterie audit FILE`.",
    ),
    "C072": Code(
        "an epsilon that cannot be kept",
        "What is planned would spend more of a client's privacy than it may, with the noise that "
        "was given or with any. A small client is drawn often and spends most.",
        "More noise, fewer rounds or local epochs, a larger epsilon, or clients of more samples.",
    ),
    "C073": Code(
        "noise that would not cover everything",
        "With [privacy] all that leaves a client is under noise and accounted for. That is so for "
        "kin (with kin.follow = false), fedavg, fedprox, fedavg-ft, dapfl, cflgt and fedclust, on "
        "networks without batch normalisation, with clients in this process or on Ray.",
        "Choose one of these, another normalisation, or leave out [privacy].",
    ),
}
