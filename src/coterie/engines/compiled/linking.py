"""Object files in memory, ready to be called.

Compiled programs are simple: one piece of code and its constants, all of them read relative to the
place of the code. To lay those side by side and fill in how far apart they came to lie is little
work, and it spares the processes that find their code in the cache the import of LLVM, which takes
longer than all the rest. Whatever is not as simple is left to LLVM.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Callable, Iterator
from struct import Struct, pack, pack_into
from struct import error as StructError
from typing import NamedTuple, Protocol

from coterie.engines.compiled.host import binding

# The parts of an ELF file for x86-64 that are needed here; the numbers are its standard's.
BEGINNING = Struct("<4sBBB9xHH4x16xQ4xHHHHHH")  # its kind, machine, and where sections begin
SECTION = Struct("<IIQQQQIIQQ")
SYMBOL = Struct("<IBBHQQ")
RELOCATION = Struct("<QIIq")  # place, type, symbol, addend
OBJECT, X86_64 = 1, 62
SYMBOLS, RELOCATIONS, EMPTY = 2, 4, 8  # kinds of sections
IN_MEMORY = 2  # a section's flag
RELATIVE = (2, 4)  # relocations: how far it is from here, of 32 bits
OUTSIDE = ("memset", "memcpy")  # what the code may call beside itself
JUMP = b"\xff\x25\0\0\0\0"  # to the address behind it
DOOR = 16  # bytes for such a jump: what is outside may be too far away for 32 bits


class NotLinkableError(Exception):
    """Why an object file is left to LLVM."""


class Loaded(Protocol):
    """Code that lies in memory for as long as this does."""

    def address(self, name: str) -> int:
        """Where a function is."""


class Section(NamedTuple):
    """A part of an object file."""

    kind: int
    flags: int
    content: bytes
    link: int  # of symbols and relocations, another section
    about: int
    align: int


class Linked:
    """The code of an object file of Linux, linked here."""

    def __init__(self, code: bytes) -> None:
        if not sys.platform.startswith("linux"):
            raise NotLinkableError(f"object files of {sys.platform} are not read here")
        try:
            self.sections = list(sections(code))
            self.link()
        except (StructError, IndexError, ValueError, OverflowError, OSError) as cause:
            raise NotLinkableError(f"not as object files are: {cause}") from cause

    def link(self) -> None:
        """Lay everything into memory, fill in the distances, make it code."""
        places, size = self.arrangement()
        self.memory = mmap.mmap(
            -1, size + DOOR * len(OUTSIDE), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        )
        self.held = ctypes.c_char.from_buffer(self.memory)  # which stays where it is meanwhile
        self.base = ctypes.addressof(self.held)
        for n, place in places.items():
            self.write(place, self.sections[n].content)
        doors = {name: size + DOOR * n for n, name in enumerate(OUTSIDE)}
        system = ctypes.CDLL(None)
        for name, place in doors.items():
            there = ctypes.cast(getattr(system, name), ctypes.c_void_p).value
            self.write(place, JUMP + pack("<Q", there))
        symbols = list(self.symbols(places, doors))
        self.functions = {name: place for name, place in symbols if name and place is not None}
        for section in self.sections:
            if section.kind == RELOCATIONS and section.about in places:
                self.relocate(section, places[section.about], symbols)
        self.make_code()

    def arrangement(self) -> tuple[dict[int, int], int]:
        """Where each section comes to lie that is needed in memory, and how much they take."""
        places, size = {}, 0
        for n, section in enumerate(self.sections):
            if section.flags & IN_MEMORY:
                if section.kind == EMPTY:
                    raise NotLinkableError("it wants memory of its own")
                places[n] = up(size, section.align)
                size = places[n] + len(section.content)
        return places, up(size, DOOR)

    def write(self, place: int, content: bytes) -> None:
        """Put bytes into the memory."""
        self.memory[place : place + len(content)] = content

    def make_code(self) -> None:
        """From here on the memory can be run, and no longer be written."""
        way = mmap.PROT_READ | mmap.PROT_EXEC
        where, size = ctypes.c_void_p(self.base), ctypes.c_size_t(len(self.memory))
        if ctypes.CDLL(None, use_errno=True).mprotect(where, size, way):
            raise NotLinkableError(f"memory cannot become code: error {ctypes.get_errno()}")

    def symbols(
        self, places: dict[int, int], doors: dict[str, int]
    ) -> Iterator[tuple[str, int | None]]:
        """Every symbol: its name, and where it lies in memory."""
        [table] = [section for section in self.sections if section.kind == SYMBOLS]
        names = self.sections[table.link].content
        for first, _, _, where, value, _ in SYMBOL.iter_unpack(table.content):
            name = names[first : names.index(b"\0", first)].decode()
            yield name, places[where] + value if where in places else doors.get(name)

    def relocate(self, section: Section, start: int, symbols: list[tuple[str, int | None]]) -> None:
        """Write how far it is from each place that wants to know to what it is about."""
        for place, kind, symbol, addend in RELOCATION.iter_unpack(section.content):
            name, there = symbols[symbol]
            if kind not in RELATIVE or there is None:
                raise NotLinkableError(f"relocation {kind} of {name or symbol}")
            pack_into("<i", self.memory, start + place, there + addend - (start + place))

    def address(self, name: str) -> int:
        """Where a function is."""
        return self.base + self.functions[name]


def up(n: int, step: int) -> int:
    """The next multiple of a step."""
    return -(-n // step) * step


def sections(code: bytes) -> Iterator[Section]:
    """The parts of an object file."""
    magic, wide, order, _, kind, machine, start, _, _, _, size, count, _ = BEGINNING.unpack_from(
        code
    )
    if (magic, wide, order, kind, machine) != (b"\x7fELF", 2, 1, OBJECT, X86_64):
        raise NotLinkableError("it is no object file of x86-64")
    for n in range(count):
        found = SECTION.unpack_from(code, start + n * size)
        _, kind, flags, _, place, length, link, about, align, _ = found
        content = b"" if kind == EMPTY else code[place : place + length]
        yield Section(kind, flags, content, link, about, max(1, align))


class LinkedByLLVM:
    """The code of any object file that LLVM can write."""

    def __init__(self, code: bytes) -> None:
        llvm = binding()
        host = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine()
        self.engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), host)
        self.engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self.engine.finalize_object()
        self.address: Callable[[str], int] = self.engine.get_function_address
