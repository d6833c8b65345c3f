"""The codes of data that cannot be read, or cannot be divided as asked."""

from __future__ import annotations

from coterie.core.codes.families import Code, explained_by_family

READING: dict[str, Code] = explained_by_family(
    {
        "D001": "a named set lies in none of the folders looked at",
        "D002": "the source is no known name and no existing file or folder",
        "D003": "the source is of a kind that cannot be read",
        "D004": "an option that this kind of source does not have, or a value it cannot take",
        "D005": "refused: reading it could run code (pickles, saved Python objects)",
        "D006": "the file declares more data than the limit: a decompression bomb, or too large",
        "D007": "the file is not what its name says: bad magic number, broken container or syntax",
        "D008": "the file is shorter or longer than its own header says",
        "D009": "a part is missing: a file of the set, an array, a column, a split",
        "D010": "there are no samples",
        "D011": "samples and labels (or owners) differ in number",
        "D012": "a label is missing, negative, fractional, or outside its classes",
        "D013": "a value is not a finite number",
        "D014": "samples differ in shape: ragged rows",
        "D015": "an image cannot be decoded",
        "D016": "images differ in size",
        "D017": "a path inside a folder leads out of it",
        "D018": "the shape of the samples is unclear or does not fit",
        "D019": "the test set does not fit the training set",
        "D020": "an optional package is not installed",
        "D021": "a Hugging Face set could not be fetched or opened",
        "D022": "a named set does not hold what its name promises",
        "D023": "the operating system refused to read the file",
    }
)
DIVIDING: dict[str, Code] = explained_by_family(
    {
        "C020": "no kind of partition has this name",
        "C021": "a field of a kind of partition is unknown or out of bounds",
        "C022": "kinds of partition that cannot be composed",
        "C023": "an argument of the division is out of bounds",
        "D030": "more clients asked for than there are samples",
        "D031": "labels asked for that the data do not have",
        "D032": "clients with fewer samples than asked for",
        "D033": "clients left without a training sample",
        "D034": "labels that no client would own",
        "D035": "too few samples of a label for everyone who should get some",
        "D036": "the data do not say who owns which sample",
        "D037": "there is no official test set left",
        "D038": "samples that cannot be rotated",
        "D039": "more groups asked for than are possible",
        "D040": "too few samples of a class to set some aside",
        "D041": "a saved partition that was made with other arguments",
        "D042": "a file that holds no partition",
        "D043": "samples or labels that do not fit together",
        "D044": "a partition that does not fit the data",
        "D045": "no two clients of different groups to change places",
        "D046": "no client has a test sample to be compared on",
        "D047": "clients in whom no groups were planted",
        "D049": "clients that do not come with the column that is asked for",
        "D048": "the data of a run that was opened are not at hand",
    }
)
