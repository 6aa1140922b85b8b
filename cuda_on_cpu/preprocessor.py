"""What the compiler's preprocessor leaves of a .cu text: conditions are decided, and macros replaced.

It is done here, not by a compiler: texts are read wherever they are launched, also where only NVRTC is installed, which
cannot stop after its preprocessor; and `import nncourse` reads those of the package, when no process should start. A
test compares it with g++ -E. Not read are __VA_OPT__, which NVRTC does not know either, and included files, which
students have none of.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cuda_on_cpu.conditions import NotReadError, value
from cuda_on_cpu.errors import CudaCompileError, UserError
from cuda_on_cpu.tokens import KINDS, TOKEN, Token, tokens

# As NVRTC has them: the emulator's own macros are for what happens inside a kernel.
PREDEFINED = """
#define INFINITY INFINITY
#define NAN NAN
#define NULL NULL
#define assert assert
#define __CUDACC__ 1
#define __CUDACC_RTC__ 1
#define __CUDA_ARCH__ 900
#define __cplusplus 201703L
"""
MOST_STEPS = 400_000  # tokens that macros may make of one text: more are a trap, and no compiler would end either
MOST_NESTED = 100  # macros in arguments of macros
LONGEST_NAME = 1000  # that ## makes


class Macro(NamedTuple):
    parameters: tuple[str, ...] | None  # None: used without ( )
    variadic: bool  # the last parameter takes all arguments that are left
    body: tuple[Token, ...]


class Condition(NamedTuple):
    """An #if that has not ended, as its last #else left it."""

    start: Token
    active: bool
    decided: bool  # one of its parts has been active, or none may be
    has_else: bool


class LeftOut(NamedTuple):
    """A part of the text that a condition leaves out: the condition, and the tokens."""

    start: Token
    words: Sequence[Token]


class Left(NamedTuple):
    """What the preprocessor leaves of a text, what it leaves out, and the first mistake, at which it stops."""

    words: list[Token]
    out: list[LeftOut]
    mistake: CudaCompileError | None


