"""Make the web book: notebooks, reference, instructors' pages and benchmarks as web pages. See tools/book.py."""
