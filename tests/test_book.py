"""The web book: two notebooks as pages in each language without a warning, nothing fetched, words for every image."""

import importlib.util
import json
import math
import os
import re
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import nbformat
import numpy as np
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from book import assembly, front, kernel_pictures, live, markdown, notebook_pages, outputs, reference
from book.editions import edition
from book.files import Tree
from nnclassroom.exercises.catalogue import exercise_topics, find
from nnclassroom.exercises.solutions import text_of
from nnclassroom.figures.picture import show
from nncourse.catalogue import defined_in, epoch_topics, topics
from nncourse.errors import CourseError
from nnmarking import repository
from tools import book as book_tool

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
NEEDED = ("sphinx", "myst_nb", "sphinx_book_theme", "math_core")
LACKING = [name for name in NEEDED if not importlib.util.find_spec(name)]
needs_sphinx = pytest.mark.skipif(bool(LACKING), reason=f"no {', '.join(LACKING)} here: the extra book brings it")
BUILT = ("00_start_here", "02_activations", "02b_a_first_kernel")
ADDRESS = "https://course.example/nncourse"
LANGUAGES = {"en": "English", "es": "Español"}
FETCHING = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href", "object": "data"}


def build(out, *options, **environment):
    command = [sys.executable, "-m", "book.build", "--out", out, *options]
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | environment
    return subprocess.run(list(map(str, command)), cwd=ROOT, env=environment, capture_output=True, text=True)


