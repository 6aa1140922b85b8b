"""The whole English book in a browser: widgets answer, nothing is cut unmarked, axe-core finds nothing serious."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "build" / "browser"
WIDTHS, THEMES = (390, 1440), ("light", "dark")
WIDGETS = 14  # of all notebooks, and of the front page
FEW = ("index.html", *(f"notebooks/{name}.html" for name in ("00_start_here", "06_training", "11_reading_digits")))
HOW = {"resultTypes": ["violations"], "preload": False}  # it would ask for style sheets, which a file may not
SERIOUS = ("serious", "critical")
# What is wider than the room that it is in, and neither scrolls with a mark nor can be enlarged.
CUT = """() => {
  const visible = (each) => each.checkVisibility() && each.getClientRects().length;
  const marked = (each) => each.closest(".nncourse-more-right, .nncourse-more-left");
  const cut = [];
  for (const each of document.querySelectorAll(".bd-article :is(img, table, pre, math, canvas, svg)")) {
    if (!visible(each) || marked(each)) continue;
    const { right, width } = each.getBoundingClientRect();
    const parent = each.parentElement.closest("div, figure, details").getBoundingClientRect();
    if (width && (right > innerWidth + 1 || right > parent.right + 2)) cut.push(each.outerHTML.slice(0, 120));
    if (each.matches("img.nncourse-figure") && each.naturalWidth > 1.1 * each.clientWidth) {
      if (!each.matches(".nncourse-small[role=button]")) cut.push("not to be enlarged: " + each.alt.slice(0, 60));
    }
  }
  return cut;
}"""
pytestmark = pytest.mark.release


@pytest.fixture(scope="module")
def book(browser, tmp_path_factory):
    """The pages of the whole book in English; NNCOURSE_BOOK names a folder where it has been built already."""
    out = Path(os.environ.get("NNCOURSE_BOOK", "")) if "NNCOURSE_BOOK" in os.environ else None
    if out is None:
        out = tmp_path_factory.mktemp("book")
        command = [sys.executable, str(ROOT / "tools" / "book.py"), "--lang", "en", "--out", str(out)]
        built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert built.returncode == 0, built.stdout + built.stderr
    PICTURES.mkdir(parents=True, exist_ok=True)
    html = out / "html" / "en"
    names = sorted(str(path.relative_to(html)) for path in html.rglob("*.html") if "_static" not in path.parts)
    return SimpleNamespace(html=html, names=names)


@pytest.fixture
def visit(browser, book):
    """Opens pages, in one window; afterwards nothing was asked of another host, and nothing went wrong."""
    wrong, pages = [], []

    def go(name, width=1440, theme="light"):
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
        pages.append(page)
        page.on("console", lambda message: message.type == "error" and wrong.append((name, message.text)))
        page.on("pageerror", lambda error: wrong.append((name, str(error))))
        page.on("requestfailed", lambda request: wrong.append((name, request.url)))
        local = ("file:", "data:", "blob:")
        page.on("request", lambda request: request.url.startswith(local) or wrong.append((name, request.url)))
        page.goto((book.html / name).as_uri())
        page.wait_for_load_state("load")
        return page

    yield go
    for page in pages:
        page.close()
    assert wrong == []


def with_widgets(book):
    return [name for name in book.names if 'class="nncourse-live"' in (book.html / name).read_text("utf-8")]


def changed(place, act):
    """Whether the picture and the words of a widget are others after act(); the words are what screen readers hear."""
    look = (
        "w => [[...w.querySelectorAll('canvas')].map(c => c.toDataURL()).join(), w.querySelector('.words').innerText]"
    )
    place.page.wait_for_timeout(100)
    before = place.evaluate(look)
    act()
    for _ in range(50):
        place.page.wait_for_timeout(100)
        after = place.evaluate(look)
        if after[0] != before[0] and after[1] != before[1]:
            return True
    return False


def drag(page, where, start, end):
    box = where.bounding_box()
    page.mouse.move(box["x"] + start[0] * box["width"], box["y"] + start[1] * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + end[0] * box["width"], box["y"] + end[1] * box["height"], steps=6)
    page.mouse.up()


@pytest.mark.parametrize("width", WIDTHS)
def test_every_widget_answers_to_mouse_and_keyboard(book, visit, width):
    seen = 0
    for name in with_widgets(book):
        page = visit(name, width)
        for place in page.locator(".nncourse-live").all():
            place.scroll_into_view_if_needed()
            seen += 1
            kind = place.get_attribute("data-script")
            if kind == "playground":
                start, pause = (place.get_by_role("button", name=what, exact=True) for what in ("Start", "Pause"))
                assert changed(place, lambda start=start: start.press("Enter")), (name, kind)
                pause.click()
                place.locator(".words", has_text="Paused").wait_for()
                assert changed(place, lambda start=start: start.click()), (name, kind)
                pause.press("Enter")
            elif kind == "digit_pad":
                pad = place.locator(".paper")
                assert changed(place, lambda p=page, pad=pad: drag(p, pad, (0.5, 0.2), (0.5, 0.8))), (name, kind)
                for key in ("ArrowLeft", "ArrowLeft", "ArrowLeft", "Space", "ArrowDown", "ArrowDown"):
                    pad.press(key)
                assert changed(place, lambda pad=pad: pad.press("Space")), (name, kind)  # the pen is up: words follow
            else:
                slider = place.locator("input[type=range]").last
                assert changed(place, lambda s=slider: [s.press("ArrowRight") for _ in range(15)]), (name, kind)
                assert changed(place, lambda p=page, s=slider: drag(p, s, (0.5, 0.5), (0.15, 0.5))), (name, kind)
            place.screenshot(path=PICTURES / f"live_{kind}_{width}.png")
    assert seen == WIDGETS


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_no_figure_table_or_equation_is_cut_without_a_mark(book, visit, width, theme):
    cut = {}
    for name in book.names:
        page = visit(name, width, theme)
        if name == "index.html":  # the test can fail
            box = (
                "<div id='wide' style='overflow: hidden'><div><table style='width: 3000px'><td>cut</table></div></div>"
            )
            page.evaluate("box => document.querySelector('.bd-article').insertAdjacentHTML('beforeend', box)", box)
            assert [html[:6] for html in page.evaluate(CUT)] == ["<table"]
            page.evaluate("document.querySelector('#wide').remove()")
        page.evaluate("document.querySelectorAll('details').forEach((each) => (each.open = true))")
        page.wait_for_timeout(150)
        found = page.evaluate(CUT)
        if page.evaluate("document.documentElement.scrollWidth") > width:
            found.append(f"the page is wider than {width}")
        cut |= {name: found} if found else {}
        page.close()
    assert cut == {}


def test_a_tap_shows_a_figure_large_and_escape_leads_back(book, visit):
    page = visit("notebooks/04_cost.html", 390)
    figure = page.locator("img.nncourse-small:visible").first
    for act in (figure.click, lambda: figure.press("Enter")):
        act()
        large = page.locator("dialog.nncourse-large[open] img")
        assert large.evaluate("image => image.clientWidth === image.naturalWidth")
        assert large.get_attribute("alt") == figure.get_attribute("alt")
        page.keyboard.press("Escape")
        page.locator("dialog.nncourse-large").wait_for(state="detached")
        assert figure.evaluate("figure => figure === document.activeElement")


def test_answers_to_predictions_are_closed_at_first(book, visit):
    page = visit("notebooks/02_activations.html")
    folded = page.locator("details.hide")
    assert folded.count()
    assert all(not each.evaluate("details => details.open") for each in folded.all())
    folded.first.locator("summary").press("Enter")
    assert folded.first.evaluate("details => details.open")


# On a long page axe takes half a minute, and there are some thirty pages.
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("width", "theme", "few"), [(1440, "light", False), (390, "dark", True)])
def test_axe_finds_nothing_serious(book, visit, width, theme, few):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe here: the extra test brings it")
    found = {}
    for name in FEW if few else book.names:
        page = visit(name, width, theme)
        page.wait_for_timeout(200)
        violations = axe.Axe().run(page, options=HOW).response["violations"]
        for each in violations:
            if each["impact"] in SERIOUS:
                where = [node["html"][:150] for node in each["nodes"][:3]]
                found.setdefault(each["id"], []).append((name, len(each["nodes"]), where))
        page.close()
    assert found == {}


def test_each_page_has_an_icon_a_title_and_a_description(book):
    for name in book.names:
        text = (book.html / name).read_text("utf-8")
        assert text.count('name="viewport"') == 1 and "favicon.svg" in text, name
        assert text.count('<meta name="description" content="') == 1 and 'description" content=""' not in text, name
        assert "<title>nncourse" not in text, name
    lost = (book.html.parent / "404.html").read_text("utf-8")
    assert 'href="en/index.html"' in lost and (book.html.parent / "favicon.svg").is_file()
