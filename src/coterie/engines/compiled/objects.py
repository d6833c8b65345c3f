"""Programs as machine code: compiled once, kept in the user's cache folder, loaded and called.

A file of the cache is named by all that its code depends on (the plan, the kernels' source, the
processor it is for, llvmlite's version and with it LLVM's) and begins with the hash of what
follows. It is written aside and then named, so that a process that is killed leaves no half of one.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import secrets
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from coterie.data.named import cache as user_cache
from coterie.engines.compiled.host import Processor, binding, check_machine
from coterie.engines.compiled.linking import Linked, LinkedByLLVM, Loaded, NotLinkableError
from coterie.engines.compiled.plan import Plan

HASH = 32  # bytes
POINTER, INT = ctypes.c_void_p, ctypes.c_int64
SIGNATURES: dict[str, list[Any]] = {
    "train": [POINTER] * 7 + [INT] + [POINTER] * 2 + [INT],
    "gradient": [POINTER] * 5 + [INT, POINTER],
    "read": [POINTER] * 4 + [INT, POINTER, INT],
    "arrange": [POINTER] * 2,
    "restore": [POINTER] * 2,
}


def compiled(text: str, processor: Processor) -> bytes:
    """A program as an object file."""
    llvm = binding()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    machine = target.create_target_machine(
        cpu=processor.name, opt=3, reloc="pic", codemodel="small"
    )
    module = llvm.parse_assembly(text)
    module.verify()
    tuning = llvm.create_pipeline_tuning_options(speed_level=3)
    # The kernels say themselves what is a vector and what is written out.
    tuning.loop_unrolling = tuning.loop_vectorization = tuning.slp_vectorization = False
    passes = llvm.create_pass_builder(machine, tuning)
    passes.getModulePassManager().run(module, passes)
    code: bytes = machine.emit_object(module)
    return code


class Machine:
    """The functions of an object file, ready to be called; it travels as the file's bytes."""

    train: Callable[..., None]
    gradient: Callable[..., None]
    read: Callable[..., None]
    arrange: Callable[..., None]
    restore: Callable[..., None]

    def __init__(self, code: bytes, processor: Processor) -> None:
        self.runs = processor.lanes <= check_machine().lanes  # here: it may come from elsewhere
        self.code, self.processor = code, processor
        try:
            self.loaded: Loaded = Linked(code)
        except NotLinkableError:  # another system's format
            self.loaded = LinkedByLLVM(code)
        for name, kinds in SIGNATURES.items():
            setattr(self, name, ctypes.CFUNCTYPE(None, *kinds)(self.loaded.address(name)))

    def __reduce__(self) -> tuple[Any, ...]:
        return Machine, (self.code, self.processor)


def machine(
    plan: Plan, folder: Path | None = None, announce: Callable[[], object] = bool
) -> tuple[Machine, bool]:
    """The code of a plan, and whether it had to be compiled now: that is announced before."""
    processor = check_machine()
    file = file_of(plan, folder)
    if code := kept(file):
        return Machine(code, processor), False
    announce()
    from coterie.engines.compiled.program import Program

    code = compiled(str(Program(plan, processor)), processor)
    keep(file, code)
    return Machine(code, processor), True


def file_of(plan: Plan, folder: Path | None = None) -> Path:
    """Where the code of a plan is kept, if it is there."""
    return (folder or user_cache() / "compiled") / f"{name(plan)}.o"


def name(plan: Plan) -> str:
    """All that the code of a plan depends on, as a name."""
    processor = check_machine().name
    parts = (repr(plan), source(), processor, version("llvmlite"), platform.system())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


@cache
def source() -> str:
    """A hash of the kernels as they are written."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def kept(file: Path) -> bytes | None:
    """The code in a file of the cache, if it is whole and nobody else can have written it."""
    try:
        with open(file, "rb") as opened:
            about = os.fstat(opened.fileno())
            if hasattr(os, "getuid") and (about.st_uid != os.getuid() or about.st_mode & 0o022):
                return None
            content = opened.read()
    except OSError:
        return None
    code = content[HASH:]
    return code if code and hashlib.sha256(code).digest() == content[:HASH] else None


def keep(file: Path, code: bytes) -> None:
    """Put code into the cache; without room or leave to write, it is compiled again next time."""
    aside = file.with_name(f".{file.stem}.{secrets.token_hex(8)}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(handle, "wb") as opened:
            opened.write(hashlib.sha256(code).digest() + code)
        os.replace(aside, file)
    except OSError:
        with suppress(OSError):
            aside.unlink()
