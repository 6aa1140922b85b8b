"""Configure Sphinx. book/build.py passes what differs between editions: language, title, copyright, languages.

Nothing is run, because the notebooks come with outputs. Nothing is downloaded, neither here nor by the pages.
"""

from pathlib import Path

HERE = Path(__file__).parent

project = "nncourse"
extensions = ["myst_nb", "sphinx_copybutton", "book.extension"]
root_doc = "index"
exclude_patterns = ["handout", "static"]
highlight_language = "none"  # of indented blocks, which are commands, prose and output

nb_execution_mode = "off"
nb_merge_streams = True  # what two calls of print() said is one block
myst_enable_extensions = ["dollarmath", "attrs_block"]
myst_heading_anchors = 3
myst_links_external_new_tab = False
smartquotes_excludes = {"languages": ["es"], "builders": []}  # they would make σ' into σ” there
suppress_warnings = ["myst.header"]  # answers that a notebook folds away have headings of any level

html_math_renderer = "mathml"
html_theme = "sphinx_book_theme"
html_title = "nncourse"
html_static_path = [str(HERE / "static")]
html_css_files = ["nncourse.css"]
html_js_files = ["nncourse.js"]
html_favicon = str(HERE / "static" / "favicon.svg")
templates_path = [str(HERE / "templates")]
html_copy_source = False
html_show_sphinx = False
html_use_index = False  # no page would have an entry in it
html_context = {"default_mode": "auto"}  # light or dark as the reader's system has it
html_theme_options = {
    "article_header_end": ["language-links.html", "article-header-buttons.html"],
    "footer_content_items": ["copyright.html", "nncourse-version.html"],
    "navbar_persistent": [],
    "show_navbar_depth": 1,
    "use_download_button": False,  # each notebook's page has its own
    "use_fullscreen_button": False,
}
copybutton_exclude = ".linenos, .gp, .go"
