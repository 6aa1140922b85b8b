"""The web book: the notebooks, a reference, the instructors' pages and the benchmarks as web pages. See tools/book.py."""
