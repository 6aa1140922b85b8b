"""Faults that the emulator finds: their kinds, their facts, and the messages for them.

The emulator's program reports a kind and facts; `message()` makes a sentence of them. A translation replaces TEMPLATES
and WORDS. Kinds and their facts (`thread` and `block` are (x, y, z)):

race         shared, between_blocks, array, index, thread, block, other_thread, other_block, other_line
             memory ("argument", "static shared", "dynamic shared", "device")
bounds       memory ("argument", "dynamic shared", "other"), write, bytes, array, index, elements, array_bytes, thread,
             block
barrier      call, arrived, threads, block, absent ("ended", "waits"), other_line, other_call; or call, blocks
warp         as barrier, and warp; or outside_mask with thread and block
time limit   seconds, thread, block
const        array
trap         thread, block
assert       condition, thread, block
memory       of ("kernel", "stacks", "cells"), megabytes, thread, block
crash        cause ("division", "stack", "address", "addresses", "alignment", "unknown"), report
too many     accesses, or arguments
"""

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cuda_on_cpu.errors import UserError

UNSET = struct.unpack("f", b"\xfe" * 4)[0]  # an uninitialised float with GCC; with Clang it is NaN
MOST_BELOW = -1000  # an index further below 0 has other causes, such as an overflow
SEPARATOR = "\x1f"  # AND in cuda_on_cpu_threads.h

WORDS = {
    "thread of block": "thread {thread} of block {block}",
    "other thread of block": "thread {other_thread} of block {other_block}",
    "static shared": "shared memory",
    "dynamic shared": "dynamic shared memory",
    "element": "1 element",
    "elements": "{count} elements",
    "array": "an array",
    "array of": "{array} ({array_bytes} bytes)",
    "below 0": "; the index is below 0: does a test leave such elements out?",
    "True": "writes",
    "False": "reads",
    "ended": "the others ended without it",
    "waits": "the others wait at line {other_line}, in {other_call}()",
    "waits too": "the others wait at another {other_call}() of the same line",
    "other line": " (the other access is in line {other_line})",
    "no report": "it left no report",
}

TEMPLATES = {
    "race in shared memory": ": thread {thread} and {whom} both touch {what}, one writes, "
    "with no barrier between them: is a __syncthreads() missing?{other}",
    "race in a block": ": thread {thread} and {whom} both touch {what}, one writes{other}, "
    "and nothing makes one wait for the other: check the index; if it is right, use atomicAdd or __syncthreads()",
    "race between blocks": ": {who} and {whom} both touch {what}, one writes{other}, "
    "and blocks do not wait for each other: check the index; if it is right, use atomicAdd in all lines that touch it",
    "bounds of argument": " {verb} {bytes} bytes out of bounds: {array}[{index}], but {array} has {count}; "
    "{who}{below}",
    "bounds of dynamic shared": " {verb} {bytes} bytes out of bounds: byte {index} of the dynamic shared memory, "
    "which has {elements}; {who}",
    "bounds of other": " {verb} {bytes} bytes out of bounds of {what}; {who}",
    "barrier": ": {call}() reached by {arrived} of {threads} threads of block {block}; {absence}",
    "barrier of the grid": ": {call}() was not reached by all {blocks} blocks",
    "warp": ": {call}() reached by {arrived} of the {threads} threads in its mask, in warp {warp} of block {block}; "
    "{absence}",
    "warp without the caller": ": {call}() called by a thread that is not in its mask: {who}",
    "time limit": " did not end within {seconds} s: {who} still runs; look for an endless loop",
    "const": " writes to {array}, which it declares const",
    "trap": ": __trap() called by {who}",
    "assert": ": the assertion `{condition}` does not hold; {who}",
    "memory of stacks": ": not enough memory for the stacks of all blocks that wait at once",
    "memory of cells": ": not enough memory to look for races in its __device__ variables",
    "memory of kernel": " takes more than {megabytes} MB of memory; {who}",
    "too many accesses": ": makes more than {accesses} accesses, too many to record: use smaller sizes",
    "too many arguments": " has more than the {arguments} arguments that fit here",
    "crash by division": " divides an integer by zero",
    "crash by stack": " needs more than the 256 KB of local memory that the emulator gives a thread",
    "crash by address": " reads or writes memory that belongs to no array",
    "crash by alignment": " uses an address that is no multiple of what it takes at once: 16 bytes for float4, "
    "8 for float2",
    "crash by addresses": " cannot run: the emulator must reserve more addresses than this machine grants: "
    "run `ulimit -v unlimited` before you start Python",
    "crash by unknown": " ended the emulator; launch it again: {report}",
}