class Page(HTMLParser):
    """An HTML page: its elements with their attributes, and the styles in it."""

    def __init__(self, path: Path):
        super().__init__()
        self.path, self.elements, self.styles = path, [], []
        self.text = path.read_text("utf-8")
        self.feed(self.text)

    def handle_starttag(self, tag, attributes):
        attributes = {name: value or "" for name, value in attributes}
        self.elements.append((tag, attributes))
        self.styles.append(attributes.get("style", ""))

    def handle_data(self, data):
        if self.elements and self.elements[-1][0] == "style":
            self.styles.append(data)

    def of(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module", params=[pytest.param(language, marks=pytest.mark.full) for language in LANGUAGES])
def book(request, spanish, tmp_path_factory):
    """Three notebooks, the topics `neuron` and `nb13` and a front page, built as one of two languages."""
    out, language = tmp_path_factory.mktemp("book"), request.param
    only = ",".join((*BUILT, "neuron", "nb13"))
    options = ("--only", only, "--address", ADDRESS, "--languages", json.dumps(LANGUAGES), "--lang", language)
    built = build(out, *options, NNCOURSE_LANG=language)
    assert built.returncode == 0, built.stdout + built.stderr
    html = out / "html" / language
    pages = {str(path.relative_to(html)): Page(path) for path in html.rglob("*.html")}
    return SimpleNamespace(language=language, out=out, html=html, pages=pages, said=built.stdout + built.stderr)


@needs_sphinx
def test_two_notebooks_become_pages_without_a_warning(book):
    said = "\n".join(line for line in book.said.splitlines() if "IPKernelApp" not in line)  # it warns of its own ports
    assert "WARNING" not in said and "ERROR" not in said
    wanted = {f"notebooks/{name}.html" for name in BUILT}
    assert [path.name for path in book.html.parent.iterdir()] == [book.language]
    assert wanted | {"index.html", "reference/index.html", "reference/neuron.html"} <= book.pages.keys()
    stems = (book.html / "searchindex.js").read_text("utf-8")
    assert all(stem in stems for stem in ("sigmoid", "perceptron", "emul"))
    assert "genindex.html" not in book.pages, "an index without an entry"


@needs_sphinx
def test_the_pages_are_in_their_language_and_its_notebooks_were_run(book):
    """English notebooks have outputs; those in other languages are run and cached."""
    words = edition(book.language).words()
    for name, page in book.pages.items():
        assert [html["lang"] for html in page.of("html")] == [book.language], name
    for name in BUILT:
        assert words.TRY_IT in book.pages[f"notebooks/{name}.html"].text
    kept = sorted((book.out / "cache" / "notebooks").glob("*.ipynb"))
    others = BUILT if book.language != "en" else ()
    assert [path.name.split(".")[:2] for path in kept] == [[name, book.language] for name in others]
    for path in kept:
        cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
        english = nbformat.read(ROOT / "notebooks" / f"{path.name.split('.')[0]}.ipynb", as_version=4).cells
        assert [cell.id for cell in cells if cell.outputs] == [cell.id for cell in english if cell.get("outputs")]


@needs_sphinx
@pytest.mark.release
def test_languages_that_are_made_side_by_side_have_all_their_files(spanish, tmp_path):
    tool = [sys.executable, str(ROOT / "tools" / "book.py"), "--out", str(tmp_path), "--only", f"{BUILT[1]},neuron"]
    built = subprocess.run(tool, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    html, files = tmp_path / "html", 0
    assert {path.name for path in html.iterdir()} == {*LANGUAGES, "index.html", "404.html", "favicon.svg"}
    for path in html.rglob("*.html"):
        page = Page(path)
        for name in (element.get("src", "").partition("?")[0] for tag in ("img", "script") for element in page.of(tag)):
            assert not name or name.startswith("data:") or (path.parent / name).is_file(), (path, name)
            files += bool(name)
    assert files > 50


@needs_sphinx
@pytest.mark.full
def test_what_sphinx_warns_of_fails_the_build(tmp_path):
    cells = [new_markdown_cell("# 99 A page"), new_markdown_cell(r"A formula $\nosuchcommand{x}$.")]
    (tmp_path / "notebooks").mkdir()
    notebook = new_notebook(cells=[*cells, new_code_cell("1")])
    notebook.cells[2].outputs = [nbformat.v4.new_output("execute_result", {"text/plain": "1"})]
    nbformat.write(notebook, tmp_path / "notebooks" / "99_a_page.ipynb")
    built = build(tmp_path, "--only", "99_a_page", "--notebooks", tmp_path / "notebooks")
    assert built.returncode != 0
    assert "nosuchcommand" in built.stdout + built.stderr and "99_a_page" in built.stdout + built.stderr


@needs_sphinx
def test_nothing_is_fetched(book):
    """Pages and style sheets load no script, style, font, image or frame from another host."""
    links = {"canonical", "next", "prev", "search", "index", "author", "help", "copyright"}  # only name another page
    for name, page in book.pages.items():
        for tag, attribute in FETCHING.items():
            for element in page.of(tag):
                if not set(element.get("rel", "").split()) & links:
                    assert "//" not in element.get(attribute, "").partition("data:")[0], (name, tag, element)
        for style in page.styles:
            assert not fetched(style), (name, style)
    for path in book.html.rglob("*.css"):
        assert not fetched(path.read_text("utf-8")), path


def fetched(style):
    addresses = re.findall(r"(?:url\(|@import)\s*[\"']?([^\"')\s]+)", style)
    return [address for address in addresses if re.match(r"(\w+:)?//", address)]


@needs_sphinx
@pytest.mark.release
def test_a_browser_fetches_nothing_and_finds_every_file(book, browser):
    asked, failed = [], []
    page = browser.new_page(viewport={"width": 400, "height": 800})
    page.on("request", lambda request: asked.append(request.url))
    page.on("requestfailed", lambda request: failed.append(request.url))
    page.on("console", lambda message: message.type == "error" and failed.append(message.text))
    for name in ("index.html", f"notebooks/{BUILT[1]}.html", "reference/neuron.html"):
        page.goto((book.html / name).as_uri())
        page.wait_for_load_state("load")
        broken = "[...document.images].filter(i => !i.complete || !i.naturalWidth).map(i => i.src)"
        assert page.evaluate(broken) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= 400, f"{name} is wider than a phone"
        headings = "[...document.querySelectorAll('h1,h2,h3')].map(h => [h.tagName, getComputedStyle(h).fontSize])"
        sizes = [float(size.removesuffix("px")) for _, size in sorted(dict(page.evaluate(headings)).items())]
        assert sizes == sorted(sizes, reverse=True), f"{name} has a larger heading below a smaller one"
        shown = "[...document.querySelectorAll('thead')].filter(h => !h.innerText.trim() && h.offsetHeight).length"
        assert page.evaluate(shown) == 0, f"{name} shows an empty head of a table"
    page.evaluate("document.documentElement.dataset.theme = 'dark'; dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "light", "dark pages are printed light"
    page.close()
    assert asked and not failed
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


@needs_sphinx
def test_every_image_has_words(book):
    seen = 0
    for name, page in book.pages.items():
        for image in page.of("img"):
            alt = image.get("alt", "")
            assert len(alt.split()) >= 4 and not alt.endswith(".png"), (name, image)
            seen += 1
    assert seen > 15


@needs_sphinx
def test_figures_turn_dark_on_dark_pages_and_photographs_do_not(book):
    classes = [image.get("class", "").split() for image in book.pages[f"notebooks/{BUILT[1]}.html"].of("img")]
    assert all("nncourse-turned" in names and "nncourse-figure" in names for names in classes)
    shown = '<img class="nncourse-figure" alt="A cat.">'
    image = {"image/png": "aa", "text/html": shown, "text/plain": "Figure: A cat."}
    output = nbformat.v4.new_output("display_data", image, metadata={"image/png": {"alt": "A cat."}})
    shown = notebook_pages.shown(output)
    assert shown.metadata["image/png"] == {"alt": "A cat.", "turned": False}


@needs_sphinx
def test_a_cuda_cell_has_the_colours_of_cuda(book):
    from book.extension.cells import CellLexer

    text = book.pages[f"notebooks/{BUILT[2]}.html"].text
    blocks = re.findall(r"<pre>.*?</pre>", text, re.DOTALL)
    cells = [block for block in blocks if "%%" in block and "__global__" in block]
    assert cells and all(re.search(r'<span class="k\w?">__global__</span>', cell) for cell in cells)
    source = '%%cuda sigmoid naive\nextern "C" __global__ void sigmoid(int n) {}\n'
    tokens = list(CellLexer().get_tokens(source))
    assert "".join(value for _, value in tokens) == source
    assert "Error" not in {str(kind).rpartition(".")[2] for kind, _ in tokens}


@needs_sphinx
def test_formulas_are_mathml_and_a_prime_is_not_a_small_one(book):
    from book.extension.formulas import mathml

    text = book.pages[f"notebooks/{BUILT[1]}.html"].text
    assert text.count("<math") > 10 and "\\frac" not in text and "$$" not in text
    assert "<msup>" not in mathml(r"\sigma'(z)", False) and "′" in mathml(r"\sigma'(z)", False)
    assert "(13e)" in mathml(r"E = m \tag{13e}", True)


@needs_sphinx
def test_each_notebook_can_be_downloaded_without_outputs(book):
    for name in BUILT:
        page = book.pages[f"notebooks/{name}.html"]
        links = [link.get("href", "") for link in page.of("a")]
        (link,) = [link for link in links if link.endswith(f"{name}.ipynb") and not link.startswith("https:")]
        there = nbformat.read((page.path.parent / link).resolve(), as_version=4)
        assert not any(cell.get("outputs") for cell in there.cells)
        wanted = nbformat.read(edition(book.language).notebooks / f"{name}.ipynb", as_version=4)
        assert [cell.source for cell in there.cells] == [cell.source for cell in wanted.cells]
        assert f"git clone {ADDRESS}" in re.sub(r"<[^>]+>", "", page.text)
        assert repository.hosts(ADDRESS, f"{name}.ipynb", book.language)["Binder"] in links


def test_without_an_address_the_box_has_no_link_out_of_the_book():
    from book import words

    assert "https:" in notebook_pages.try_it("02_activations.ipynb", words, ADDRESS)
    assert "https:" not in notebook_pages.try_it("02_activations.ipynb", words)


@needs_sphinx
def test_each_page_leads_to_itself_in_the_other_language(book):
    (other,) = LANGUAGES.keys() - {book.language}
    for name in ("index.html", f"notebooks/{BUILT[0]}.html", "reference/neuron.html"):
        page = book.pages[name]
        (link,) = [link for link in page.of("a") if link.get("hreflang") == other]
        there = Path(os.path.normpath(page.path.parent / link["href"]))
        assert there == book.html.parent / other / name


# Without Sphinx


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_figures_of_a_notebook_have_words_and_its_widgets_are_live(path):
    notebook = nbformat.read(path, as_version=4)
    widgets = {notebook.cells[place].id: "<div>live</div>" for place in notebook_pages.widgets_of(notebook)}
    page = notebook_pages.as_page(notebook, path.name, edition("en").words(), {f"notebooks/{path.name}"}, widgets)
    for cell in page.cells:
        for output in cell.get("outputs", ()):
            if "image/png" in output.get("data", {}):
                assert len(output.metadata["image/png"]["alt"].split()) >= 4 and "text/html" not in output.data
            assert not notebook_pages.is_widget(output) and "nncourse-still" not in str(output), "it stands still"
        if cell.id in widgets:
            assert [output.data for output in cell.outputs] == [{"text/html": "<div>live</div>"}], "its picture too"


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_is_to_be_predicted_is_folded_and_nothing_else(language, spanish):
    this, folded = edition(language), 0
    for path in sorted(this.notebooks.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs = [nbformat.v4.new_output("stream", text="said")]
        page = notebook_pages.as_page(notebook, path.name, this.words(), set(), {})
        before = ""
        for cell in page.cells:
            if cell.cell_type == "code":
                assert (notebook_pages.FOLDED in cell.metadata.get("tags", ())) == (this.words().PREDICT in before)
                folded += this.words().PREDICT in before
            else:
                before = cell.source
    assert folded > 100


def test_a_widget_is_made_by_its_cell_and_those_that_make_what_it_reads():
    sources = [
        "import math\n%matplotlib inline",
        "a = 1",
        "a = 2\nb = a",
        "a = 3",
        "def f(x):\n    return math.floor(b)",
    ]
    notebook = new_notebook(cells=[new_code_cell(source) for source in [*sources, "1 / 0", "print('!')\nf(0) + 5"]])
    needed = live.sources(notebook, len(notebook.cells) - 1)
    assert [source.split("\n")[0] for source in needed] == ["import math", "a = 2", "def f(x):", "print('!')"]
    assert live.value_of(needed) == 7


def test_a_widget_is_made_once_and_a_cell_that_fails_is_named(tmp_path):
    kept = live.Kept(tmp_path, "en")
    cells = ["from nnclassroom.widgets import simple", "simple.neuron()"]
    first = kept.live(cells, "01.play")
    assert set(first.texts) == {"live/neuron.js", "live/01.play.js"}
    (file,) = tmp_path.iterdir()
    written = file.stat().st_mtime_ns
    assert kept.live(cells, "01.play") == first and file.stat().st_mtime_ns == written
    assert kept.live(cells, "01.again") == first and list(tmp_path.iterdir()) == [file], "two of the same cells are one"
    with pytest.raises(CourseError, match=r"01.play: a cell failed .*ZeroDivisionError"):
        kept.live(["1 / 0"], "01.play")
    place = live.html(first, "../", edition("en").words())
    assert '<script defer src="../_static/live/neuron.js">' in place and "<noscript>" in place


def test_the_reference_has_every_operation_and_the_text_of_every_kernel():
    defined = defined_in((*topics(), *epoch_topics(), *exercise_topics()))
    listed = [operation for topic in reference.topics() for operation in topic.operations]
    assert sorted(operation.name for operation in listed) == sorted(defined)
    for operation in listed:
        groups = reference.together(operation)
        assert {kernel.name for same in groups for kernel in same} == set(operation.kernels)
        assert all(text_of(same[0]) for same in groups)


def test_a_page_of_the_reference_has_contract_source_picture_and_exercise(tmp_path):
    tree, words = Tree(tmp_path / "source"), edition("en").words()
    reference.write(tree, words, {"01_neurons": "01 Neurons"}, tmp_path / "cache", ["neuron"])
    page = (tmp_path / "source" / "reference" / "neuron.md").read_text("utf-8")
    assert "z = Σ w_i x_i + b" in page and "| `x` | `(n,)` | float32 | argument |" in page
    assert "[01 Neurons](../notebooks/01_neurons.ipynb)" in page and "| `z` | one number | float32 | result |" in page
    assert "__global__ void neuron_tree" in page and "def " in page
    assert re.search(r"```\{image\} pictures/neuron.tree.png\n:alt: \w.{60}", page)
    assert (tmp_path / "source" / "reference" / "pictures" / "neuron.tree.png").read_bytes().startswith(b"\x89PNG")


def test_a_kernel_is_pictured_on_arrays_that_it_is_made_for(tmp_path):
    drawing = kernel_pictures.drawing_of(find("one_sample")["shared"], tmp_path, "")
    assert "n_in 64, n_out 64" in drawing.words and "outside" not in drawing.words


@pytest.mark.parametrize("name, block", [("dense_forward", (4, 2)), ("sigmoid", (4,)), ("dropout", (8,))])
def test_the_picture_of_a_naive_kernel_has_a_full_block(name, block):
    kernel = find(name)["naive"]
    assert kernel_pictures.small_block(kernel, show(name, kernel).accesses) == block
    trace = show(name, kernel, block).accesses.trace
    busy = Counter(np.unique(trace.accesses[["block", "thread"]])["block"].tolist())
    assert max(busy.values()) == math.prod(block) and len(busy) > 1


def test_a_kernel_that_needs_its_block_is_pictured_with_it():
    for name in ("tiled", "coalesced"):
        kernel = find("dense_forward")[name]
        assert kernel_pictures.small_block(kernel, show("dense_forward", kernel).accesses) is None


def test_a_list_in_columns_in_a_docstring_is_code():
    listed = "Two things.\n\nshards      which rows\nall_reduce  the sum\n\nA `name` of_one.  A sentence."
    code = "    shards      which rows\n    all_reduce  the sum"
    assert markdown.of_docstring(listed) == f"Two things.\n\n{code}\n\nA `name` of\\_one.  A sentence."
    assert markdown.of_docstring("Word j\n% 4 of them.") == "Word j\n\\% 4 of them.", "no comment"


def test_a_page_of_whole_epochs_has_the_cuda_and_c_that_python_launches(tmp_path):
    tree, words = Tree(tmp_path), edition("en").words()
    reference.write(tree, words, {}, tmp_path / "cache", {"dense_epoch"})
    page = (tmp_path / "reference" / "dense_epoch.md").read_text("utf-8")
    for file in ("dense_plain.c", "dense_one_kernel.cu"):
        source = (ROOT / "fused_epochs" / file).read_text("utf-8")
        assert page.count(source.rstrip("\n")) == 1
    others = [topic for topic in reference.topics() if topic.name in ("neuron", "cost")]
    assert [reference.called(topic, words) for topic in others] == [[], []]


def test_the_front_page_has_its_beginning_all_notebooks_and_the_start_of_the_readme():
    english = edition("en")
    titles = {path.stem: assembly.title_of(nbformat.read(path, as_version=4)) for path in NOTEBOOKS}
    texts = [*assembly.INSTRUCTORS, *assembly.MORE]
    page = assembly.front_page(english.text("README.md"), titles, texts, english.words(), "THE BEGINNING")
    assert page.startswith("# nncourse\n\nTHE BEGINNING") and "make lab" in page and "start_here.png" not in page
    assert page.index("BEGINNING") < page.index(f"## {english.words().NOTEBOOKS}") < page.index("make lab")
    for name, title in titles.items():
        assert f"| [{title}](notebooks/{name}.ipynb) |" in page and f"\nnotebooks/{name}\n" in page
    for name in texts:
        assert f"\n{name}\n" in page


def test_the_front_page_begins_with_a_network_and_a_kernel_with_its_verdicts(tmp_path):
    words = edition("en").words()
    page = front.beginning("<div>live</div>", words, tmp_path)
    assert page.index("<div>live</div>") < page.index("✗ relu (mine)") < page.index("✓ relu (mine)")
    assert page.count("```cuda\n") == 2 and "out of bounds" in page
    assert [line for line in page.splitlines() if line.startswith("- ")] == [f"- {line}" for line in words.FOR_WHOM]
    for kept in (tmp_path / "verdicts").iterdir():
        kept.write_text("kept", "utf-8")
    assert front.beginning("", words, tmp_path).count("```text\nkept\n") == 2


def test_a_page_that_is_none_leads_to_every_language():
    page = book_tool.not_found(LANGUAGES, "No such page", "It begins here:")
    assert all(f'<a href="{code}/index.html" lang="{code}">{name}</a>' in page for code, name in LANGUAGES.items())
    assert "//" not in page.replace("\\//", "").replace("</", ""), "nothing is fetched"


@needs_sphinx
def test_a_page_is_described_by_its_first_paragraph_and_its_triangles_have_a_name():
    from docutils.core import publish_doctree

    from book.extension import head, theme_words

    doctree = publish_doctree(
        f"Title\n=====\n\nA {'long ' * 60}paragraph.", settings_overrides={"doctitle_xform": False}
    )
    assert re.fullmatch(r"A (long )+…", head.summary(doctree)) and len(head.summary(doctree)) <= head.LONG + 2
    named = theme_words.renamed('<summary><span class="toctree-toggle" title="Main">', {"": "More", "Main": "Pages"})
    assert named == '<summary aria-label="More"><span class="toctree-toggle" title="Pages">'


def test_links_to_what_is_no_page_become_words():
    text = "[a](b.md), [c](../d.ipynb#e), [f](https://g), ![h](i.png), [j](k.md)"
    kept = "[a](b.md), [c](../d.ipynb#e), [f](https://g), ![h](i.png), j"
    assert markdown.without_dead_links(text, "docs/x.md", {"docs/b.md", "d.ipynb"}) == kept


def test_a_tree_keeps_what_did_not_change_and_forgets_what_is_gone(tmp_path):
    first = Tree(tmp_path)
    first.write("kept.md", "the same")
    first.write("old/gone.md", "gone")
    os.utime(tmp_path / "kept.md", (1, 1))
    second = Tree(tmp_path)
    second.write("kept.md", "the same")
    second.remove_others()
    assert (tmp_path / "kept.md").stat().st_mtime == 1
    assert not (tmp_path / "old").exists()


def test_a_notebook_without_outputs_is_run_once_in_its_language(tmp_path):
    path = tmp_path / "90_small.ipynb"
    source = "import os\nprint(os.environ['NNCOURSE_LANG'])\nopen('runs', 'a').write('.')"
    nbformat.write(new_notebook(cells=[new_code_cell(source)]), path)
    for _ in range(2):
        notebook = outputs.with_outputs(path, "es", tmp_path / "cache")
        assert notebook.cells[0].outputs[0]["text"] == "es\n"
    assert (tmp_path / "runs").read_text() == "."


def test_a_cell_that_fails_is_one_line(tmp_path):
    path = tmp_path / "90_small.ipynb"
    nbformat.write(new_notebook(cells=[new_code_cell("1 / 0")]), path)
    with pytest.raises(CourseError, match=r"90_small.ipynb: a cell failed .* ZeroDivisionError: division by zero$"):
        outputs.with_outputs(path, "en", tmp_path / "cache")


def test_a_language_that_is_not_there_is_one_line(tmp_path):
    tool = [sys.executable, str(ROOT / "tools" / "book.py"), "--lang", "xx", "--out", str(tmp_path)]
    result = subprocess.run(tool, capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1 and "expected the notebooks in the language 'xx'" in result.stderr
    with pytest.raises(CourseError, match="expected this text"):
        edition("xx", notebooks=ROOT / "notebooks", texts=tmp_path).text("README.md")


@pytest.mark.parametrize(
    ("style", "addresses"),
    [
        ('@import "https://a/b.css"', ["https://a/b.css"]),
        ("a{background:url(//a/b.png)}", ["//a/b.png"]),
        ("@font-face{src:url('f.woff2')} b{background:url(data:image/svg+xml;base64,AA)}", []),
    ],
)
def test_addresses_of_other_hosts_are_found_in_styles(style, addresses):
    """So that test_nothing_is_fetched can fail."""
    assert fetched(style) == addresses


def test_the_hosted_workflow_makes_the_book_and_publishes_it():
    yaml = pytest.importorskip("yaml", reason="no PyYAML here: the extra test brings it")
    job = yaml.safe_load((ROOT / ".github" / "workflows" / "book.yml").read_text("utf-8"))["jobs"]["publish"]
    steps = [step.get("run", step.get("uses", "")) for step in job["steps"]]
    (made,) = [place for place, step in enumerate(steps) if step.startswith("make book")]
    published = [step["with"]["path"] for step in job["steps"][made:] if "upload-pages" in step.get("uses", "")]
    assert published == ["build/book/html"] and steps[-1].startswith("actions/deploy-pages")
