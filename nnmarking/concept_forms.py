"""The two forms of the concept test, printed on paper or written as a notebook."""

from pathlib import Path

from nncourse.errors import refuse_unwritable
from nnmarking.concepts import FORMS, LETTERS, Question

INTRODUCTION = (
    "This test has twelve questions, each with one correct answer. If you do not know an answer, leave it out rather "
    "than guess. The result does not count towards your mark."
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
    """Write the notebook: the questions, a cell for the letters, and a cell that writes them to answers.csv."""
    import nbformat

    refuse_unwritable(path, "the notebook")
    numbers = [str(number) for number in range(1, len(FORMS[form]) + 1)]
    advice = "# Enter your name, and a letter from a to d for each answer. Then run this cell and the next."
    letters = "\n".join([advice, 'student = ""', *(f'q{number} = ""' for number in numbers)])
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
    return f"notebook: {path}"