class Preprocessor:
    """The macros that are defined at a place of the text, and what has been left of the text up to there."""

    def __init__(self, defines: Iterable[str] = ()):
        self.macros: dict[str, Macro] = {}
        self.file, self.steps = "", MOST_STEPS
        pairs = (define.partition("=") for define in defines)
        self.read("".join([PREDEFINED, *(f"#define {name} {value or 1}\n" for name, _, value in pairs)]), "")

    def read(self, text: str, file: str) -> Left:
        """What is left of a text that follows those read before. UserError for macros that make too much of it."""
        self.file = file
        left = Left([], [], None)
        try:
            self._read(tokens(text), left)
        except CudaCompileError as mistake:
            return left._replace(mistake=mistake)
        return left

    def _read(self, words: Sequence[Token], left: Left) -> None:
        conditions: list[Condition] = []
        run: list[Token] = []  # macros have not been replaced in it
        starts = [number for number, word in enumerate(words) if word.directive == "#"]
        begin = 0
        for number, start in enumerate(starts):
            active = not conditions or conditions[-1].active
            if active:
                run += words[begin:start]
            elif start > begin:
                left.out.append(LeftOut(conditions[-1].start, words[begin:start]))
            begin, following = start + 1, starts[number + 1] if number + 1 < len(starts) else len(words)
            while begin < following and words[begin].directive:
                begin += 1
            if begin == start + 1:
                continue  # a # alone
            directive, rest = words[start + 1], words[start + 2 : begin]
            if directive.text in ("if", "ifdef", "ifndef", "elif", "else", "endif"):
                self._decide(directive, rest, conditions)
            elif active and directive.text in ("define", "undef"):
                left.words.extend(self._replaced(run))
                run = []
                self._define(directive, rest)
            elif active and directive.text in ("elifdef", "elifndef"):
                raise self._mistake(directive, f"#{directive.text} is newer than C++17: write #elif defined(…)")
        if conditions:
            raise self._mistake(conditions[-1].start, f"this #{conditions[-1].start.text} has no #endif")
        left.words.extend(self._replaced([*run, *words[begin:]]))

    def value(self, words: Sequence[Token]) -> int:
        """The value of an expression of whole numbers, in which other names than macros are 0."""
        asked = list(self._asked(words))
        return value(list(self._asked(self._replaced(asked))))

    def _mistake(self, at: Token, said: str) -> CudaCompileError:
        return CudaCompileError(f"{self.file}:{at.line}: error: {said}")

    def _decide(self, directive: Token, rest: Sequence[Token], conditions: list[Condition]) -> None:
        """Open, turn or close a condition."""
        name = directive.text
        if name in ("if", "ifdef", "ifndef"):
            possible = not conditions or conditions[-1].active
            active = possible and self._holds(directive, rest)
            conditions.append(Condition(directive, active, active or not possible, False))
            return
        if not conditions:
            raise self._mistake(directive, f"this #{name} has no #if")
        last = conditions.pop()
        if name == "endif":
            return
        if last.has_else:
            raise self._mistake(directive, f"this #{name} comes after the #else of its #if")
        active = not last.decided and (name == "else" or self._holds(directive, rest))
        conditions.append(Condition(directive, active, last.decided or active, name == "else"))

    def _holds(self, directive: Token, rest: Sequence[Token]) -> bool:
        """Whether a condition holds."""
        if directive.text in ("ifdef", "ifndef"):
            if not rest or rest[0].kind != "name":
                raise self._mistake(directive, f"#{directive.text} without a name")
            return (rest[0].text in self.macros) == (directive.text == "ifdef")
        try:
            return self.value(rest) != 0
        except NotReadError as error:
            raise self._mistake(directive, f"the condition of this #{directive.text} cannot be read: {error}") from None

    def _asked(self, words: Sequence[Token]) -> Iterable[Token]:
        """The words of a condition, with 1 or 0 in place of `defined NAME`."""
        rest = iter(words)
        for word in rest:
            if word.text != "defined":
                yield word
                continue
            name = next(rest, None)
            in_brackets = name is not None and name.text == "("
            name = next(rest, None) if in_brackets else name
            closing = next(rest, None) if in_brackets else None
            if name is None or name.kind != "name" or (in_brackets and (closing is None or closing.text != ")")):
                raise NotReadError("`defined` wants a name")
            yield word._replace(kind="number", text=str(int(name.text in self.macros)))

    def _define(self, directive: Token, rest: Sequence[Token]) -> None:
        if not rest or rest[0].kind != "name":
            raise self._mistake(directive, f"#{directive.text} without a name")
        name = rest[0].text
        if directive.text == "undef":
            self.macros.pop(name, None)
        elif len(rest) > 1 and rest[1].text == "(" and rest[1].near:
            end = next((number for number, word in enumerate(rest) if word.text == ")"), None)
            if end is None:
                raise self._mistake(directive, f"this ( of the macro {name} is never closed")
            listed = "".join(word.text for word in rest[2:end])
            parameters = listed.split(",") if listed else []
            if variadic := listed.endswith("..."):
                parameters[-1] = parameters[-1].removesuffix("...") or "__VA_ARGS__"
            self.macros[name] = Macro(tuple(parameters), variadic, tuple(rest[end + 1 :]))
        else:
            self.macros[name] = Macro(None, False, tuple(rest[1:]))

    def _replaced(self, run: list[Token]) -> list[Token]:
        """The tokens with all macros replaced."""
        if self.macros.keys().isdisjoint([word.text for word in run]):
            return run
        made = self._expanded(run, frozenset(), 0)
        return [word._replace(kind="name") if word.kind == "kept name" else word for word in made]

    def _expanded(self, run: Sequence[Token], outer: frozenset[str], depth: int) -> list[Token]:
        """The same inside of the macros `outer`, whose names stay as they are: "kept name", which is for ever."""
        if depth > MOST_NESTED:
            raise UserError(f"{self.file}: macros in arguments of macros, {MOST_NESTED} deep, are not read")
        out: list[Token] = []
        inside = set(outer)
        pending: list[Token | str] = list(reversed(run))  # a str: here the macro of this name ends
        while pending:
            word = pending.pop()
            if isinstance(word, str):
                inside.discard(word)
                continue
            macro = self.macros.get(word.text) if word.kind == "name" else None
            if macro is None:
                out.append(word)
                continue
            if word.text in inside:
                out.append(word._replace(kind="kept name"))
                continue
            body: Sequence[Token] = macro.body
            if macro.parameters is not None:
                ended: list[str] = []
                while pending and isinstance(pending[-1], str):
                    ended.append(pending.pop())  # type: ignore[arg-type]
                if not pending or pending[-1].text != "(":  # type: ignore[union-attr]
                    pending += reversed(ended)
                    out.append(word)
                    continue
                inside.difference_update(ended)
                body = self._with_arguments(word, macro, self._arguments(word, macro, pending, inside), inside, depth)
            self._count(len(body) + 1)
            pending.append(word.text)
            pending += reversed(body)
            inside.add(word.text)
        return out

    def _count(self, steps: int) -> None:
        self.steps -= steps
        if self.steps < 0:
            raise UserError(f"{self.file}: macros that make more than {MOST_STEPS:,} words of a text are not read")

    def _arguments(
        self, name: Token, macro: Macro, pending: list[Token | str], inside: set[str]
    ) -> dict[str, list[Token]]:
        """Take the arguments of a macro, from its ( on, out of what is pending."""
        pending.pop()
        parameters = macro.parameters or ()
        found: list[list[Token]] = [[]]
        depth = 1
        while pending:
            word = pending.pop()
            if isinstance(word, str):
                inside.discard(word)
                continue
            depth += {"(": 1, ")": -1}.get(word.text, 0)
            if not depth:
                break
            if word.text == "," and depth == 1 and not (macro.variadic and len(found) >= len(parameters)):
                found.append([])
            else:
                found[-1].append(word)
        if depth:
            raise self._mistake(name, f"the ( of the macro {name.text} is never closed")
        self._count(sum(map(len, found)) + len(inside))
        if macro.variadic and len(found) == len(parameters) - 1:
            found.append([])
        if not parameters and found == [[]]:
            found = []
        if len(found) != len(parameters):
            counts = f"expected {len(parameters)}, got {len(found)}"
            raise self._mistake(name, f"the number of arguments of the macro {name.text}: {counts}")
        return dict(zip(parameters, found, strict=True))

    def _with_arguments(
        self, name: Token, macro: Macro, arguments: dict[str, list[Token]], inside: set[str], depth: int
    ) -> list[Token]:
        """The body of a macro with its arguments in place of its parameters, and # and ## done."""
        replaced: dict[str, list[Token]] = {}
        parts: list[list[Token]] = []  # operands of ##, which an empty argument leaves empty
        body, number = macro.body, 0
        while number < len(body):
            word, number = body[number], number + 1
            after = body[number] if number < len(body) else None
            if word.text == "#" and after and after.text in arguments:
                parts.append([word._replace(kind="string", text=_quoted(arguments[after.text]))])
                number += 1
            elif word.kind == "paste" and parts and after:
                number += 1
                right = arguments.get(after.text, [after])
                rest = macro.variadic and macro.parameters and after.text == macro.parameters[-1]
                if rest and parts[-1] and parts[-1][-1].text == ",":  # `, ## __VA_ARGS__` leaves no comma alone
                    parts[-1] = [*parts[-1], *right] if right else parts[-1][:-1]
                elif parts[-1] and right:
                    parts[-1] = [*parts[-1][:-1], *self._joined(name, parts[-1][-1], right[0]), *right[1:]]
                else:
                    parts[-1] = parts[-1] or list(right)
                self._count(len(parts[-1]))
            elif word.text in arguments:
                if after and after.kind == "paste":
                    parts.append(arguments[word.text])
                    continue
                if word.text not in replaced:
                    replaced[word.text] = self._expanded(arguments[word.text], frozenset(inside), depth + 1)
                    self._count(len(inside))
                parts.append(replaced[word.text])
                self._count(len(parts[-1]))
            else:
                parts.append([word])
        return [word for part in parts for word in part]

    def _joined(self, name: Token, left: Token, right: Token) -> list[Token]:
        """What ## makes of two tokens."""
        text = left.text + right.text
        if len(text) > LONGEST_NAME:
            raise self._mistake(name, f"## makes a word of more than {LONGEST_NAME} letters")
        match = TOKEN.fullmatch(text)
        if not match or match.lastgroup in ("comment", "open"):
            return [left, right]
        return [left._replace(kind=KINDS.get(kind := match.lastgroup or "", kind), text=text)]


def _quoted(words: Sequence[Token]) -> str:
    """What # makes of an argument."""
    parts = [word.text if word.near or not number else f" {word.text}" for number, word in enumerate(words)]
    return '"' + "".join(parts).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
