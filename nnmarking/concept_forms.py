"""The two forms of the test of concepts, on paper and as a notebook."""

from pathlib import Path

from nncourse.errors import refuse_unwritable
from nnmarking.concepts import FORMS, LETTERS, Question

INTRODUCTION = (
    "Twelve questions, each with one right answer. If you do not know it, leave it out: a guess tells nobody anything. "
    "The result does not count towards a mark."
)


def asked(number: int, question: Question) -> str:
    """A question in Markdown."""
    choices = [f"- {letter}) {words}" for letter, words in zip(LETTERS, question.choices, strict=True)]
    return "\n".join([f"**{number}.** {question.text}", "", *choices])


def paper(form: str) -> str:
    parts = [asked(number, question) for number, question in enumerate(FORMS[form], 1)]
    answers = "   ".join(f"{number} __" for number in range(1, len(parts) + 1))
    return "\n\n".join([f"# Form {form}", INTRODUCTION, *parts, "Name ____________________", answers])


def write(form: str, path: Path) -> str:
    """A notebook: the questions, a cell for the letters, and one that writes them to answers.csv, a row of a table."""
    import nbformat

    refuse_unwritable(path, "the notebook")
    numbers = [str(number) for number in range(1, len(FORMS[form]) + 1)]
    letters = "\n".join(['student = ""', *(f'q{number} = ""' for number in numbers)])
    names = ", ".join(f"q{number}" for number in numbers)
    table = [
        "import csv",
        'with open("answers.csv", "w", newline="", encoding="utf-8") as file:',
        f'    rows = ["student", "form", *{numbers}], [student, "{form}", {names}]',
        "    csv.writer(file).writerows(rows)",
    ]
    texts = [f"# Form {form}\n\n{INTRODUCTION}", *(asked(n, each) for n, each in enumerate(FORMS[form], 1))]
    cells = [nbformat.v4.new_markdown_cell(text) for text in texts]
    cells += [nbformat.v4.new_code_cell(text) for text in (letters, "\n".join(table))]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})
    path.write_text(nbformat.writes(notebook), "utf-8")
    return f"written: {path}"