@dataclass(frozen=True)
class Fault:
    """A fault of a kernel: its kind, where it is (line 0: unknown), and its facts."""

    kind: str
    file: str
    function: str
    line: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict)


class EmulationError(UserError):
    """A mistake detected while a kernel ran on the CPU; the message begins "file:line: kernel …".

    It has the attributes of its fault: kind, line, function, facts.
    """

    def __init__(self, fault: Fault):
        super().__init__(fault)
        self.fault = fault
        self.kind, self.line, self.function, self.facts = fault.kind, fault.line, fault.function, fault.facts

    def __str__(self) -> str:
        return message(self.fault)


def message(fault: Fault, templates: Mapping[str, str] = TEMPLATES, words: Mapping[str, str] = WORDS) -> str:
    """The fault in one line: "file:line: kernel …"."""
    where = f"{fault.file}:{fault.line}: {fault.function}" if fault.line else f"{fault.file}: {fault.function}"
    return where + templates[form(fault)].format_map({**fault.facts, **_phrases(fault, words)})


def form(fault: Fault) -> str:
    """The key of a fault's template."""
    kind, facts = fault.kind, fault.facts
    if kind == "race":
        in_block = "race in shared memory" if facts["shared"] else "race in a block"
        return "race between blocks" if facts["between_blocks"] else in_block
    if kind == "barrier" and "blocks" in facts:
        return "barrier of the grid"
    if kind == "warp" and "outside_mask" in facts:
        return "warp without the caller"
    if kind == "too many":
        return "too many accesses" if "accesses" in facts else "too many arguments"
    parts = {"bounds": ("of", "memory"), "memory": ("of", "of"), "crash": ("by", "cause")}
    if kind not in parts:
        return kind
    joint, fact = parts[kind]
    return f"{kind} {joint} {facts[fact]}"


def _phrases(fault: Fault, words: Mapping[str, str]) -> dict[str, str]:
    """The parts of the message that depend on several facts."""
    facts, phrases = fault.facts, {}
    if "thread" in facts:
        phrases["who"] = words["thread of block"].format_map(facts)
    if fault.kind == "race":
        array = facts.get("array", words["array"])
        one = f"{array}[{facts['index']}]" if "index" in facts else array
        phrases["what"] = words[facts["memory"]] if facts["shared"] else one
        phrases["whom"] = words["other thread of block"].format_map(facts)
        phrases["other"] = words["other line"].format_map(facts) if "other_line" in facts else ""
    elif fault.kind == "bounds":
        phrases["verb"] = words[str(facts["write"])]
        phrases["what"] = words["array of" if "array_bytes" in facts else "array"].format_map(facts)
        below = facts["memory"] == "argument" and MOST_BELOW <= facts["index"] < 0
        phrases["below"] = words["below 0"] if below else ""
        if "elements" in facts:
            phrases["count"] = words["element" if facts["elements"] == 1 else "elements"].format(
                count=facts["elements"]
            )
    elif "absent" in facts:
        same_line = facts["absent"] == "waits" and facts["other_line"] == fault.line
        same_call = same_line and facts["other_call"] == facts["call"]
        phrases["absence"] = words["waits too" if same_call else facts["absent"]].format_map(facts)
    elif facts.get("cause") == "unknown":
        phrases["report"] = facts["report"] or words["no report"]
    elif fault.kind == "time limit":
        phrases["seconds"] = f"{facts['seconds']:g}"
    return phrases


def read(text: str) -> tuple[str, dict[str, Any]]:
    """The kind and the facts that the emulator's program sent. Numbers, booleans and (x, y, z) are converted."""
    kind, *facts = text.split(SEPARATOR)
    pairs = (fact.partition("=") for fact in facts)
    return kind, {name: _value(name, value) for name, _, value in pairs if value}


def _value(name: str, text: str) -> Any:
    if name in ("array", "call", "other_call", "condition", "memory"):
        return text
    if text in ("true", "false"):
        return text == "true"
    if place := re.fullmatch(r"\((\d+), (\d+), (\d+)\)", text):
        return tuple(map(int, place.groups()))
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    return float(text) if name == "seconds" else text
