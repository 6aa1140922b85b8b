"""Whether two answers are the same text apart from names, spaces, comments and annotations.

Equal texts prove nothing: short exercises have few right answers, and many students find the same one.
"""

import ast
import hashlib
import re
import warnings

from cuda_on_cpu.source import COMMENT

LONGEST = 64 << 10  # characters; a longer text is compared as it stands
TOKEN = re.compile(r"[A-Za-z_]\w*|(?:\d|\.\d)[\w.]*(?:(?<=[eE])[+-]\d+)?|\"(?:\\.|[^\"\\])*\"|\S")
# Words that may precede a name without declaring it.
NO_TYPES = {"return", "else", "case", "goto", "throw", "new", "delete", "sizeof", "if", "while", "for", "switch"}
LANGUAGE = """
auto bool break char const constexpr continue default do double enum extern false float inline int long namespace
operator short signed static struct template true typedef typename union unsigned using void volatile
__global__ __device__ __shared__ __constant__ __restrict__ __forceinline__ __launch_bounds__
threadIdx blockIdx blockDim gridDim warpSize dim3 float2 float4 int2 int4 uint3 size_t
"""
KEPT_WORDS = NO_TYPES | set(LANGUAGE.split())


def plain_hash(text: str) -> str:
    """A hash of the text without spaces."""
    return hashlib.sha256("".join(text.split()).encode("utf-8", "replace")).hexdigest()


def normalised_hash(text: str, cuda: bool) -> str:
    """A hash that stays the same when names, spaces, comments, docstrings and annotations change."""
    if len(text) > LONGEST:
        return plain_hash(text)
    try:
        words = cuda_normalised(text) if cuda else python_normalised(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # no Python, or too deep to compare
        return plain_hash(text)
    return hashlib.sha256(words.encode("utf-8", "replace")).hexdigest()


def python_normalised(text: str) -> str:
    """The syntax tree with the text's own names numbered in order, without docstrings and annotations.

    Names that the text does not bind, such as np and len, stay.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about escapes such as "\\d"
        tree = ast.parse(text)
    own = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            own.add(node.id)
        elif isinstance(node, ast.arg):
            own.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            own.add(node.name)
        elif isinstance(node, ast.alias):
            own.add(node.asname or node.name)
    numbers: dict[str, str] = {}

    def number(name: str) -> str:
        return numbers.setdefault(name, f"v{len(numbers)}") if name in own else name

    class Renamed(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.AST:  # noqa: N802
            return ast.Name(number(node.id), ast.Load())

        def visit_arg(self, node: ast.arg) -> ast.AST:
            return ast.arg(number(node.arg))

        def visit_keyword(self, node: ast.keyword) -> ast.AST:
            return ast.keyword(node.arg, self.visit(node.value))

        def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:  # noqa: N802
            node.name, node.returns = number(node.name), None
            return self.generic_visit(_without_docstring(node))

        def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:  # noqa: N802
            node.name = number(node.name)
            return self.generic_visit(_without_docstring(node))

        def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:  # noqa: N802
            if node.value is None:
                return ast.Pass()
            return self.visit(ast.Assign([node.target], node.value))

        def visit_Expr(self, node: ast.Expr) -> ast.AST:  # noqa: N802
            return ast.Pass() if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    return ast.dump(Renamed().visit(tree))


def _without_docstring(node: ast.FunctionDef | ast.ClassDef) -> ast.AST:
    """The definition without its docstring and without `pass` beside something else."""
    body = [s for s in node.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    node.body = [s for s in body if not isinstance(s, ast.Pass)] or [ast.Pass()]
    return node


def cuda_normalised(text: str) -> str:
    """The tokens without comments, with names numbered in order. Words of the language, members after a point or an
    arrow, and functions that the text calls but does not declare stay as they are.
    """
    tokens = TOKEN.findall(COMMENT.sub(" ", text))
    around = list(zip(["", *tokens], tokens, [*tokens[1:], ""], strict=False))
    declared = {here for before, here, after in around if after == "(" and _is_type(before)}
    numbers: dict[str, str] = {}
    words = []
    for before, here, after in around:
        is_name = re.match(r"[A-Za-z_]", here) and here not in KEPT_WORDS and before not in (".", ">")
        if is_name and (after != "(" or here in declared):
            here = numbers.setdefault(here, f"v{len(numbers)}")
        words.append(here)
    return " ".join(words)


def _is_type(word: str) -> bool:
    return word in ("*", "&", ">") or bool(re.fullmatch(r"[A-Za-z_]\w*", word)) and word not in NO_TYPES
